"""``${VARIABLE}``, ``${VARIABLE:default}`` and ``${file:path}`` in the values of a topology.

``$$`` stands for one dollar sign. What is put in is never expanded again. Secrets are read from files only
below ``kafka.security`` and ``registry``, whose values are never shown in a message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from eventveil.topology.document import Broken, Items, Node, Scalar, Table
from eventveil.topology.problems import Problems

#: The sections with secrets, and their settings that are none.
SECRETS: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("kafka", "security"): ("protocol", "mechanism"),
    # An address that is refused may be so for the password in it.
    ("registry",): (),
}
_PART = re.compile(r"\$\$|\$\{([^}]*)(\}?)")
# What shells put between a name and a default: taken literally, it would become part of the value.
_SHELL = re.compile(r"[-=?+]")
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::(.*))?", re.DOTALL)


class _CannotExpandError(Exception):
    """A part cannot be expanded; the text says why and what to do."""


def expand(
    root: Node, environ: Mapping[str, str], read_secret: Callable[[str], str], problems: Problems
) -> Node:
    """The tree with every value expanded; a value that cannot be becomes Broken and is a problem.

    ``read_secret`` gives the text of a file and raises OSError or ValueError.
    """

    def visit(node: Node, path: tuple[str, ...]) -> Node:
        if isinstance(node, Table):
            entries = {key: visit(value, (*path, key)) for key, value in node.entries.items()}
            return Table(node.position, entries, node.keys)
        if isinstance(node, Items):
            return Items(node.position, [visit(item, path) for item in node.items])
        return scalar(node, path) if isinstance(node, Scalar) else node

    def scalar(node: Scalar, path: tuple[str, ...]) -> Scalar | Broken:
        section = next((one for one in SECRETS if path[: len(one)] == one), None)
        protected = section is not None
        secret = section is not None and path not in {(*section, setting) for setting in SECRETS[section]}
        if "$" not in node.text:
            return Scalar(node.position, node.text, node.quoted, secret=secret)
        try:
            text = _PART.sub(
                lambda part: _replace(part, environ, read_secret if protected else None), node.text
            )
            text.encode()
        except _CannotExpandError as error:
            problems.add(node.position, str(error))
        except UnicodeEncodeError:
            problems.add(node.position, "the value put in by ${...} is not UTF-8; set it to UTF-8 text")
        else:
            put_in = any(part.group() != "$$" for part in _PART.finditer(node.text))
            return Scalar(
                node.position, text, node.quoted, expanded=put_in, secret=secret or (protected and put_in)
            )
        return Broken(node.position)

    return visit(root, ())


def _replace(
    part: re.Match[str], environ: Mapping[str, str], read_secret: Callable[[str], str] | None
) -> str:
    if part.group() == "$$":
        return "$"
    inner, closed = part.groups()
    if not closed:
        raise _CannotExpandError(
            "${ has no closing }; write ${VARIABLE}, ${VARIABLE:default}, or $${ for the characters ${"
        )
    if inner.startswith("file:"):
        return _secret(inner.removeprefix("file:"), read_secret)
    variable = _VARIABLE.fullmatch(inner)
    if variable is None:
        raise _CannotExpandError(
            "${...} does not hold a variable name; write ${VARIABLE} or ${VARIABLE:default}"
        )
    name, default = variable.groups()
    if default and _SHELL.match(default):
        raise _CannotExpandError(
            f"${{...:{default[0]}...}} is shell syntax; write ${{{name}:default}},"
            f" and give a default that begins with {default[0]} from outside, by setting {name}"
        )
    value = environ.get(name, default)
    if value is None:
        raise _CannotExpandError(
            f"environment variable {name} is not set; set it, or give a default as in ${{{name}:value}}"
        )
    return value


def _secret(path: str, read_secret: Callable[[str], str] | None) -> str:
    if read_secret is None:
        raise _CannotExpandError(
            "${file:...} is for secrets below kafka.security and registry only; write the value or use"
            " ${VARIABLE}"
        )
    try:
        return read_secret(path)
    except OSError as error:
        raise _CannotExpandError(
            f"secret file {path} cannot be read ({error.strerror}); check the path and its permissions"
        ) from None
    except ValueError as error:
        raise _CannotExpandError(f"secret file {path}: {error}") from None
