"""How much there is to read in a folder of Python: ``python -m benchmarks.size``."""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

_BETWEEN = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def documentation(tree: ast.Module) -> Iterator[int]:
    """The lines of docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            yield from range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)


def code(text: str, tree: ast.Module) -> int:
    """How many lines are neither blank nor comment nor docstring."""
    lines = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _BETWEEN:
            lines |= {*range(token.start[0], token.end[0] + 1)}
    return len(lines - {*documentation(tree)})


def lengths(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The lines and the name of each function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or 0) - node.lineno + 1, node.name


def main(folder: str) -> None:
    """Print the figures of a folder."""
    texts = [path.read_text(encoding="utf-8") for path in Path(folder).rglob("*.py")]
    trees = [ast.parse(text) for text in texts]
    functions = sorted(one for tree in trees for one in lengths(tree))
    lines = [len(text.splitlines()) for text in texts]
    written = sum(code(text, tree) for text, tree in zip(texts, trees, strict=True))
    print(f"{len(texts)} files, {sum(lines)} lines, {written} of them code, {max(lines)} in one file")
    middle, most = functions[len(functions) // 2][0], functions[len(functions) * 95 // 100][0]
    print(f"{len(functions)} functions: median {middle} lines, 95 % up to {most}, longest {functions[-1]}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "operators/eventveil")
