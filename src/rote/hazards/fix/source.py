"""The text of a file by the places of its nodes, in lines from 1 and bytes from 0 as ``ast`` counts."""

from __future__ import annotations

import ast
import io

Place = tuple[int, int]
Edits = dict[tuple[Place, Place], str]
"""New texts by the places, from start to end, that they replace."""


class SourceText:
    """The text of a file."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lines = [line.encode() for line in io.StringIO(text, newline="")]
        first = self._lines[0] if self._lines else b""
        self._line_end = first[len(first.rstrip(b"\r\n")) :] or b"\n"

    def say(self, node: ast.AST) -> str:
        """The source text of a node."""
        return ast.get_source_segment(self._text, node) or ""

    def place(self, node: ast.expr | ast.stmt) -> tuple[Place, Place]:
        """Start and end of a node."""
        return (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)

    def has(self, node: ast.expr) -> bool:
        """Whether a node is where it says: before Python 3.12 places inside f-strings can be wrong."""
        try:
            return ast.unparse(ast.parse(f"({self.say(node)})", mode="eval")) == ast.unparse(node)
        except SyntaxError:
            return False

    def is_alone(self, node: ast.stmt) -> bool:
        """Whether a statement has its lines to itself, but for a comment."""
        (first, start), (last, end) = self.place(node)
        after = self._lines[last - 1][end:].strip()
        return not self._lines[first - 1][:start].strip() and (not after or after.startswith(b"#"))

    def below(self, node: ast.stmt, text: str) -> Edits:
        """The edit that puts another statement below one that is alone."""
        (first, start), (last, _) = self.place(node)
        place = (last, len(self._lines[last - 1].rstrip(b"\r\n")))
        return {(place, place): (self._line_end + self._lines[first - 1][:start]).decode() + text}
