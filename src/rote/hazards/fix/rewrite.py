"""Puts the new expressions into a file; every other character stays as it is."""

from __future__ import annotations

import ast
import io
from collections.abc import Mapping, Sequence

import libcst as cst
from libcst.metadata import CodePosition, CodeRange, MetadataWrapper, PositionProvider

from ...base import MisuseError
from ..rules import CONSTANT, DEVICE_COPY, DYNAMIC_SHAPE, SCALE_ON_SELF, Finding
from .constants import Say, filled, placed, summed
from .scales import Scale, movable

Place = tuple[int, int]


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

    new: dict[tuple[Place, Place], str] = {}
    done: list[Finding] = []
    for finding in findings:
        change = _changed(tree, finding, say)
        if change is not None:
            new[change[0]] = change[1]
            done.append(finding)
    if done:
        return MetadataWrapper(cst.parse_module(text)).visit(_Expressions(new, text)).code, done
    for finding in findings:
        scale = movable(tree, finding.where.line) if finding.code == SCALE_ON_SELF.code else None
        if scale is not None:
            transformer = _Scales(scale)
            after = MetadataWrapper(cst.parse_module(text)).visit(transformer).code
            if transformer.edited == {scale.line, scale.registered}:
                return after, [finding]
    return text, []


def _changed(tree: ast.Module, finding: Finding, say: Say) -> tuple[tuple[Place, Place], str] | None:
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
            return (at, (node.end_lineno or 0, node.end_col_offset or 0)), text
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


class _Expressions(cst.CSTTransformer):
    """Replaces expressions by their places."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, new: Mapping[tuple[Place, Place], str], text: str) -> None:
        super().__init__()
        self._new = new
        self._lines = list(io.StringIO(text, newline=""))

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        return self._replaced(original_node, updated_node)

    def leave_Subscript(  # noqa: N802
        self, original_node: cst.Subscript, updated_node: cst.Subscript
    ) -> cst.BaseExpression:
        return self._replaced(original_node, updated_node)

    def _replaced(self, original: cst.BaseExpression, updated: cst.BaseExpression) -> cst.BaseExpression:
        place = self.get_metadata(PositionProvider, original)
        if not isinstance(place, CodeRange):
            return updated
        text = self._new.get((self._in_bytes(place.start), self._in_bytes(place.end)))
        if text is None:
            return updated
        return cst.parse_expression(text).with_changes(lpar=updated.lpar, rpar=updated.rpar)

    def _in_bytes(self, at: CodePosition) -> Place:
        """A place with its column as ``ast`` counts it; libcst counts characters."""
        return at.line, len(self._lines[at.line - 1][: at.column].encode())


class _Scales(cst.CSTTransformer):
    """Makes an attribute of a class a buffer that ``forward`` updates.

    A statement that shares its line is left alone; ``edited`` has the lines of those that were edited.
    """

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        self._scale = scale
        self.edited: set[int] = set()

    def leave_SimpleStatementLine(  # noqa: N802
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.FlattenSentinel[cst.SimpleStatementLine]:
        line, scale = self._line(original_node), self._scale
        if line not in (scale.line, scale.registered) or len(updated_node.body) > 1:
            return updated_node
        self.edited.add(line)
        if line == scale.line:
            update = f"{scale.self_name}.{scale.attribute}.copy_({scale.local}.detach())"
            return cst.FlattenSentinel([self._local(updated_node), _statement(update)])
        register = _statement(f'self.register_buffer("{scale.attribute}", torch.ones(()), persistent=False)')
        if scale.made:
            return updated_node.with_changes(body=register.body)
        return cst.FlattenSentinel([updated_node, register])

    def leave_Attribute(  # noqa: N802
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        """After the assignment, ``forward`` reads the local name."""
        scale = self._scale
        own = (
            isinstance(updated_node.value, cst.Name) and updated_node.value.value == scale.self_name
            and updated_node.attr.value == scale.attribute
        )  # fmt: skip
        if own and scale.line < self._line(original_node) <= scale.end:
            return cst.Name(scale.local, lpar=updated_node.lpar, rpar=updated_node.rpar)
        return updated_node

    def _line(self, node: cst.CSTNode) -> int:
        place = self.get_metadata(PositionProvider, node)
        return place.start.line if isinstance(place, CodeRange) else 0

    def _local(self, node: cst.SimpleStatementLine) -> cst.SimpleStatementLine:
        """``scale = value`` instead of ``self._scale = value``; its comment stays."""
        assign = node.body[0]
        if not isinstance(assign, cst.Assign):
            return node
        target = assign.targets[0].with_changes(target=cst.Name(self._scale.local))
        return node.with_changes(body=[assign.with_changes(targets=[target])])


def _statement(text: str) -> cst.SimpleStatementLine:
    return cst.SimpleStatementLine([cst.Expr(cst.parse_expression(text))])
