"""Rules of the schema registry, and between it and the sources that need one."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import SplitResult, urlsplit

from eventveil.model.topology import BY_SCHEMA
from eventveil.topology.build import all_streams_of, parts_of
from eventveil.topology.fields import Section

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_TLS = ("ca", "certificate", "key", "key_password")
_TOGETHER = (
    ("username", "password"), ("password", "username"), ("certificate", "key"), ("key", "certificate"),
    ("key_password", "key"), ("token_url", "client_id"), ("token_url", "client_secret"),
)  # fmt: skip
_TOKENS = ("token", "token_file", "token_url")
_WITH_TOKEN_URL = ("client_id", "client_secret", "scope", "token_ca")


def check_registry(file: Section) -> None:
    """Note every broken rule."""
    registry = file.get("registry")
    url = registry.get("url") if registry is not None else None
    given = registry is not None and "url" in registry.positions
    by_schema = [*_by_schema(file)]
    for section in () if given else by_schema:
        section.wrong(
            "format",
            f"{section.get('format')} needs a schema registry, and the file names none; add"
            " registry: {url: https://...} at the top level",
        )
    _check_sinks(file)
    if registry is None or not registry.positions:
        return
    if not by_schema and all(one.get("source") and one.get("sink") for one in all_streams_of(file).values()):
        registry.problems.add(
            registry.position,
            "registry has no effect: no source has format: avro or protobuf, and no sink avro or json-schema;"
            " remove it",
        )
    if not given:
        registry.note("url", "registry lacks url; add the address that serializers use")
    _check_access(registry, url)


def _by_schema(file: Section) -> Iterator[Section]:
    """The sources and sinks that need a registry."""
    for _, _, source in parts_of(file, "source", all_streams_of):
        if source.get("format") in BY_SCHEMA:
            yield source
    for _, _, sink in parts_of(file, "sink"):
        if sink.get("format") not in (None, "json"):
            yield sink


def _check_sinks(file: Section) -> None:
    for _, _, sink in parts_of(file, "sink"):
        if sink.get("format") == "avro" and sink.get("counts") == "array":
            sink.wrong(
                "counts",
                "with format: avro every count is a row with the name of its column; remove counts: array,"
                " or take format: json-schema",
            )


def _check_access(registry: Section, url: str | None) -> None:
    for key, other in _TOGETHER:
        if key in registry.positions and other not in registry.positions:
            registry.note(key, f"registry.{key} is set without {other}; give both or neither")
    _check_token(registry)
    if url is None:
        return
    open_ = [one for one in map(urlsplit, url.split(",")) if one.scheme == "http"]
    for key in _TLS if open_ else ():
        if key in registry.positions:
            registry.note(key, f"registry.{key} has no effect with http://; use https://, or remove it")
    secret = next((key for key in ("password", *_TOKENS) if key in registry.positions), None)
    if secret is not None and any(map(_is_elsewhere, open_)):
        what = "password" if secret == "password" else "token"
        registry.note("url", f"registry.url: a {what} over http:// can be read by others; use https://")


def _is_elsewhere(url: SplitResult) -> bool:
    return url.netloc.rsplit(":", 1)[0] not in _LOOPBACK and url.netloc not in _LOOPBACK


def _check_token(registry: Section) -> None:
    """One way to say who we are, and whole."""
    ways = [key for key in ("username", *_TOKENS) if key in registry.positions]
    for key in ways[1:]:
        registry.note(key, f"registry.{key} and {ways[0]} are two ways to authenticate; remove one")
    for key in _WITH_TOKEN_URL:
        if key in registry.positions and "token_url" not in registry.positions:
            registry.note(key, f"registry.{key} has no effect without token_url; remove it")
    for key in ("logical_cluster", "identity_pool"):
        if key in registry.positions and not any(one in registry.positions for one in _TOKENS):
            registry.note(key, f"registry.{key} goes with a token only; remove it")
    url = registry.get("token_url")
    if url is not None and urlsplit(url).scheme == "http" and _is_elsewhere(urlsplit(url)):
        registry.note(
            "token_url", "registry.token_url: the secret over http:// can be read by others; use https://"
        )
