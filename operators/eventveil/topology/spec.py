"""The whole topology file, version 1: one table per section, in which a row says all of a setting.

Those of the streams are in ``counts``, ``mechanism`` and ``options`` (the options of mechanisms), ``values``
and ``local``; the sections around them are here.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import get_args

from eventveil.mechanisms import registry
from eventveil.model.topology import KindOfStream, Mechanism
from eventveil.privacy.gaussian import LEAST_DELTA
from eventveil.topology.clients import CLIENTS
from eventveil.topology.counts import STREAM
from eventveil.topology.engine import ENGINE_SOURCE, or_counts
from eventveil.topology.fields import Field, Named, One, RecordShape
from eventveil.topology.local import local_stream
from eventveil.topology.mechanism import KIND
from eventveil.topology.scalars import DELTAS, Choice, Duration, Rational, Secret, Servers, Text, Whole
from eventveil.topology.values import ByKind, value_stream
from eventveil.values.kinds import VALUE_KINDS

LONGEST_NAME = 100
NAME = rf"[a-z0-9][a-z0-9._-]{{0,{LONGEST_NAME - 1}}}"
#: No name and password: they would be shown wherever the address is.
_URL = r"https?://[^\s,@/]+(/[^\s,@]*)?"
#: "auth" is the name of the token itself (RFC 7628, section 3.1).
_EXTENSION = r"(?!auth=)[A-Za-z]+=[!-+\--~]+"
_EXTENSIONS = rf"{_EXTENSION}(,{_EXTENSION})*"
URLS = rf"{_URL}(,{_URL})*"
_PATH = One(Text("the path of a file, relative to the topology"))
#: What a client shows of itself, to brokers and registries alike.
_CLIENT_CERTIFICATE = (
    Field("certificate", _PATH, "PEM file of the client certificate."),
    Field("key", _PATH, "PEM file of the client key."),
    Field("key_password", One(Secret()), "Of an encrypted key, as ${file:/path} or ${VARIABLE}."),
)
#: Where tokens come from by client credentials, for both.
_TOKEN_URL = One(Text("an https address", r"https?://[^\s]+"))
_CLIENT_SECRET = Field("client_secret", One(Secret()), "Its secret, as ${file:/path} or ${VARIABLE}.")
_TOKEN_CA = Field(
    "token_ca",
    _PATH,
    "PEM file of the identity provider's certificate authority; left out: those of the system.",
)
NAME_EXPECTED = (
    "1 to 100 lower-case letters, digits, dots, dashes and underscores, the first a letter or digit"
)


@functools.cache
def layout() -> RecordShape:
    """The shape of a topology file."""
    return RecordShape(
        (
            Field(
                "version",
                One(Whole(1, 1)),
                "Version of the file format; this Eventveil reads version 1.",
                True,
            ),
            Field(
                "name",
                One(Text(NAME_EXPECTED, NAME)),
                "Application: prefix of group, transactions and topics.",
                True,
            ),
            Field("kafka", _kafka(), "The brokers and how to reach them."),
            Field("registry", _registry(), "The schema registry of sources and sinks that have schemas."),
            Field("topics", _topics(), "Settings of the topics that Eventveil creates."),
            Field(
                "streams",
                Named(_streams(), "stream", NAME, NAME_EXPECTED),
                "Sanitized streams by name.",
                True,
            ),
            Field(
                "budget",
                _budget(),
                "A cap on what the streams of a population cost together; left out: no cap.",
            ),
        )
    )


def _kafka() -> RecordShape:
    security = RecordShape(
        (
            Field(
                "protocol",
                One(Choice(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"))),
                "Encryption and authentication.",
                default="PLAINTEXT",
            ),
            Field("mechanism", One(Choice(get_args(Mechanism))), "SASL mechanism."),
            Field("username", One(Text("a name on one line")), "SASL user name."),
            Field("password", One(Secret()), "SASL password, as ${file:/path} or ${VARIABLE}."),
            Field("ca", _PATH, "PEM file of the certificate authority; left out: those of the system."),
            *_CLIENT_CERTIFICATE,
            Field(
                "token_url",
                _TOKEN_URL,
                "OAUTHBEARER: where the identity provider gives tokens for client credentials.",
            ),
            Field("client_id", One(Text("a name on one line")), "OAUTHBEARER: the client's name there."),
            _CLIENT_SECRET,
            Field("scope", One(Text("words on one line")), "OAUTHBEARER: the scope to request, if any."),
            _TOKEN_CA,
            Field(
                "token_file",
                _PATH,
                "OAUTHBEARER: a file with the token, read for each connection, instead of token_url.",
            ),
            Field(
                "extensions",
                One(Text("name=value, several separated by commas, with names of letters", _EXTENSIONS)),
                "OAUTHBEARER: what brokers require beside the token. Confluent Cloud:"
                " logicalCluster=lkc-12345,identityPoolId=pool-12345.",
            ),
            Field(
                "region",
                One(Text("a region, such as eu-central-1", r"[a-z0-9-]{1,40}")),
                "AWS_MSK_IAM: of the cluster. Needs the extra aws; credentials are those of the environment.",
            ),
            Field(
                "service_name",
                One(Text("the first part of a principal, such as kafka", r"[A-Za-z0-9._-]{1,100}")),
                "GSSAPI: that of the brokers' principals. Tickets are those of the environment.",
            ),
        )
    )
    return RecordShape(
        (
            Field(
                "bootstrap",
                One(Servers()),
                "First brokers, host:port, separated by commas.",
                default="localhost:9092",
            ),
            Field("security", security, "Encryption and authentication of the connection."),
            Field("clients", CLIENTS, "Settings that every client gets, by the names of Kafka."),
        )
    )


def _registry() -> RecordShape:
    return RecordShape(
        (
            Field(
                "url",
                One(Text("http:// or https:// and a host, or several separated by commas", URLS)),
                "Its address, as serializers use it; of several, the first that answers.",
            ),
            Field("username", One(Text("a name on one line without a colon", r"[^\r\n:]+")), "User name."),
            Field("password", One(Secret()), "Its password, as ${file:/path} or ${VARIABLE}."),
            Field("ca", _PATH, "PEM file of the certificate authority; left out: those that certifi brings."),
            *_CLIENT_CERTIFICATE,
            Field(
                "token",
                One(Secret()),
                "A bearer token, as ${file:/path} or ${VARIABLE}, if it never changes.",
            ),
            Field("token_file", _PATH, "A file with the token, read for each request; it may be replaced."),
            Field("token_url", _TOKEN_URL, "Where an identity provider gives tokens for client credentials."),
            Field("client_id", One(Text("a name on one line")), "The client's name there."),
            _CLIENT_SECRET,
            Field("scope", One(Text("words on one line")), "The scope to request there, if any."),
            _TOKEN_CA,
            Field(
                "logical_cluster",
                One(Text("an id such as lsrc-12345", r"[^\r\n]+")),
                "Confluent Cloud, with a token: the registry's own id.",
            ),
            Field(
                "identity_pool",
                One(Text("an id such as pool-12345", r"[^\r\n]+")),
                "Confluent Cloud, with a token: the identity pool.",
            ),
        )
    )


def _topics() -> RecordShape:
    return RecordShape(
        (
            Field("replication", One(Whole(1, 100)), "Copies of each partition.", default="3"),
            Field(
                "min_insync",
                One(Whole(1, 100)),
                "Copies that must hold a write (min.insync.replicas).",
                default="2",
            ),
            Field(
                "partitions",
                One(Whole(1, 100_000)),
                "Partitions of the sources that `topics --create --sources` creates.",
                default="12",
            ),
            Field(
                "partials",
                One(Whole(1, 10_000)),
                "Partitions of partial counts and of the ledger.",
                default="4",
            ),
            Field(
                "managed",
                One(Choice(("false", "true"))),
                "The cluster is a managed service: messages of at most 8 MiB, segments of at least 50 MiB and"
                " 4 hours, and no settings that are the service's own.",
                default="false",
            ),
        )
    )


#: Of sources that have a table of their own; the others have that of events (``counts.SOURCE``).
SOURCES: Mapping[KindOfStream, RecordShape] = {"engine": ENGINE_SOURCE}


def _streams() -> ByKind:
    local = {kind: local_stream(kind) for kind in registry.LOCAL_KINDS}
    return ByKind(KIND, or_counts(STREAM), {kind: value_stream(kind) for kind in VALUE_KINDS} | local)


def _budget() -> RecordShape:
    return RecordShape(
        (
            Field("epsilon", One(Rational(1_000_000)), "cap on the sum, such as 5", True),
            Field("span", One(Duration(1)), "length of time over which streams add up, such as 5d", True),
            Field(
                "delta",
                One(Rational(1, LEAST_DELTA, 31, DELTAS)),
                "Cap on the sum of the deltas of Gaussian noise and of columns that are found, such as 1e-8.",
            ),
            Field(
                "users",
                One(Text("a name of at most 100 characters on one line", longest=100)),
                "The population that is capped, and that of sources without users.",
                default="users",
            ),
        )
    )
