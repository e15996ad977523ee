"""Tensors that are made in a call: on the device by a kernel, or on the host and copied."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .. import rules
from . import reads
from .values import DRAWS, NUMBER, SIZED, Kind, Value

if TYPE_CHECKING:
    from .reader import Reader

_COPIES = frozenset({"tensor", "as_tensor", "from_numpy", "frombuffer", "Tensor", "FloatTensor", "LongTensor",
                     "BoolTensor"})  # fmt: skip


def made(reader: Reader, node: ast.Call, name: str, values: list[Value]) -> Value:
    """What a factory of ``torch`` gives."""
    device = next((each.value for each in node.keywords if each.arg == "device"), None)
    on_host = device is None or is_host(device)
    pinned = next((each.value for each in node.keywords if each.arg == "pin_memory"), None)
    if isinstance(pinned, ast.Constant) and pinned.value is True:
        reader.found(rules.PINNED_INSIDE, node, f"{reader.says(node)} allocates pinned memory")
    first = values[0] if values else NUMBER
    if name in _COPIES:
        return _from_values(reader, node, name, first, on_host)
    if name in SIZED:
        for part, value in zip(node.args, values, strict=False):
            if value.on_device and not (name == "full" and part is node.args[-1]):
                reads.read(reader, part, f"{reader.says(part)} is read as a size or bound")
    dtype = next((each.value for each in node.keywords if each.arg == "dtype"), None)
    mask = dtype is not None and ast.unparse(dtype) in ("torch.bool", "bool")
    return Value(Kind.TENSOR, mask=mask, host=on_host, drawn=name in DRAWS, local=True)


def copied(reader: Reader, node: ast.Call, values: list[Value]) -> None:
    """Python values that are copied to the device."""
    if values and values[0].kind is Kind.ARRAY:
        reader.found(rules.HOST_DATA, node, f"{reader.says(node)} copies an array to the device")
    else:
        reader.found(rules.CONSTANT, node, f"{reader.says(node)} copies Python values to the device")


def is_host(device: ast.expr) -> bool:
    """Whether a device is the CPU."""
    text = ast.unparse(device).replace('"', "'")
    return text in ("'cpu'", "torch.device('cpu')")


def moved(reader: Reader, node: ast.Call, base: Value, source: ast.expr) -> None:
    """A tensor made on the host that goes to the device."""
    text = f"{reader.says(source)} is made on the host and copied to the device"
    if base.constant:
        reader.found(rules.CONSTANT, node, text)
    elif base.kind is Kind.ARRAY:
        reader.found(rules.HOST_DATA, node, text)
    elif not _is_pinned(source):
        reader.found(rules.DEVICE_COPY, node, text, remedy="Give the factory device=... .")


def _from_values(reader: Reader, node: ast.Call, name: str, first: Value, on_host: bool) -> Value:
    """``torch.tensor``, ``torch.as_tensor``, ``torch.from_numpy``."""
    if first.kind is Kind.ARRAY or name in ("from_numpy", "frombuffer"):
        reader.found(rules.HOST_DATA, node, f"{reader.says(node)} makes a tensor of host memory")
        return Value(Kind.TENSOR, host=False, local=True)
    if first.is_tensor or first.kind is Kind.MAYBE:
        return first._replace(kind=Kind.TENSOR, argument="", local=True)
    plain = first.kind in (Kind.NUMBER, Kind.LIST, Kind.SHAPE, Kind.CONTAINER) or name != "as_tensor"
    if not on_host and plain:
        copied(reader, node, [first])
        return Value(Kind.TENSOR, local=True)
    host = on_host and plain
    alone = host and first.kind is Kind.NUMBER
    return Value(Kind.TENSOR, host=host, constant=plain, number=alone, local=True)


def _is_pinned(source: ast.expr) -> bool:
    return "pin_memory" in ast.unparse(source)
