"""Host reads: what makes the host wait for a value or a shape."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ..finding import Severity
from ..rules import DYNAMIC_SHAPE, HOST_RANDOM, HOST_READ, LIST_INDEX, MEMORY_ESCAPE, PRINTED
from .values import NUMBER, Kind, Value, is_mask_name

if TYPE_CHECKING:
    from .reader import Reader

_ASKS_FOR_CAPTURE = ("is_current_stream_capturing(", "is_tracing(")


def read(reader: Reader, node: ast.expr, message: str) -> None:
    """A value that is read."""
    reader.found(HOST_READ, node, message)


def truth(reader: Reader, node: ast.expr, value: Value, word: str) -> None:
    """A value whose truth is asked for."""
    text = f"{word} {reader.says(node)} reads a tensor"
    if value.on_device and any(guard in ast.unparse(node) for guard in _ASKS_FOR_CAPTURE):
        reader.found(HOST_READ, node, f"{text}, unless it is being captured", severity=Severity.ISLAND)
    else:
        taken(reader, node, value, text)


def taken(reader: Reader, node: ast.expr, value: Value, text: str) -> None:
    """A value that Python needs, if it is a tensor."""
    if value.on_device:
        read(reader, node, text)
    elif value.is_tensor and value.drawn:
        drawn(reader, node)


def drawn(reader: Reader, node: ast.expr) -> None:
    """A random number of the CPU that Python needs."""
    reader.found(HOST_RANDOM, node, f"{reader.says(node)} is drawn on the host, once for all replays")


def converted(reader: Reader, node: ast.Call, name: str, value: Value) -> Value:
    """``float(x)`` and its kin."""
    taken(reader, node, value, f"{reader.says(node)} reads a tensor")
    return NUMBER if name != "round" or not value.is_tensor else value


def formatted(reader: Reader, node: ast.expr, value: Value) -> None:
    """A value that becomes text."""
    if value.on_device and not reader.raising:
        reader.found(PRINTED, node, f"{reader.says(node)} becomes text, which reads the tensor")


def selected(reader: Reader, node: ast.expr, mask: ast.expr) -> None:
    """An index by a mask."""
    reader.found(
        DYNAMIC_SHAPE, node, f"the mask {reader.says(mask)} selects as many elements as it has true values"
    )


def is_mask(reader: Reader, part: ast.expr) -> bool:
    """Whether an index is a mask: known to be one, or of unknown type and called so."""
    value = reader.evaluate(part)
    if value.kind in (Kind.UNKNOWN, Kind.MAYBE) and isinstance(part, ast.Name):
        return is_mask_name(part.id)
    return value.is_tensor and value.mask


def shaped(reader: Reader, node: ast.expr, name: str, remedy: str | None = None) -> None:
    """A function whose result has a shape that depends on data."""
    reader.found(DYNAMIC_SHAPE, node, f"{name} gives a shape that depends on data", remedy=remedy)


def listed(reader: Reader, node: ast.expr, part: ast.expr, value: Value) -> None:
    """An index that is a list of numbers."""
    numbers = isinstance(part, ast.List) and bool(part.elts) and all(_is_number(each) for each in part.elts)
    if numbers or (isinstance(part, ast.Name) and value.kind is Kind.LIST):
        reader.found(LIST_INDEX, node, f"the list {reader.says(part)} is copied to the device as an index")


def escaped(reader: Reader, node: ast.expr, text: str) -> None:
    """A tensor that numpy or another library works on."""
    reader.found(MEMORY_ESCAPE, node, text)


def _is_number(node: ast.expr) -> bool:
    node = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(node, ast.Constant) and isinstance(node.value, int)


def narrowed(test: ast.expr) -> tuple[str, bool] | None:
    """A name that a test finds to be a tensor (True) or no tensor (False)."""
    negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    call = test.operand if isinstance(test, ast.UnaryOp) and negated else test
    if not isinstance(call, ast.Call) or not call.args or not isinstance(call.args[0], ast.Name):
        return None
    text = ast.unparse(call)
    if text.startswith("torch.is_tensor(") or (text.startswith("isinstance(") and text.endswith("Tensor)")):
        return call.args[0].id, not negated
    return None
