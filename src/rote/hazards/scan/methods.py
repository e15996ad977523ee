"""Calls of methods: of tensors, modules, optimizers, streams, containers."""

from __future__ import annotations

import ast

from .. import rules
from .known import KnownCall, known_keywords, known_method, known_object
from .program import Reach
from .scope import Scope
from .stores import contained, mutated
from .syntax import is_literal, keyword, last_name, names, self_attribute, text_literal, text_of
from .transfers import copied, drawn, formatted, is_host, moved, repeated, shaped
from .values import (
    DRAWS,
    MASKS,
    MAYBE,
    NUMBER,
    SHAPE,
    SHARED_NAMES,
    TENSOR,
    TENSOR_NAMES,
    UNKNOWN,
    Inferred,
    Type,
    made,
)

_HOST_METHODS = names("host_methods")
_GROWS = frozenset({"append", "extend", "insert", "appendleft", "popleft", "setdefault"})
_CHANGES = _GROWS | {"update", "pop", "add", "clear", "remove", "popitem", "discard", "put"}
_LOGS = frozenset({"debug", "info", "warning", "warn", "error", "critical", "exception", "log"})
_WRITERS = frozenset({"add_scalar", "add_histogram", "add_image", "log_metrics", "log_dict"})
_RESHAPES = names("reshapes")
_HARMLESS = frozenset({"requires_grad_", "detach_", "share_memory_", "retain_grad"})
_HOOKS = names("module_hooks")
_SHAPED_OF_TENSORS = frozenset({"unique", "unique_consecutive", "bincount"})
_SHAPED = frozenset({"nonzero", "masked_select", "argwhere"})
"""Only a tensor has these."""
_SPARSE = frozenset({"to_sparse", "to_sparse_csr", "to_sparse_coo", "coalesce"})
_MADE = frozenset({"new_zeros", "new_ones", "new_empty", "new_full", "new_tensor"})
_ON_THE_WAY = frozenset({"cpu", "detach", "float", "double", "numpy", "contiguous"})
_READS = {
    "item": (Type.NUMBER, rules.HOST_READ, "reads a tensor"),
    "tolist": (Type.LIST, rules.LIST_READ, "reads all values of a tensor"),
    "numpy": (Type.ARRAY, rules.MEMORY_ESCAPE, "hands the memory of a tensor to numpy"),
}

_EVENTS, _SEEDED = (Type.EVENT,), (Type.GENERATOR, Type.UNKNOWN)
_METHODS = {
    "synchronize": KnownCall(rules.SYNCHRONIZE, "waits for the device"),
    "elapsed_time": KnownCall(rules.SYNCHRONIZE, "waits for the device"),
    "query": KnownCall(rules.SYNCHRONIZE, "waits for the device", (Type.EVENT, Type.STREAM)),
    "record": KnownCall(rules.EVENT_INSIDE, "records an event of the capture, not of a replay", _EVENTS),
    "manual_seed": KnownCall(
        rules.RANDOM_STATE_SET, "sets the random state, which a replay does not", _SEEDED
    ),
}


def method_call(scope: Scope, node: ast.Call, func: ast.Attribute) -> Inferred:
    """What ``base.name(...)`` returns; reports its hazards."""
    name = func.attr
    if name in _READS:
        return _read(scope, node, func)
    base = scope.evaluate(func.value)
    values = scope.arguments(node)
    known_method(scope, node, func, base, values)
    known_keywords(scope, node)
    if base.may_be_tensor or base.type is Type.UNKNOWN:
        found = _of_tensor(scope, node, func, base, values)
        if found is not None:
            return found
    _of_object(scope, node, func, base, values)
    logs = name in _LOGS and "log" in last_name(func.value).lower()
    if logs or name in _WRITERS or (name == "format" and isinstance(func.value, ast.Constant)):
        for part, value in zip(node.args, values, strict=True):
            formatted(scope, part, value)
        return NUMBER
    if name in _CHANGES and (name in _GROWS or base.type in (Type.CONTAINER, Type.LIST)):
        contained(scope, node, text_of(node), func.value, base)
        return UNKNOWN
    if base.type is Type.MODULE:
        return TENSOR if name in ("forward", "__call__") else UNKNOWN
    return _of_self(scope, node, func, values)


def _read(scope: Scope, node: ast.Call, func: ast.Attribute) -> Inferred:
    """``x.item()``, ``x.tolist()``, ``x.numpy()``, also as ``x.detach().cpu().item()``."""
    source = func.value
    while (
        isinstance(source, ast.Call) and isinstance(source.func, ast.Attribute)
        and source.func.attr in _ON_THE_WAY and not source.args
    ):  # fmt: skip
        source = source.func.value
    value = scope.evaluate(source)
    kind, rule, what = _READS[func.attr]
    if (value.may_be_tensor or value.type is Type.UNKNOWN) and not node.args:
        if not (value.is_tensor and value.host):
            scope.found(rule, node, what)
        elif value.drawn:
            drawn(scope, node)
    return NUMBER if kind is Type.NUMBER else made(kind)


def _of_tensor(
    scope: Scope, node: ast.Call, func: ast.Attribute, base: Inferred, values: list[Inferred]
) -> Inferred | None:
    """A method of what may be a tensor; None if it is not a tensor's."""
    name = func.attr
    if name in _SHAPED or (name in _SHAPED_OF_TENSORS and base.type is not Type.UNKNOWN):
        shaped(scope, node, f"{name}()")
        return TENSOR
    if name in ("cpu", "cuda", "to", "type_as"):
        return _moved(scope, node, func, base, values)
    if base.type is Type.MAYBE and name in (TENSOR_NAMES - SHARED_NAMES | {"register_hook", "retain_grad"}):
        base = TENSOR  # nothing else has such methods
    if not base.is_tensor:
        return None
    if name in ("size", "stride"):
        return NUMBER if node.args else SHAPE
    if name == "register_hook":
        scope.report(rules.GRADIENT_HOOK, node, f"{text_of(func)}() runs Python in the backward pass")
        return NUMBER
    if name in _HOST_METHODS or (name.startswith("is_") and name != "is_nonzero"):
        return NUMBER
    if name == "retain_grad":
        scope.found(rules.GRADIENT_HOOK, node, "keeps a gradient by a hook")
        return NUMBER
    if name in ("equal", "allclose", "is_nonzero", "__bool__"):
        scope.found(rules.HOST_READ, node, "gives a Python value")
        return NUMBER
    return _operation(scope, node, name, base, values)


def _operation(scope: Scope, node: ast.Call, name: str, base: Inferred, values: list[Inferred]) -> Inferred:
    if name == "backward":
        return NUMBER
    if name == "repeat_interleave":
        repeated(scope, node, values)
    elif name in _SPARSE:
        scope.found(rules.SPARSE, node, "counts its elements on the host")
    elif name == "pin_memory":
        scope.found(rules.PINNED_INSIDE, node, "allocates pinned memory")
    elif name == "new_tensor" and values and not base.host:
        copied(scope, node, values)
    elif name in _RESHAPES and (base.argument or not base.local):
        scope.found(rules.RESHAPED, node, "changes a shape, which a replay does not")
    elif name.endswith("_") and not name.startswith("__") and name not in _HARMLESS | _RESHAPES:
        _non_blocking(scope, node)
        mutated(scope, node, base)
        return base
    if name in _MADE:
        return TENSOR._replace(host=base.host)
    keeps_mask = base.mask and name not in ("sum", "float", "long", "int", "half", "mean", "cumsum")
    drawn_for = base.drawn or name in DRAWS
    return base.derived._replace(mask=name in MASKS or keeps_mask, local=True, drawn=drawn_for, number=False)


def _moved(
    scope: Scope, node: ast.Call, func: ast.Attribute, base: Inferred, values: list[Inferred]
) -> Inferred | None:
    """``.to(...)``, ``.cpu()``, ``.cuda()``, ``.type_as(...)``."""
    name = func.attr
    if not base.is_tensor:
        if name == "cpu" and base.type is Type.MAYBE:
            scope.found(rules.DEVICE_COPY, node, "copies a tensor to the host")
        elif base.type is Type.UNKNOWN and name != "type_as":
            _non_blocking(scope, node)
        return base if base.type is Type.MAYBE else None
    target = _target(node, values)
    mask = _dtype(node)
    result = base.derived._replace(local=True, mask=base.mask if mask is None else mask)
    if name == "cpu" or (target is not None and is_host(target)):
        if not base.host:
            scope.found(rules.DEVICE_COPY, node, "copies a tensor to the host")
        return result._replace(host=True, constant=False)
    to_device = name in ("cuda", "type_as") or target is not None
    if to_device and base.host:
        moved(scope, node, base, func.value)
    else:
        _non_blocking(scope, node)
    return result._replace(host=False, constant=False, number=False) if to_device else result


def _target(node: ast.Call, values: list[Inferred]) -> ast.expr | None:
    """The device or tensor in the arguments of ``.to``; None if it only changes the type."""
    device = keyword(node, "device")
    if device is not None or not node.args:
        return device
    first, value = node.args[0], values[0]
    named = bool(text_literal(first)) or "device" in last_name(first)
    return first if named or value.type is Type.DEVICE or value.is_tensor else None


def _dtype(node: ast.Call) -> bool | None:
    """Whether ``.to`` makes a mask; None if it does not change the type."""
    for part in (*node.args, *(each.value for each in node.keywords)):
        text = ast.unparse(part)
        if text == "torch.bool":
            return True
        if text.endswith(".dtype") or (
            text.startswith("torch.") and text.count(".") == 1 and "(" not in text
        ):
            return False
    return None


def _non_blocking(scope: Scope, node: ast.Call) -> None:
    if is_literal(keyword(node, "non_blocking"), True):
        scope.found(rules.PAGEABLE_COPY, node, "may copy from the host while it changes")


def _of_object(
    scope: Scope, node: ast.Call, func: ast.Attribute, base: Inferred, values: list[Inferred]
) -> None:
    """Methods of streams, events, generators, optimizers and hooks."""
    known = _METHODS.get(func.attr)
    if known is not None and (not known.of or base.type in known.of):
        scope.found(known.rule, node, known.does)
    elif base.type is Type.DICE:
        scope.found(rules.HOST_RANDOM, node, "draws on the host, once for all replays")
    elif func.attr in _HOOKS:
        scope.report(rules.HOOK_INSIDE, node, f"{text_of(func)}() registers Python that no replay runs")
    elif scope.reach < Reach.FORWARD:
        return
    elif func.attr == "replay" and not values:
        scope.found(rules.NESTED_CAPTURE, node, "launches a graph inside of a call that is captured")
    elif func.attr == "step":
        _step(scope, node, func, base, bool(values))


def _step(scope: Scope, node: ast.Call, func: ast.Attribute, base: Inferred, closure: bool) -> None:
    if base.type is Type.SCALER or last_name(func.value).lower().endswith("scaler"):
        scope.found(rules.SCALER_INSIDE, node, "reads whether a gradient is infinite")
    elif base.type is Type.SCHEDULER:
        scope.found(rules.SCHEDULER_INSIDE, node, "counts in Python")
    elif base.type is Type.OPTIMIZER and closure:
        scope.found(rules.CLOSURE_STEP, node, "decides on the host how often the closure runs")
    elif base.type is Type.COUNTER or base.counting:
        rule = rules.TIMM_OPTIMIZER if base.type is Type.COUNTER else rules.OPTIMIZER_COUNT
        scope.found(rule, node, "counts its steps on the host")


def _of_self(scope: Scope, node: ast.Call, func: ast.Attribute, values: list[Inferred]) -> Inferred:
    """A call of an attribute of ``self``, or of something unknown."""
    tensors = any(value.may_be_tensor for value in values)
    name = self_attribute(func, scope.self_name)
    if name:
        known = scope.attributes.get(name, UNKNOWN)
        known_object(scope, node, known.type)
        if known.type is Type.MODULE:
            return TENSOR
        function = scope.function
        if function is not None and scope.program.method(function.owner, name) is None and tensors:
            return MAYBE if name in scope.attributes else TENSOR
    return MAYBE if tensors else UNKNOWN
