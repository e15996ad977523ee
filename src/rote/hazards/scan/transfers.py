"""Transfers between host and device: values and shapes that are read, Python data that is copied."""

from __future__ import annotations

import ast

from .. import rules
from ..rules import Severity
from .scope import Scope
from .syntax import is_literal, keyword, text_of
from .values import DRAWS, NUMBER, TENSOR, UNKNOWN, Inferred, Type, is_mask_name

_SIZED = frozenset({"arange", "zeros", "ones", "empty", "rand", "randn", "full", "linspace"})
"""Factories whose sizes and bounds are read on the host."""
_ASKS_FOR_CAPTURE = ("is_current_stream_capturing(", "is_tracing(")
_COPIES = frozenset({
    "tensor", "as_tensor", "from_numpy", "frombuffer", "Tensor", "FloatTensor", "LongTensor", "BoolTensor",
})  # fmt: skip


# ------------------------------------------------------------------ from the device


def tested(scope: Scope, node: ast.expr, word: str, value: Inferred | None = None) -> None:
    """A value whose truth is tested; unless given, it is evaluated here."""
    value = scope.evaluate(node) if value is None else value
    text = f"{word} {text_of(node)} reads a tensor"
    if value.on_device and any(guard in ast.unparse(node) for guard in _ASKS_FOR_CAPTURE):
        scope.report(rules.HOST_READ, node, f"{text}, unless it is being captured", severity=Severity.ISLAND)
    else:
        taken(scope, node, value, text)


def taken(scope: Scope, node: ast.expr, value: Inferred, text: str) -> None:
    """A value that Python needs: a host read if it is a tensor."""
    if value.on_device:
        scope.report(rules.HOST_READ, node, text)
    elif value.is_tensor and value.drawn:
        drawn(scope, node)


def drawn(scope: Scope, node: ast.expr) -> None:
    """A random number of the CPU that Python needs."""
    scope.found(rules.HOST_RANDOM, node, "is drawn on the host, once for all replays")


def formatted(scope: Scope, node: ast.expr, value: Inferred) -> None:
    """A value that becomes text."""
    if value.on_device and not scope.raising:
        scope.found(rules.PRINTED, node, "becomes text, which reads the tensor")


def shaped(scope: Scope, node: ast.expr, name: str, remedy: str | None = None) -> None:
    """A result whose shape depends on data."""
    scope.report(rules.DYNAMIC_SHAPE, node, f"{name} gives a shape that depends on data", remedy=remedy)


def repeated(scope: Scope, node: ast.Call, values: list[Inferred], alone: bool = False) -> None:
    """``repeat_interleave``: of a tensor of counts the host has to know the sum."""
    given = keyword(node, "repeats")
    counts = scope.evaluate(given) if given is not None else values[0] if values else UNKNOWN
    if keyword(node, "output_size") is None and ((alone and given is None) or counts.on_device):
        shaped(scope, node, "repeat_interleave() without output_size", "Give output_size=... .")


def selected(scope: Scope, node: ast.expr, mask: ast.expr) -> None:
    """An index by a mask."""
    text = f"the mask {text_of(mask)} selects as many elements as it has true values"
    scope.report(rules.DYNAMIC_SHAPE, node, text)


def is_mask(scope: Scope, part: ast.expr) -> bool:
    """Whether an index is a mask: known to be one, or of unknown type with the name of one."""
    value = scope.evaluate(part)
    if value.type in (Type.UNKNOWN, Type.MAYBE) and isinstance(part, ast.Name):
        return is_mask_name(part.id)
    return value.is_mask


# ------------------------------------------------------------------ to the device


def listed(scope: Scope, node: ast.expr, part: ast.expr, value: Inferred) -> None:
    """An index that is a list of numbers."""
    numbers = isinstance(part, ast.List) and bool(part.elts) and all(map(_is_number, part.elts))
    if numbers or (isinstance(part, ast.Name) and value.type is Type.LIST):
        scope.report(rules.LIST_INDEX, node, f"the list {text_of(part)} is copied to the device as an index")


def _is_number(node: ast.expr) -> bool:
    node = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(node, ast.Constant) and isinstance(node.value, int)


def is_host(device: ast.expr) -> bool:
    """Whether a device is the CPU."""
    return ast.unparse(device).replace('"', "'") in ("'cpu'", "torch.device('cpu')")


def copied(scope: Scope, node: ast.Call, values: list[Inferred]) -> None:
    """Python values that are copied to the device."""
    if values and values[0].type is Type.ARRAY:
        scope.found(rules.HOST_DATA, node, "copies an array to the device")
    else:
        scope.found(rules.CONSTANT, node, "copies Python values to the device")


def moved(scope: Scope, node: ast.Call, base: Inferred, source: ast.expr) -> None:
    """A tensor made on the host that goes to the device."""
    text = f"{text_of(source)} is made on the host and copied to the device"
    if base.constant:
        scope.report(rules.CONSTANT, node, text)
    elif "pin_memory" not in ast.unparse(source):
        scope.report(rules.DEVICE_COPY, node, text, remedy="Give the factory device=... .")


def factory(scope: Scope, node: ast.Call, name: str, values: list[Inferred]) -> Inferred:
    """What a factory of ``torch`` makes: by a kernel on the device, or on the host."""
    device, dtype = keyword(node, "device"), keyword(node, "dtype")
    on_host = device is None or is_host(device)
    if is_literal(keyword(node, "pin_memory"), True):
        scope.found(rules.PINNED_INSIDE, node, "allocates pinned memory")
    if name in _COPIES:
        return _from_values(scope, node, name, values[0] if values else NUMBER, on_host)
    if name in _SIZED:
        for part, value in zip(node.args, values, strict=False):
            if value.on_device and not (name == "full" and part is node.args[-1]):
                scope.found(rules.HOST_READ, part, "is read as a size or bound")
    mask = dtype is not None and ast.unparse(dtype) in ("torch.bool", "bool")
    return TENSOR._replace(mask=mask, host=on_host, drawn=name in DRAWS)


def _from_values(scope: Scope, node: ast.Call, name: str, first: Inferred, on_host: bool) -> Inferred:
    """``torch.tensor``, ``torch.as_tensor``, ``torch.from_numpy``."""
    if first.type is Type.ARRAY or name in ("from_numpy", "frombuffer"):
        scope.found(rules.HOST_DATA, node, "makes a tensor of host memory")
        return TENSOR
    if first.may_be_tensor:
        return first._replace(type=Type.TENSOR, argument="", local=True)
    plain = first.type in (Type.NUMBER, Type.LIST, Type.SHAPE, Type.CONTAINER) or name != "as_tensor"
    if not on_host and plain:
        copied(scope, node, [first])
        return TENSOR
    host = on_host and plain
    return TENSOR._replace(host=host, constant=plain, number=host and first.type is Type.NUMBER)
