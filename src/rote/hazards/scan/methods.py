"""Calls of methods: of tensors, modules, optimizers, streams, containers."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .. import rules
from . import factories, reads, stores
from .libraries import library_method
from .names import last_name, self_attribute
from .program import Reach
from .values import (
    DRAWS,
    HOST_METHODS,
    MASKS,
    MAYBE,
    NUMBER,
    SHAPE,
    SHARED_NAMES,
    TENSOR,
    TENSOR_NAMES,
    UNKNOWN,
    Kind,
    Value,
)

if TYPE_CHECKING:
    from .reader import Reader

_GROWS = frozenset({"append", "extend", "insert", "appendleft", "popleft", "setdefault"})
_CHANGES = _GROWS | {"update", "pop", "add", "clear", "remove", "popitem", "discard", "put"}
_LOGS = frozenset({"debug", "info", "warning", "warn", "error", "critical", "exception", "log"})
_WRITERS = frozenset({"add_scalar", "add_histogram", "add_image", "log_metrics", "log_dict"})
_RESHAPES = frozenset({
    "t_", "transpose_", "unsqueeze_", "squeeze_", "swapaxes_", "swapdims_", "resize_", "resize_as_", "set_",
    "as_strided_",
})  # fmt: skip
_HARMLESS = frozenset({"requires_grad_", "detach_", "share_memory_", "retain_grad"})
_HOOKS = frozenset({
    "register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook",
    "register_full_backward_pre_hook", "register_backward_hook",
})  # fmt: skip
_SHAPED = {
    "nonzero": None, "argwhere": None, "masked_select": None, "unique": None, "unique_consecutive": None,
    "bincount": None,
}  # fmt: skip
_ON_THE_WAY = frozenset({"cpu", "detach", "float", "double", "numpy", "contiguous"})
_LEADS_TO_READ = frozenset({"numpy", "item", "tolist"})


def method(reader: Reader, node: ast.Call, func: ast.Attribute) -> Value:
    """What ``base.name(...)`` gives; reports what is wrong with it."""
    name = func.attr
    if name in _LEADS_TO_READ:
        return _read(reader, node, func)
    base = reader.evaluate(func.value)
    values = [reader.evaluate(part) for part in node.args]
    for each in node.keywords:
        reader.evaluate(each.value)
    library_method(reader, node, func, base, values)
    if base.kind in (Kind.TENSOR, Kind.MAYBE, Kind.UNKNOWN):
        found = _of_tensor(reader, node, func, base, values)
        if found is not None:
            return found
    _of_object(reader, node, func, base, values)
    if name in _LOGS and "log" in last_name(func.value).lower():
        for part, value in zip(node.args, values, strict=True):
            reads.formatted(reader, part, value)
        return NUMBER
    if name in _WRITERS or (name == "format" and isinstance(func.value, ast.Constant)):
        for part, value in zip(node.args, values, strict=True):
            reads.formatted(reader, part, value)
        return NUMBER
    if name in _CHANGES and (name in _GROWS or base.kind in (Kind.CONTAINER, Kind.LIST)):
        stores.contained(reader, node, func.value, base)
        return UNKNOWN
    if base.kind is Kind.MODULE:
        return TENSOR if name in ("forward", "__call__") else UNKNOWN
    return _of_self(reader, node, func, values)


def repeated(reader: Reader, node: ast.Call, values: list[Value], alone: bool = False) -> None:
    """``repeat_interleave``: with a tensor of counts the host has to know their sum."""
    given = {each.arg: each.value for each in node.keywords}
    counts = reader.evaluate(given["repeats"]) if "repeats" in given else values[0] if values else UNKNOWN
    if "output_size" not in given and ((alone and "repeats" not in given) or counts.on_device):
        reads.shaped(reader, node, "repeat_interleave() without output_size", "Give output_size=... .")


def _read(reader: Reader, node: ast.Call, func: ast.Attribute) -> Value:
    """``x.item()``, ``x.tolist()``, ``x.numpy()``, with what leads to them (``x.detach().cpu()``)."""
    source = func.value
    while (
        isinstance(source, ast.Call) and isinstance(source.func, ast.Attribute)
        and source.func.attr in _ON_THE_WAY and not source.args
    ):  # fmt: skip
        source = source.func.value
    value = reader.evaluate(source)
    result = Value(Kind.ARRAY, local=True) if func.attr == "numpy" else NUMBER
    if func.attr == "tolist":
        result = Value(Kind.LIST, local=True)
    if value.kind not in (Kind.TENSOR, Kind.MAYBE, Kind.UNKNOWN) or node.args:
        return result
    if value.is_tensor and value.host:
        if value.drawn:
            reads.drawn(reader, node)
        return result
    text = reader.says(node)
    if func.attr == "item":
        reads.read(reader, node, f"{text} reads a tensor")
    elif func.attr == "tolist":
        reader.found(rules.LIST_READ, node, f"{text} reads all values of a tensor")
    else:
        reads.escaped(reader, node, f"{text} hands the memory of a tensor to numpy")
    return result


def _of_tensor(
    reader: Reader, node: ast.Call, func: ast.Attribute, base: Value, values: list[Value]
) -> Value | None:
    """A method of what may be a tensor; None if it is none of a tensor's."""
    name = func.attr
    known = base.kind is not Kind.UNKNOWN
    if name in _SHAPED and (known or name in ("nonzero", "masked_select", "argwhere")):
        reads.shaped(reader, node, f"{name}()", _SHAPED[name])
        return TENSOR
    if name in ("cpu", "cuda", "to", "type_as"):
        return _moved(reader, node, func, base, values)
    if base.kind is Kind.MAYBE and (
        name in TENSOR_NAMES - SHARED_NAMES or name in ("register_hook", "retain_grad")
    ):
        base = TENSOR  # nothing else has such methods
    if not base.is_tensor:
        return None
    if name in ("size", "stride"):
        return NUMBER if node.args else SHAPE
    if name in HOST_METHODS or name.startswith("is_"):
        if name == "register_hook":
            reader.found(rules.GRADIENT_HOOK, node, f"{reader.says(func)}() runs Python in the backward pass")
        return NUMBER
    if name == "retain_grad":
        reader.found(rules.GRADIENT_HOOK, node, f"{reader.says(node)} keeps a gradient by a hook")
        return NUMBER
    if name in ("equal", "allclose", "is_nonzero", "__bool__"):
        reads.read(reader, node, f"{reader.says(node)} gives a Python value")
        return NUMBER
    return _operation(reader, node, func, base, values)


def _operation(
    reader: Reader, node: ast.Call, func: ast.Attribute, base: Value, values: list[Value]
) -> Value:
    name = func.attr
    if name == "repeat_interleave":
        repeated(reader, node, values)
    elif name in ("to_sparse", "to_sparse_csr", "to_sparse_coo", "coalesce"):
        reader.found(rules.SPARSE, node, f"{reader.says(node)} counts its elements on the host")
    elif name == "pin_memory":
        reader.found(rules.PINNED_INSIDE, node, f"{reader.says(node)} allocates pinned memory")
    elif name == "new_tensor" and values and not base.host:
        factories.copied(reader, node, values)
    elif name == "backward":
        return NUMBER
    elif name in _RESHAPES and (base.argument or not base.local):
        reader.found(rules.RESHAPED, node, f"{reader.says(node)} changes a shape, which a replay does not")
    elif name.endswith("_") and not name.startswith("__") and name not in _HARMLESS | _RESHAPES:
        _non_blocking(reader, node)
        stores.mutated(reader, node, base)
        return base
    if name in ("new_zeros", "new_ones", "new_empty", "new_full", "new_tensor"):
        return TENSOR._replace(host=base.host)
    mask = name in MASKS or (
        base.mask and name not in ("sum", "float", "long", "int", "half", "mean", "cumsum")
    )
    drawn = base.drawn or name in DRAWS
    return base._replace(argument="", mask=mask, local=True, drawn=drawn, number=False)


def _moved(
    reader: Reader, node: ast.Call, func: ast.Attribute, base: Value, values: list[Value]
) -> Value | None:
    """``.to(...)``, ``.cpu()``, ``.cuda()``, ``.type_as(...)``."""
    name = func.attr
    if not base.is_tensor:
        if name == "cpu" and base.kind is Kind.MAYBE:
            reader.found(rules.DEVICE_COPY, node, f"{reader.says(node)} copies a tensor to the host")
        elif base.kind is Kind.UNKNOWN and name != "type_as":
            _non_blocking(reader, node)
        return base if base.kind is Kind.MAYBE else None
    target = _target(node, values)
    to_host = name == "cpu" or (target is not None and factories.is_host(target[0]))
    mask = _dtype(node)
    result = base._replace(argument="", local=True, mask=base.mask if mask is None else mask)
    if to_host:
        if not base.host:
            reader.found(rules.DEVICE_COPY, node, f"{reader.says(node)} copies a tensor to the host")
        return result._replace(host=True, constant=False)
    to_device = name in ("cuda", "type_as") or target is not None
    if to_device and base.host:
        factories.moved(reader, node, base, func.value)
    else:
        _non_blocking(reader, node)
    if to_device:
        return result._replace(host=False, constant=False, number=False)
    return result


def _target(node: ast.Call, values: list[Value]) -> tuple[ast.expr, Value] | None:
    """The device or tensor that ``.to`` goes to; None if it only changes the type."""
    device = next((each.value for each in node.keywords if each.arg == "device"), None)
    if device is not None:
        return device, UNKNOWN
    if not node.args:
        return None
    first, value = node.args[0], values[0]
    if value.kind is Kind.DEVICE or value.is_tensor:
        return first, value
    if isinstance(first, ast.Constant) and isinstance(first.value, str):
        return first, value
    if "device" in last_name(first):
        return first, value
    return None


def _dtype(node: ast.Call) -> bool | None:
    """Whether ``.to`` makes a mask; None if it does not change the type."""
    for part in (*node.args, *(each.value for each in node.keywords)):
        text = ast.unparse(part)
        if text == "torch.bool":
            return True
        if (text.startswith("torch.") and text.count(".") == 1 and "(" not in text) or text.endswith(
            ".dtype"
        ):
            return False
    return None


def _non_blocking(reader: Reader, node: ast.Call) -> None:
    for each in node.keywords:
        if each.arg == "non_blocking" and isinstance(each.value, ast.Constant) and each.value.value is True:
            reader.found(
                rules.PAGEABLE_COPY, node, f"{reader.says(node)} may copy from the host while it changes"
            )


def _of_object(reader: Reader, node: ast.Call, func: ast.Attribute, base: Value, values: list[Value]) -> None:
    """Methods of streams, events, generators, optimizers and hooks."""
    name, text = func.attr, reader.says(node)
    if name in ("synchronize", "elapsed_time") or (
        name == "query" and base.kind in (Kind.EVENT, Kind.STREAM)
    ):
        reader.found(rules.SYNCHRONIZE, node, f"{text} waits for the device")
    elif name == "record" and base.kind is Kind.EVENT:
        reader.found(rules.EVENT_INSIDE, node, f"{text} records an event of the capture, not of a replay")
    elif name == "manual_seed" and base.kind in (Kind.GENERATOR, Kind.UNKNOWN):
        reader.found(rules.RANDOM_STATE_SET, node, f"{text} sets the random state, which a replay does not")
    elif base.kind is Kind.DICE:
        reader.found(rules.HOST_RANDOM, node, f"{text} draws on the host, once for all replays")
    elif name in _HOOKS:
        reader.found(rules.HOOK_INSIDE, node, f"{reader.says(func)}() registers Python that no replay runs")
    elif name == "replay" and reader.reach >= Reach.FORWARD and not values:
        reader.found(rules.NESTED_CAPTURE, node, f"{text} launches a graph inside of a call that is captured")
    elif name == "step" and reader.reach >= Reach.FORWARD:
        _stepped(reader, node, func, base, values)


def _stepped(reader: Reader, node: ast.Call, func: ast.Attribute, base: Value, values: list[Value]) -> None:
    text, name = reader.says(node), last_name(func.value).lower()
    if base.kind is Kind.SCALER or name.endswith("scaler"):
        reader.found(rules.SCALER_INSIDE, node, f"{text} reads whether a gradient is infinite")
    elif base.kind is Kind.COUNTER:
        reader.found(rules.TIMM_OPTIMIZER, node, f"{text} counts its steps on the host")
    elif base.kind is Kind.SCHEDULER:
        reader.found(rules.SCHEDULER_INSIDE, node, f"{text} counts in Python")
    elif base.kind is Kind.OPTIMIZER and values:
        reader.found(rules.CLOSURE_STEP, node, f"{text} decides on the host how often the closure runs")
    elif base.kind is Kind.OPTIMIZER and base.counting:
        reader.found(rules.OPTIMIZER_COUNT, node, f"{text} counts its steps on the host")


def _of_self(reader: Reader, node: ast.Call, func: ast.Attribute, values: list[Value]) -> Value:
    """A call of an attribute of ``self``, or of something unknown."""
    tensors = any(value.kind in (Kind.TENSOR, Kind.MAYBE) for value in values)
    name = self_attribute(func, reader.self_name)
    if name:
        known = reader.attributes.get(name)
        if known is not None and known.kind is Kind.NORMALIZER:
            text = f"{reader.says(node)} makes tensors of the mean and the deviation"
            reader.found(rules.NORMALIZED, node, text)
        if known is not None and known.kind in (Kind.MIXER, Kind.AUGMENT):
            rule = rules.MIXUP if known.kind is Kind.MIXER else rules.RANDOM_TRANSFORM
            reader.found(rule, node, f"{reader.says(node)} draws on the host")
        if known is not None and known.kind is Kind.MODULE:
            return TENSOR
        function = reader.function
        if function is not None and reader.program.method(function.owner, func.attr) is None and tensors:
            return TENSOR if known is None else MAYBE
    return MAYBE if tensors else UNKNOWN
