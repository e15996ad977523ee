"""Puts the new expressions into a file; every other character stays as it is."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider

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
    lines = text.splitlines()

    def say(node: ast.AST) -> str:
        return ast.get_source_segment(text, node) or ""

    new: dict[tuple[Place, Place], str] = {}
    done: list[Finding] = []
    scale: Scale | None = None
    for finding in findings:
        line = finding.where.line
        if not lines[line - 1 : line] or not lines[line - 1].isascii():  # ast counts columns in bytes
            continue
        if finding.code == SCALE_ON_SELF.code:
            if scale is None and (scale := movable(tree, line)) is not None:
                done.append(finding)
        elif (change := _changed(tree, finding, say)) is not None:
            new[change[0]] = change[1]
            done.append(finding)
    if not done:
        return text, []
    wrapper = MetadataWrapper(cst.parse_module(text))
    module = wrapper.visit(_Expressions(new))
    if scale is not None and not new:
        module = wrapper.visit(_Scales(scale))
    elif scale is not None:
        done = [finding for finding in done if finding.code != SCALE_ON_SELF.code]  # the next round
    return module.code, done


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

    def __init__(self, new: Mapping[tuple[Place, Place], str]) -> None:
        super().__init__()
        self._new = new

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
        text = self._new.get(((place.start.line, place.start.column), (place.end.line, place.end.column)))
        if text is None:
            return updated
        return cst.parse_expression(text).with_changes(lpar=updated.lpar, rpar=updated.rpar)


class _Scales(cst.CSTTransformer):
    """Makes an attribute of a class a buffer that ``forward`` updates."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        self._scale = scale
        self._classes: list[str] = []
        self._functions: list[str] = []

    def visit_ClassDef(self, node: cst.ClassDef) -> None:  # noqa: N802
        self._classes.append(node.name.value)

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:  # noqa: N802
        self._classes.pop()
        return updated_node

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:  # noqa: N802
        self._functions.append(node.name.value)

    def leave_FunctionDef(  # noqa: N802
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef:
        self._functions.pop()
        return updated_node

    def leave_SimpleStatementLine(  # noqa: N802
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.FlattenSentinel[cst.SimpleStatementLine]:
        if not self._here("__init__") and not self._here("forward"):
            return updated_node
        place = self.get_metadata(PositionProvider, original_node)
        line = place.start.line if isinstance(place, CodeRange) else 0
        scale = self._scale
        if self._here("forward") and line == scale.line:
            update = f"{scale.self_name}.{scale.attribute}.copy_({scale.local}.detach())"
            return cst.FlattenSentinel([self._local(updated_node), _statement(update)])
        if self._here("__init__"):
            register = _statement(
                f'self.register_buffer("{scale.attribute}", torch.ones(()), persistent=False)'
            )
            if line == scale.made:
                return updated_node.with_changes(body=register.body)
            if not scale.made and _is_super(updated_node):
                return cst.FlattenSentinel([updated_node, register])
        return updated_node

    def leave_Attribute(  # noqa: N802
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        """After the assignment, ``forward`` reads the local name."""
        place = self.get_metadata(PositionProvider, original_node)
        later = isinstance(place, CodeRange) and place.start.line > self._scale.line
        own = (
            isinstance(updated_node.value, cst.Name) and updated_node.value.value == self._scale.self_name
            and updated_node.attr.value == self._scale.attribute
        )  # fmt: skip
        if later and own and self._here("forward"):
            return cst.Name(self._scale.local, lpar=updated_node.lpar, rpar=updated_node.rpar)
        return updated_node

    def _here(self, function: str) -> bool:
        return self._classes[-1:] == [self._scale.owner] and self._functions[-1:] == [function]

    def _local(self, node: cst.SimpleStatementLine) -> cst.SimpleStatementLine:
        """``scale = value`` instead of ``self._scale = value``; its comment stays."""
        assign = node.body[0]
        if not isinstance(assign, cst.Assign):
            return node
        target = assign.targets[0].with_changes(target=cst.Name(self._scale.local))
        return node.with_changes(body=[assign.with_changes(targets=[target])])


def _statement(text: str) -> cst.SimpleStatementLine:
    return cst.SimpleStatementLine([cst.Expr(cst.parse_expression(text))])


def _is_super(node: cst.SimpleStatementLine) -> bool:
    return cst.Module([]).code_for_node(node).strip().startswith("super().__init__(")
