"""Puts the new expressions into a file; every other character stays as it is."""

from __future__ import annotations

import ast
import io
from collections.abc import Sequence
from itertools import accumulate

from ...base import MisuseError
from ..rules import CONSTANT, DEVICE_COPY, DYNAMIC_SHAPE, SCALE_ON_SELF, Finding
from .constants import filled, placed, summed
from .scales import moved_scale
from .source import Edits, SourceText


def rewritten(text: str, findings: Sequence[Finding]) -> tuple[str, list[Finding]]:
    """Rewrite a file once; returns the new text, and the findings that are fixed in it.

    Raises:
        MisuseError: It is not Python.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise MisuseError(f"this is not Python: {error}") from error
    source = SourceText(text)
    edits: Edits = {}
    done: list[Finding] = []
    for finding in findings:
        change = _changed(tree, finding, source)
        if change is not None:
            edits |= change
            done.append(finding)
    for finding in findings if not done else ():  # the edits of a scale could overlap others
        change = moved_scale(tree, source, finding.where.line) if finding.code == SCALE_ON_SELF.code else None
        if change is not None:
            edits, done = change, [finding]
            break
    return _applied(text, edits), done


def _applied(text: str, edits: Edits) -> str:
    """The text after edits; one that lies in another is dropped."""
    starts = [0, *accumulate(len(line.encode()) for line in io.StringIO(text, newline=""))]
    ranges = {(starts[a - 1] + b, starts[c - 1] + d): new for ((a, b), (c, d)), new in edits.items()}
    data, parts, at = text.encode(), list[bytes](), 0
    for (start, end), new in sorted(ranges.items(), key=lambda each: (each[0][0], -each[0][1])):
        if start >= at:
            parts += [data[at:start], new.encode()]
            at = end
    return b"".join([*parts, data[at:]]).decode()


def _changed(tree: ast.Module, finding: Finding, source: SourceText) -> Edits | None:
    """The edit of the finding's expression; None if it cannot be fixed."""
    say, at = source.say, (finding.where.line, finding.column - 1)
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Call, ast.Subscript)) or (node.lineno, node.col_offset) != at:
            continue
        text: str | None = None
        if isinstance(node, ast.Call):
            if finding.code == CONSTANT.code:
                text = filled(node, say)
            elif finding.code == DEVICE_COPY.code:
                text = placed(node, say)
        elif finding.code == DYNAMIC_SHAPE.code and _is_summed(tree, node):
            text = summed(node, say)
        if text is not None and "#" not in say(node) and source.has(node):  # a comment inside would be lost
            return {source.place(node): text}
    return None


def _is_summed(tree: ast.Module, node: ast.Subscript) -> bool:
    """Whether the program only takes the sum of an expression."""
    for each in ast.walk(tree):
        match each:
            case ast.Call(ast.Attribute(value, "sum"), [], []) if value is node:
                return True
            case _:
                pass
    return False
