"""Rules of the schema registry, and between it and the sources that need one."""

from __future__ import annotations

from urllib.parse import urlsplit

from eventveil.model.topology import BY_SCHEMA
from eventveil.topology.build import all_streams_of, parts_of
from eventveil.topology.fields import Section
from eventveil.topology.problems import Problems

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_TLS = ("ca", "certificate", "key", "key_password")
_TOGETHER = (
    ("username", "password"), ("password", "username"), ("certificate", "key"), ("key", "certificate"),
    ("key_password", "key"),
)  # fmt: skip


def check_registry(file: Section, problems: Problems) -> None:
    """Note every broken rule."""
    registry = file.get("registry")
    url = registry.get("url") if registry is not None else None
    given = registry is not None and "url" in registry.positions
    by_schema = False
    for _, _, source in parts_of(file, "source", all_streams_of):
        if source.get("format") not in BY_SCHEMA:
            continue
        by_schema = True
        if not given:
            problems.add(
                source.at("format"),
                f"{source.name('format')}: {source.get('format')} is read by the schemas of a registry, and"
                " the file names none; add registry: {url: https://...} at the top level",
            )
    if registry is None or not registry.positions:
        return
    if not by_schema and None not in (one.get("source") for one in all_streams_of(file).values()):
        problems.add(
            registry.position,
            "registry has no effect: no source has format: avro or protobuf; remove it",
        )
    if not given:
        problems.add(registry.position, "registry lacks url; add the address that serializers have")
    _check_access(registry, url, problems)


def _check_access(registry: Section, url: str | None, problems: Problems) -> None:
    for key, other in _TOGETHER:
        if key in registry.positions and other not in registry.positions:
            problems.add(registry.at(key), f"registry.{key} stands without {other}; give both or neither")
    if url is None:
        return
    open_ = [one for one in map(urlsplit, url.split(",")) if one.scheme == "http"]
    for key in _TLS if open_ else ():
        if key in registry.positions:
            problems.add(
                registry.at(key), f"registry.{key} has no effect with http://; use https://, or remove it"
            )
    if "password" in registry.positions and any(
        one.netloc.rsplit(":", 1)[0] not in _LOOPBACK and one.netloc not in _LOOPBACK for one in open_
    ):
        problems.add(
            registry.at("url"), "registry.url: a password over http:// can be read by others; use https://"
        )
