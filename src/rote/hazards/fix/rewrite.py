"""Puts new text into a file where the tree of its source says; every other character stays as it is."""

from __future__ import annotations

import ast
import io
from collections.abc import Mapping, Sequence
from itertools import accumulate

from ...base import MisuseError
from ..rules import CONSTANT, DEVICE_COPY, DYNAMIC_SHAPE, SCALE_ON_SELF, Finding
from .constants import Say, filled, placed, summed
from .scales import Scale, movable

Place = tuple[int, int]
"""A line, and a column in bytes, as ``ast`` counts them."""

Span = tuple[Place, Place]


def rewritten(text: str, findings: Sequence[Finding]) -> tuple[str, list[Finding]]:
    """Rewrite a file once; returns the new text, and the findings that are fixed in it.

    Raises:
        MisuseError: It is not Python.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise MisuseError(f"this is not Python: {error}") from error

    def say(node: ast.AST) -> str:
        return ast.get_source_segment(text, node) or ""

    lines = [line.encode() for line in io.StringIO(text, newline="")]
    new: dict[Span, str] = {}
    done: list[Finding] = []
    for finding in findings:
        change = _changed(tree, finding, say)
        if change is not None:
            new[change[0]] = change[1]
            done.append(finding)
    if done:
        return _spliced(lines, new), done
    for finding in findings:
        scale = movable(tree, finding.where.line) if finding.code == SCALE_ON_SELF.code else None
        if scale is not None and all(_is_alone(lines, each) for each in (scale.statement, scale.registered)):
            return _spliced(lines, _as_buffer(lines, scale)), [finding]
    return text, []


def _changed(tree: ast.Module, finding: Finding, say: Say) -> tuple[Span, str] | None:
    """The place of the finding's expression, and what replaces it; None if nothing does."""
    at = (finding.where.line, finding.column - 1)
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
        if text is not None and "#" not in say(node):  # a comment inside would be lost
            return _span(node), text
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


def _as_buffer(lines: Sequence[bytes], scale: Scale) -> dict[Span, str]:
    """What makes an attribute of a class a buffer that ``forward`` updates, and reads by its local name."""
    register = f'self.register_buffer("{scale.attribute}", torch.ones(()), persistent=False)'
    update = f"{scale.self_name}.{scale.attribute}.copy_({scale.local}.detach())"
    new = {_span(each): scale.local for each in (scale.statement.targets[0], *scale.reads)}
    new[_behind(lines, scale.statement)] = _line(lines, scale.statement, update)
    if scale.made:
        new[_span(scale.registered)] = register
    else:
        new[_behind(lines, scale.registered)] = _line(lines, scale.registered, register)
    return new


def _behind(lines: Sequence[bytes], statement: ast.stmt) -> Span:
    """The place behind a statement and its comment."""
    last = statement.end_lineno or 0
    place = last, len(lines[last - 1].rstrip(b"\r\n"))
    return place, place


def _line(lines: Sequence[bytes], statement: ast.stmt, text: str) -> str:
    """A text as another line, indented like a statement; lines end as the first one does."""
    end = lines[0][len(lines[0].rstrip(b"\r\n")) :]
    return (end + lines[statement.lineno - 1][: statement.col_offset]).decode() + text


def _is_alone(lines: Sequence[bytes], statement: ast.stmt) -> bool:
    """Whether nothing but a comment shares the lines of a statement."""
    (first, column), (last, end) = _span(statement)
    behind = lines[last - 1][end:].strip()
    return not lines[first - 1][:column].strip() and behind[:1] in (b"", b"#")


def _span(node: ast.expr | ast.stmt) -> Span:
    return (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)


def _spliced(lines: Sequence[bytes], new: Mapping[Span, str]) -> str:
    """The text with others at the given places. What lies inside of a replaced expression goes with it."""
    starts, text = [*accumulate(map(len, lines), initial=0)], b"".join(lines)
    offsets = {(starts[a - 1] + b, -starts[c - 1] - d): put for ((a, b), (c, d)), put in new.items()}
    parts: list[bytes] = []
    at = 0
    for (start, end), put in sorted(offsets.items()):
        if start >= at:
            parts += [text[at:start], put.encode()]
            at = -end
    return b"".join([*parts, text[at:]]).decode()
