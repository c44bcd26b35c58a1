"""Changing single settings of a topology's text, which stays as it is otherwise, comments included."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from eventveil.topology.problems import START, Position

Path = tuple[str, ...]


class Edits:
    """Changes of a YAML text that is known to be a valid topology. Settings are given by their path."""

    def __init__(self, text: str) -> None:
        #: As it is now.
        self.text = text

    def position(self, path: Sequence[str]) -> Position:
        """Where a setting stands; where it is left out, the innermost section around it that there is."""
        node, at = self._root(), START
        for name in path:
            found = _child(node, name)
            if found is None:
                break
            key, node = found
            at = Position(key.start_mark.line + 1, key.start_mark.column + 1)
        return at

    def place(self, file: str, path: Sequence[str]) -> str:
        """The same as terminals and editors know it, ``file`` being where the text is from."""
        at = self.position(path)
        return f"{file}:{at.line}:{at.column}"

    def written(self, path: Sequence[str]) -> str | None:
        """A setting or section, name and value, as it is written; None where it is left out.

        Comments behind the last line of a section are those of the next one.
        """
        found: tuple[yaml.Node, yaml.Node] | None = None
        node = self._root()
        for name in path:
            found = _child(node, name)
            if found is None:
                return None
            _, node = found
        assert found is not None, "a path has a name"
        key, value = found
        lines = self.text[key.start_mark.index : value.end_mark.index].rstrip().split("\n")
        while lines[-1].lstrip().startswith("#") or not lines[-1].strip():
            lines.pop()
        return "\n".join(lines)

    def set(self, path: Sequence[str], value: str) -> None:
        """Give a setting a value, as YAML has it; its section must be there."""
        *sections, name = path
        section = self._section(sections)
        if (found := _child(section, name)) is not None:
            _, old = found
            self._replace(old.start_mark.index, old.end_mark.index, value)
            return
        first, _ = section.value[0]
        start = first.start_mark.index
        behind = ", " if section.flow_style else "\n" + " " * first.start_mark.column
        self._replace(start, start, f"{name}: {value}{behind}")

    def remove(self, path: Sequence[str]) -> None:
        """Leave a setting out; nothing happens if it is not there, or alone in its section."""
        *sections, name = path
        section = self._section(sections)
        names = [key.value for key, _ in section.value]
        if name not in names or len(names) == 1:
            return
        at = names.index(name)
        (key, value) = section.value[at]
        if section.flow_style:
            last = at == len(names) - 1
            start = section.value[at - 1][1].end_mark.index if last else key.start_mark.index
            end = value.end_mark.index if last else section.value[at + 1][0].start_mark.index
        else:
            start = self.text.rfind("\n", 0, key.start_mark.index) + 1
            end = self.text.find("\n", value.end_mark.index) + 1 or len(self.text)
        self._replace(start, end, "")

    def comment(self, lines: Sequence[str]) -> None:
        """Put comments, of one line each, at the head; below the first of them if it is there already."""
        first, *others = (f"# {line}\n" for line in lines)
        if not self.text.startswith(first):
            self._replace(0, 0, first)
        self._replace(len(first), len(first), "".join(one for one in others if one not in self.text))

    def _replace(self, start: int, end: int, text: str) -> None:
        self.text = self.text[:start] + text + self.text[end:]

    def _root(self) -> yaml.Node:
        # The Python parser: marks of libyaml count bytes.
        root = yaml.compose(self.text, Loader=yaml.SafeLoader)
        assert root is not None, "a valid topology is not empty"
        return root

    def _section(self, path: Sequence[str]) -> yaml.MappingNode:
        node = self._root()
        for name in path:
            found = _child(node, name)
            assert found is not None, f"a valid topology has {'.'.join(path)}"
            _, node = found
        assert isinstance(node, yaml.MappingNode)
        return node


def _child(node: yaml.Node, name: str) -> tuple[yaml.Node, yaml.Node] | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next(((key, value) for key, value in node.value if key.value == name), None)
