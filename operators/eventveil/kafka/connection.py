"""A connection to a broker for one thread at a time, which waits for the answers itself.

The protocol's messages, and SASL's, are those of aiokafka; only the socket is another, because aiokafka's
needs an event loop, which costs more than everything else that a small transaction does.

A request that was not sent (``Unreached``) differs from one that was sent and not answered (``Unanswered``),
whose outcome is unknown. After an error a connection is not used again, so no late answer is ever
taken for another.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Mapping
from io import BytesIO
from math import ceil
from typing import Any

from aiokafka.conn import SaslGSSAPIAuthenticator, SaslPlainAuthenticator, ScramAuthenticator
from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.errors import KafkaError as ClientError
from aiokafka.protocol.admin import ApiVersionRequest, SaslAuthenticateRequest, SaslHandShakeRequest
from confluent_kafka import KafkaError

from eventveil.kafka.tokens import NoToken
from eventveil.model.errors import EventveilError

#: Host and port.
Address = tuple[str, int]
_CLIENT = "eventveil"
#: To be connected and admitted, and how much of that, or of what there is, is for being connected.
_CONNECT_SECONDS, _SHARE_TO_CONNECT, _LEAST_SHARE_SECONDS = 10.0, 0.6, 1.2
_BUFFER_BYTES = 65_536
#: What an answer takes at least where a broker first has to be waited for.
_ANSWER_SECONDS = 1.0
#: After a pause for this long, what is not answered may be due to it.
_LATELY_SECONDS = 60.0
#: More than any answer that is read here. The first bytes of HTTP or of TLS, read as a length, are more.
_MOST_BYTES = 256 * 1024 * 1024
#: After which a connection is made anew: sooner than brokers and firewalls drop those that are idle.
_LIFE_SECONDS = 240.0
#: Of the time after which a broker requires authentication again.
_SHARE_OF_SESSION = 0.8
#: What it looks like when a connection does not come about, and when one ends.
_BROKEN = (OSError, EOFError, ClientError, ValueError, struct.error)
_FINAL = {KafkaError._AUTHENTICATION, KafkaError.UNSUPPORTED_VERSION}


class NotKafka(EOFError):
    """What answers is no broker."""


class Unreached(EventveilError):
    """A broker could not be asked; ``error`` is how librdkafka would have told it."""

    def __init__(self, address: str, reason: object, code: int = KafkaError._TRANSPORT) -> None:
        super().__init__(f"{address}: {reason}")
        self.error = KafkaError(code, str(self))

    @property
    def is_final(self) -> bool:
        """Whether waiting will not help: the broker does not let this client in, or is too old for it."""
        return self.error.code() in _FINAL


class Unsupported(Unreached):
    """A broker was not asked, for it does not know the request."""

    def __init__(self, address: str, request: object) -> None:
        what = f"it does not know {type(request).__name__}. Eventveil needs Apache Kafka 3.0 or later"
        super().__init__(address, what, KafkaError.UNSUPPORTED_VERSION)


class Throttled(Unreached):
    """A broker was not asked: because of a quota it reads nothing before the time for an answer is over."""

    def __init__(self, address: str, reason: object) -> None:
        super().__init__(address, reason, KafkaError._TIMED_OUT)

    @property
    def is_final(self) -> bool:
        """Within that time waiting does not help."""
        return True


class Unanswered(EventveilError):
    """A broker was asked and did not answer: perhaps it did what it was asked to, perhaps it still will."""

    def __init__(self, address: Address, reason: object) -> None:
        super().__init__(f"{address[0]}:{address[1]} did not answer: {reason}")


class Connection:
    """A connection that is made and admitted; ``settings`` are those of an aiokafka client.

    Raises Unreached.
    """

    def __init__(self, address: Address, settings: dict[str, Any], seconds: float) -> None:
        self._address, self._settings = address, settings
        self._where = where = f"{address[0]}:{address[1]}"
        self._versions: dict[int, tuple[int, int]] = {}
        self._waiting: deque[tuple[int, Any]] = deque()
        self._unread = bytearray()
        self._correlation, self._seconds = 0, 0
        self._client = client_id(settings)
        #: Until when a broker reads nothing from it, because of a quota.
        self._muted_until = 0.0
        idle = settings.get("connections_max_idle_ms", _LIFE_SECONDS * 1000) / 1000
        self._ends = time.monotonic() + min(_LIFE_SECONDS, idle)
        seconds = min(seconds, _CONNECT_SECONDS)
        give_up = time.monotonic() + seconds
        try:
            self._socket = _connected(address, seconds * _SHARE_TO_CONNECT)
        except OSError as error:
            raise Unreached(where, repr(error)) from error
        try:
            self._admit(give_up)
        except Unsupported:
            self.close()
            raise
        except NotAdmitted as error:
            self.close()
            raise Unreached(where, error, KafkaError._AUTHENTICATION) from error
        except NoToken as error:
            self.close()
            code = KafkaError._TRANSPORT if error.passes else KafkaError._AUTHENTICATION
            raise Unreached(where, error, code) from error
        except _BROKEN as error:
            self.close()
            raise Unreached(where, repr(error)) from error

    def _admit(self, give_up: float) -> None:
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Of the handshake, too.
        self._patience(give_up)
        if self._settings["security_protocol"].endswith("SSL"):
            context: ssl.SSLContext = self._settings["ssl_context"]
            self._socket = context.wrap_socket(self._socket, server_hostname=self._address[0])
        answer = self._ask(ApiVersionRequest(), give_up)
        self._versions = {key: (least, most) for key, least, most in answer.api_versions}
        if self._settings["security_protocol"].startswith("SASL"):
            self._authenticate(give_up)

    def _authenticate(self, give_up: float) -> None:
        mechanism = self._settings["sasl_mechanism"]
        answer = self._ask(SaslHandShakeRequest(mechanism), give_up)
        if answer.error_code:
            offered = ", ".join(answer.enabled_mechanisms) or "no mechanism on this listener"
            raise NotOffered(f"the broker offers {offered}, not {mechanism}")
        authenticator, token = self._authenticator(mechanism), None
        while (step := _stepped(authenticator, token)) is not None:
            answer = self._ask(SaslAuthenticateRequest(step[0]), give_up)
            if answer.error_code:
                raise NotAdmitted(answer.error_message or KafkaError(answer.error_code).str())
            token = answer.sasl_auth_bytes
            lifetime = getattr(answer, "session_lifetime_ms", 0) / 1000
            if lifetime > 0:
                self._ends = min(self._ends, time.monotonic() + _SHARE_OF_SESSION * lifetime)

    def _authenticator(self, mechanism: str) -> Any:
        if mechanism == "OAUTHBEARER":
            provider = self._settings["sasl_oauth_token_provider"]
            return _Bearer(provider.source.token().text, provider.extensions())
        if mechanism == "GSSAPI":
            principal = f"{self._settings['sasl_kerberos_service_name']}@{self._address[0]}"
            return SaslGSSAPIAuthenticator(loop=None, principal=principal)
        credentials = {name: self._settings[name] for name in ("sasl_plain_username", "sasl_plain_password")}
        if mechanism == "PLAIN":
            return SaslPlainAuthenticator(loop=None, **credentials)
        return ScramAuthenticator(loop=None, sasl_mechanism=mechanism, **credentials)

    def send(self, request: Any, seconds: float) -> None:
        """Send a request. Raises Unsupported, or Unanswered: part of it may have been sent."""
        prepared = self._prepared(request)
        try:
            self._send(prepared, time.monotonic() + seconds)
        except _BROKEN as error:
            self.close()
            raise self._unanswered(error) from error

    def receive(self, seconds: float) -> Any:
        """The answer to the oldest request that was not answered yet. Raises Unanswered."""
        try:
            answer = self._receive(time.monotonic() + seconds)
        except _BROKEN as error:
            self.close()
            raise self._unanswered(error) from error
        if milliseconds := getattr(answer, "throttle_time_ms", 0):
            self._muted_until = time.monotonic() + milliseconds / 1000
        return answer

    @property
    def muted(self) -> float:
        """For how many seconds the broker will read nothing from this connection, because of a quota."""
        return max(0.0, self._muted_until - time.monotonic())

    def wait_while_muted(self, seconds: float) -> float:
        """Wait until the broker reads what is sent; how many of the ``seconds`` are left.

        Raises Throttled if no time would be left for an answer.
        """
        if not (muted := self.muted):
            return seconds
        if muted + _ANSWER_SECONDS > seconds:
            # For how long depends on how much was written: see ``eventveil.kafka.throttling``.
            raise Throttled(
                self._where, f"it {self._throttles} for longer than can be waited; raise its quota"
            )
        time.sleep(muted)
        return seconds - muted

    @property
    def _throttles(self) -> str:
        return f"throttles client.id {self._client}"

    def _unanswered(self, error: Exception) -> Unanswered:
        lately = self._muted_until > time.monotonic() - _LATELY_SECONDS
        also = f"; it {self._throttles}, perhaps its quota is too small" if lately else ""
        return Unanswered(self._address, f"{error!r}{also}")

    def _ask(self, request: Any, give_up: float) -> Any:
        self._send(self._prepared(request), give_up)
        return self._receive(give_up)

    def _prepared(self, request: Any) -> Any:
        """A request in the newest version that both sides know. Raises Unsupported."""
        try:
            return request.prepare(self._versions)
        except (IncompatibleBrokerVersion, NotImplementedError) as error:
            raise Unsupported(self._where, request) from error

    def _send(self, prepared: Any, give_up: float) -> None:
        self._correlation = (self._correlation + 1) % 2**31
        header = prepared.build_request_header(correlation_id=self._correlation, client_id=self._client)
        message = header.encode() + prepared.encode()
        self._waiting.append((self._correlation, prepared))
        self._patience(give_up)
        self._socket.sendall(struct.pack(">i", len(message)) + message)

    def _receive(self, give_up: float) -> Any:
        correlation, request = self._waiting.popleft()
        (size,) = struct.unpack(">i", self._read(4, give_up))
        if not 0 <= size <= _MOST_BYTES:
            raise NotKafka("not the answer of a Kafka broker")
        content = BytesIO(self._read(size, give_up))
        if request.parse_response_header(content).correlation_id != correlation:
            raise NotKafka("not the answer of a Kafka broker")
        return request.RESPONSE_TYPE.decode(content)

    def _read(self, size: int, give_up: float) -> bytes:
        while len(self._unread) < size:
            self._patience(give_up)
            if not (part := self._socket.recv(max(_BUFFER_BYTES, size - len(self._unread)))):
                raise EOFError("it closed the connection")
            self._unread += part
        content = bytes(self._unread[:size])
        del self._unread[:size]
        return content

    def _patience(self, give_up: float) -> None:
        """Let the socket wait no longer, or less than a second longer: to say it each time costs a call."""
        seconds = ceil(_left(give_up))
        if seconds != self._seconds:
            self._socket.settimeout(seconds)
            self._seconds = seconds

    @property
    def is_alive(self) -> bool:
        """Whether it may be used on; not while an answer is waited for."""
        if self._waiting or self._unread or time.monotonic() > self._ends:
            return False
        try:
            waiting = select.poll()
            waiting.register(self._socket, select.POLLIN)
            if not waiting.poll(0):
                return True
            # It has ended; or TLS has something to say that is not an answer.
            self._seconds = 0
            self._socket.settimeout(0)
            self._socket.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except (OSError, ValueError):
            return False
        return False

    def close(self) -> None:
        """End it, whatever is on its way."""
        self._socket.close()


def client_id(settings: Mapping[str, Any]) -> str:
    """The name by which brokers know the client that has these settings."""
    name: str = settings.get("client_id", _CLIENT)
    return name


def _connected(address: Address, seconds: float) -> socket.socket:
    """A socket that is connected to one of the addresses of a host. Raises OSError.

    Each has its share of the time. A host may have addresses that drop what is sent to them, where IPv6 does
    not work for instance, and ``socket.create_connection`` gives the first one all the time.
    """
    give_up = time.monotonic() + seconds
    found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
    failure = OSError("the name has no address")
    for left, (family, kind, protocol, _, where) in zip(range(len(found), 0, -1), found, strict=True):
        try:
            # At least what it takes to send a lost packet again.
            share = min(_left(give_up), max(_LEAST_SHARE_SECONDS, _left(give_up) / left))
            return _connected_to(where, share, socket.socket(family, kind, protocol))
        except OSError as error:
            failure = error
    raise failure


def _connected_to(where: Any, seconds: float, made: socket.socket) -> socket.socket:
    try:
        made.settimeout(seconds)
        made.connect(where)
    except OSError:
        made.close()
        raise
    return made


def _stepped(authenticator: Any, told: bytes | None) -> tuple[bytes, bool] | None:
    """What is to be said next. Raises NoTicket."""
    try:
        step: tuple[bytes, bool] | None = authenticator._step(told)
    except Exception as error:
        if isinstance(authenticator, SaslGSSAPIAuthenticator):
            raise NoTicket(" ".join(str(error).split())) from error
        raise
    return step


class _Bearer:
    """The messages of OAUTHBEARER (RFC 7628): a refusal comes after the answer to what is said of a token."""

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        pairs = "".join(f"{name}={value}\x01" for name, value in extensions.items())
        self._steps = [(f"n,,\x01auth=Bearer {token}\x01{pairs}\x01".encode(), True)]

    def _step(self, told: bytes | None) -> tuple[bytes, bool] | None:
        if self._steps:
            return self._steps.pop()
        return (b"\x01", True) if told else None


class NotAdmitted(Exception):
    """The broker does not accept the credentials."""


class NotOffered(NotAdmitted):
    """The broker does not know the SASL mechanism."""


class NoTicket(NotAdmitted):
    """Kerberos gives no ticket for the broker, or has none to ask with."""


def _left(give_up: float) -> float:
    """Seconds. Raises TimeoutError if there are none."""
    left = give_up - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left
