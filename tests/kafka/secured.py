"""One broker with every kind of door: TLS, mutual TLS, and SASL over TLS with passwords and tokens.

Certificates are made by ``cryptography``. Tokens come from an OAuth 2.0 server of Authlib on Flask, which
signs them and gives them for client credentials, over TLS; the broker checks them against the server's keys.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import ClientMixin, grants
from authlib.oauth2.rfc9068 import JWTBearerTokenGenerator
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from flask import Flask, Response
from joserfc.jwk import RSAKey
from werkzeug.serving import make_server

from tests.kafka.broker import LocalBroker
from tests.kafka.jars import BrokerError, class_path
from tests.kafka.ports import HOST, reserve

USER, PASSWORD = "worker", "secret, of the worker"
CLIENT, SECRET = "eventveil", "secret:of the client"
STRANGER = "stranger"
AUDIENCE = "kafka"
KEY_PASSWORD = "of the key"
#: Names of listeners, with the protocol that each speaks.
DOORS = {"TLS": "SSL", "MUTUAL": "SSL", "SASL": "SASL_SSL", "CLOUD": "SASL_SSL"}
#: What the door CLOUD wants beside a token.
EXTENSIONS = "logicalCluster=lkc-12345,identityPoolId=pool-12345"


class Authority:
    """A certificate authority; ``file`` has its certificate."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._sign(name, self._key, self._key, is_authority=True)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(_pem(self._certificate))

    def certificate(self, name: str, password: str | None = None) -> tuple[Path, Path]:
        """The files of a certificate for a name and 127.0.0.1, and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        files = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        files[0].write_bytes(_pem(self._sign(name, key, self._key)))
        how: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            how = serialization.BestAvailableEncryption(password.encode())
        form = serialization.PrivateFormat.PKCS8
        files[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, form, how))
        return files

    def _sign(self, name: str, key: Any, by: Any, *, is_authority: bool = False) -> x509.Certificate:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(_named(name))
            .issuer_name(_named(self._name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address(HOST))]), critical=False)
            .sign(by, hashes.SHA256())
        )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


class Client(ClientMixin):  # type: ignore[misc]
    """The one client that the identity provider knows."""

    def get_client_id(self) -> str:
        return CLIENT

    def check_client_secret(self, client_secret: str) -> bool:
        return client_secret == SECRET

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method == "client_secret_basic"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type == "client_credentials"

    def get_allowed_scope(self, scope: str) -> str:
        return " ".join(one for one in scope.split() if one == "kafka")


class Provider:
    """The identity provider: ``url`` is where it gives tokens, ``given`` how many; ``keys`` has its own.

    While ``trouble`` is set it gives none; ``refused`` is how often it was asked then.
    """

    def __init__(self, folder: Path, authority: Authority) -> None:
        self._key = RSAKey.generate_key(2048, {"kid": "one", "alg": "RS256", "use": "sig"})
        self.keys = folder / "keys.json"
        self.keys.write_text(json.dumps({"keys": [self._key.as_dict(private=False)]}))
        self.given, self.life = 0, 300
        self.refused, self.trouble = 0, False
        app = Flask("provider")
        app.config["OAUTH2_SCOPES_SUPPORTED"] = ["kafka"]
        server = AuthorizationServer(app, query_client=lambda name: Client() if name == CLIENT else None,
                                     save_token=self._count)  # fmt: skip
        server.register_grant(_Grant)
        server.register_token_generator("default", _Generator(self))
        app.add_url_rule("/token", "token", lambda: self._answer(server), methods=["POST"])
        certificate, key = authority.certificate("provider")
        self._server = make_server(HOST, 0, app, ssl_context=(str(certificate), str(key)), threaded=True)
        self.url = f"https://{HOST}:{self._server.server_port}/token"
        self.issuer = f"https://{HOST}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _answer(self, server: Any) -> Response:
        if self.trouble:
            self.refused += 1
            return Response(status=503)
        answer: Response = server.create_token_response()
        return answer

    def _count(self, token: Mapping[str, Any], request: Any) -> None:
        self.given += 1

    @property
    def key(self) -> dict[str, Any]:
        found: dict[str, Any] = self._key.as_dict(private=True)
        return found

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Grant(grants.ClientCredentialsGrant):  # type: ignore[misc]
    TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic",)


class _Generator(JWTBearerTokenGenerator):  # type: ignore[misc]
    """Tokens of RFC 9068."""

    def __init__(self, provider: Provider) -> None:
        super().__init__(issuer=provider.issuer if hasattr(provider, "issuer") else f"https://{HOST}")
        self._provider = provider

    def get_jwks(self) -> dict[str, Any]:
        return {"keys": [self._provider.key]}

    def get_audiences(self, client: Any, user: Any, scope: str) -> list[str]:
        return [AUDIENCE]

    def _get_expires_in(self, client: Any, grant_type: str) -> int:
        return self._provider.life


class SecuredBroker(LocalBroker):
    """See the module. Who comes in by the plain door may do everything, and so may all but the stranger."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        super().__init__(folder / "broker")
        self.authority = Authority(folder, "authority")
        self.other = Authority(folder, "another")
        self.provider = Provider(folder, self.authority)
        self.client = self.authority.certificate(USER, KEY_PASSWORD)
        #: The authorities of clients that come in by the door MUTUAL, as of the start of the broker.
        self.clients = folder / "clients.pem"
        self.clients.write_bytes(self.authority.file.read_bytes())
        self._doors = {name: reserve() for name in DOORS}
        self.classes = [] if NO_COMPILER else [compiled(folder)]
        self.java = [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://{self.provider.keys}"]

    def door(self, name: str) -> str:
        """``host:port`` of a listener."""
        return f"{HOST}:{self._doors[name].port}"

    def _write_settings(self) -> None:
        super()._write_settings()
        certificate, key = self.authority.certificate("broker")
        store = self.directory / "broker.pem"
        store.write_bytes(key.read_bytes() + certificate.read_bytes())
        plain, controller = (f"{HOST}:{port.port}" for port in self._ports)
        doors = ",".join(f"{name}://{self.door(name)}" for name in DOORS)
        modules = "org.apache.kafka.common.security"
        users = " ".join(f'user_{name}="{PASSWORD}"' for name in (USER, STRANGER))
        sasl, cloud = "listener.name.sasl", "listener.name.cloud"
        bearer = f"{modules}.oauthbearer.OAuthBearerLoginModule required;"
        validator = f"{modules}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        settings = {
            "listeners": f"PLAINTEXT://{plain},CONTROLLER://{controller},{doors}",
            "advertised.listeners": f"PLAINTEXT://{plain},{doors}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
            + ",".join(f"{name}:{protocol}" for name, protocol in DOORS.items()),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.file),
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.truststore.type": "PEM",
            "listener.name.mutual.ssl.truststore.location": str(self.clients),
            f"{sasl}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
            # A session ends with its token: the broker closes the connection of who does not come in anew.
            f"{sasl}.oauthbearer.connections.max.reauth.ms": "3600000",
            f"{sasl}.plain.sasl.jaas.config": f"{modules}.plain.PlainLoginModule required {users};",
            f"{sasl}.scram-sha-512.sasl.jaas.config": f"{modules}.scram.ScramLoginModule required;",
            f"{sasl}.oauthbearer.sasl.jaas.config": bearer,
            f"{sasl}.oauthbearer.sasl.server.callback.handler.class": validator,
            f"{cloud}.sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{cloud}.oauthbearer.sasl.jaas.config": bearer,
            f"{cloud}.oauthbearer.sasl.server.callback.handler.class": (
                validator if NO_COMPILER else LOGICAL_CLUSTER.stem
            ),
            "sasl.oauthbearer.jwks.endpoint.url": f"file://{self.provider.keys}",
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": self.provider.issuer,
            **({} if NO_COMPILER else {"create.topic.policy.class.name": POLICY.stem}),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:ANONYMOUS;User:{USER};User:CN={USER};User:{CLIENT}",
        }
        with self._settings.open("a", encoding="utf-8") as file:
            file.writelines(f"{name}={value}\n" for name, value in settings.items())

    def release(self) -> None:
        super().release()
        for port in self._doors.values():
            port.release()
        self.provider.close()


#: Holds topics whose names begin with "managed" to the limits of managed services.
POLICY = Path(__file__).with_name("ManagedService.java")
#: Wants extensions beside a token.
LOGICAL_CLUSTER = Path(__file__).with_name("LogicalCluster.java")
#: Why brokers are without these two; empty where they can be compiled.
NO_COMPILER = (
    "" if shutil.which("javac") else "javac is missing: install openjdk-17-jdk-headless (Debian, Ubuntu)"
)


def compiled(folder: Path) -> Path:
    """The folder with the classes that the broker has from here."""
    classes = folder / "classes"
    command = ["javac", "-nowarn", "-cp", class_path(), "-d", str(classes)]
    command += map(str, (POLICY, LOGICAL_CLUSTER))
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise BrokerError(f"{POLICY} and {LOGICAL_CLUSTER} cannot be compiled:\n{done.stdout}")
    return classes


@contextmanager
def secured_broker(folder: Path) -> Iterator[SecuredBroker]:
    """A running one."""
    broker = SecuredBroker(folder)
    try:
        broker.start()
        yield broker
    finally:
        broker.release()
