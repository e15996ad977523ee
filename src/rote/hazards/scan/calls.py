"""Calls of functions with a dotted name: what they give, and which of them a capture does not like."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .. import rules
from ..finding import Severity
from . import factories, methods, reads, stores
from .known import KNOWN, Known
from .libraries import library_call, made_by_library
from .names import text_of
from .program import GRAPHERS, Reach
from .values import (
    COUNTING,
    DRAWS,
    FACTORIES,
    HOST_FUNCTIONS,
    MASKS,
    MAYBE,
    NUMBER,
    TENSOR,
    UNKNOWN,
    Kind,
    Value,
)

if TYPE_CHECKING:
    from .reader import Reader


_SHAPED = {
    "torch.nonzero": None,
    "torch.argwhere": None,
    "torch.masked_select": None,
    "torch.unique": None,
    "torch.unique_consecutive": None,
    "torch.bincount": "Give minlength, clamp the values, and use torch.zeros(n).scatter_add_ instead.",
}
_COMPARED = frozenset({"torch.equal", "torch.allclose", "torch.is_nonzero"})
_CONVERSIONS = frozenset({"int", "float", "bool", "complex", "round"})
_MOSTLY_TENSORS = ("torch.ops.", "torch.func.", "torch.autograd.grad", "torch.utils.checkpoint.")
_MATH = ("math.", "cmath.")
_OBJECTS = {
    "torch.Generator": Kind.GENERATOR, "torch.cuda.Stream": Kind.STREAM, "torch.Stream": Kind.STREAM,
    "torch.cuda.current_stream": Kind.STREAM, "torch.cuda.Event": Kind.EVENT, "torch.Event": Kind.EVENT,
    "torch.amp.GradScaler": Kind.SCALER, "torch.cuda.amp.GradScaler": Kind.SCALER,
    "torch.device": Kind.DEVICE, "random.Random": Kind.DICE, "random.SystemRandom": Kind.DICE,
    "numpy.random.default_rng": Kind.DICE, "numpy.random.RandomState": Kind.DICE,
    "collections.deque": Kind.CONTAINER, "collections.defaultdict": Kind.CONTAINER, "dict": Kind.CONTAINER,
    "list": Kind.CONTAINER, "set": Kind.CONTAINER, "collections.OrderedDict": Kind.CONTAINER,
    "collections.Counter": Kind.CONTAINER, "torch.cuda.CUDAGraph": Kind.GRAPH,
}  # fmt: skip


def call(reader: Reader, node: ast.Call) -> Value:
    """What a call gives; reports what is wrong with it."""
    dotted = reader.names.resolve(node.func)
    if not dotted and isinstance(node.func, ast.Attribute):
        return methods.method(reader, node, node.func)
    values = arguments(reader, node)
    known = KNOWN.get(dotted)
    if known is not None:
        _known(reader, node, known)
    if dotted.startswith(("random.", "numpy.random.", "secrets.")) and dotted not in _OBJECTS:
        reader.found(rules.HOST_RANDOM, node, f"{reader.says(node)} draws on the host, once for all replays")
        return Value(Kind.ARRAY) if dotted.startswith("numpy.") else NUMBER
    library_call(reader, node, dotted)
    made = made_by_library(dotted)
    if made is not None:
        return Value(made, local=True)
    if dotted in _OBJECTS:
        return Value(_OBJECTS[dotted], local=True)
    if dotted.startswith("torch."):
        return _torch(reader, node, dotted, values)
    if dotted.startswith("numpy."):
        return _numpy(reader, node, values)
    if dotted:
        return _plain(reader, node, dotted, values)
    return _unknown(reader, node, values)


def arguments(reader: Reader, node: ast.Call) -> list[Value]:
    """What the positional arguments are; keyword arguments are read too."""
    values = [reader.evaluate(part) for part in node.args]
    for keyword in node.keywords:
        reader.evaluate(keyword.value)
    return values


def keyword(node: ast.Call, name: str) -> ast.expr | None:
    """A keyword argument."""
    return next((each.value for each in node.keywords if each.arg == name), None)


def is_true(node: ast.expr | None) -> bool:
    """Whether an expression is the constant True."""
    return isinstance(node, ast.Constant) and node.value is True


def _known(reader: Reader, node: ast.Call, known: Known) -> None:
    if known.rule is rules.NESTED_CAPTURE and reader.reach < Reach.FORWARD:
        return
    severity = None
    if known.rule is rules.STREAM_INSIDE and _is_joined(reader):
        severity = Severity.ISLAND
    reader.found(known.rule, node, f"{text_of(node.func)}() {known.message}", severity=severity)


def _is_joined(reader: Reader) -> bool:
    """Whether the function forks a stream and joins it again."""
    waits = 0
    if reader.function is not None:
        for node in reader.function.nodes():
            if isinstance(node, ast.Attribute) and node.attr in ("wait_stream", "wait_event"):
                waits += 1
    return waits >= 2


def _torch(reader: Reader, node: ast.Call, dotted: str, values: list[Value]) -> Value:
    name = dotted.rpartition(".")[2]
    space = dotted.removesuffix("." + name)
    if dotted in _SHAPED:
        reads.shaped(reader, node, f"{dotted}()", _SHAPED[dotted])
        return TENSOR
    if dotted in _COMPARED:
        reads.read(reader, node, f"{reader.says(node)} gives a Python value")
        return NUMBER
    if dotted == "torch.where" and len(node.args) == 1 and not node.keywords:
        reads.shaped(reader, node, "torch.where() of one argument")
        return TENSOR
    if dotted == "torch.compile":
        _compiled(reader, node)
        return Value(Kind.MODULE, local=True)
    if (
        dotted == "torch.nn.functional.one_hot"
        and len(node.args) == 1
        and keyword(node, "num_classes") is None
    ):
        reads.shaped(reader, node, "one_hot() without num_classes", "Give num_classes.")
        return TENSOR
    if dotted == "torch.repeat_interleave":
        methods.repeated(reader, node, values[1:], alone=len(node.args) == 1)
        return TENSOR
    if dotted == "torch.nn.utils.clip_grad_norm_" and is_true(keyword(node, "error_if_nonfinite")):
        reader.found(rules.NORM_CHECKED, node, f"{reader.says(node)} reads the norm")
        return TENSOR
    if space == "torch" and name in FACTORIES:
        return factories.made(reader, node, name, values)
    if dotted.startswith("torch.cuda.") and name.endswith("Tensor"):
        factories.copied(reader, node, values)
        return TENSOR
    if dotted in ("torch.nn.Parameter", "torch.nn.Buffer", "torch.nn.UninitializedParameter"):
        return TENSOR
    if space == "torch.optim":
        counting = name in COUNTING and not any(is_true(keyword(node, k)) for k in ("capturable", "fused"))
        return Value(Kind.OPTIMIZER, counting=counting, local=True)
    if space == "torch.optim.lr_scheduler":
        return Value(Kind.SCHEDULER, local=True)
    if name[:1].isupper():
        return Value(Kind.MODULE, local=True) if dotted.startswith("torch.nn.") else UNKNOWN
    if space == "torch":
        return _operation(name, values)
    if space in ("torch.nn.functional", "torch.special", "torch.linalg", "torch.fft", "torch.sparse"):
        return TENSOR
    return MAYBE if dotted.startswith(_MOSTLY_TENSORS) else UNKNOWN


def _operation(name: str, values: list[Value]) -> Value:
    if name in HOST_FUNCTIONS or name.startswith(("get_", "set_", "is_")):
        return NUMBER
    tensors = [value for value in values if value.is_tensor]
    host = bool(tensors) and all(value.host for value in tensors) and len(tensors) == len(values)
    drawn = any(value.drawn for value in tensors) or name in DRAWS
    return Value(Kind.TENSOR, mask=name in MASKS, host=host, drawn=drawn, local=True)


def _compiled(reader: Reader, node: ast.Call) -> None:
    mode = keyword(node, "mode")
    if isinstance(mode, ast.Constant) and mode.value in ("reduce-overhead", "max-autotune"):
        reader.found(rules.NESTED_CAPTURE, node, f"{reader.says(node)} makes graphs of its own")
    else:
        reader.found(rules.COMPILED_INSIDE, node, f"{reader.says(node)} compiles in every call")


def _numpy(reader: Reader, node: ast.Call, values: list[Value]) -> Value:
    for part, value in zip(node.args, values, strict=False):
        if value.on_device:
            reads.escaped(reader, part, f"numpy works on the memory of {reader.says(part)}")
    return Value(Kind.ARRAY, local=True)


def _plain(reader: Reader, node: ast.Call, dotted: str, values: list[Value]) -> Value:
    first = values[0] if values else UNKNOWN
    if dotted in _CONVERSIONS and node.args:
        return reads.converted(reader, node, dotted, first)
    if dotted in GRAPHERS:
        return Value(Kind.GRAPH, local=True)
    if dotted == "print" or dotted.startswith(("logging.", "wandb.", "loguru.")):
        for part, value in zip(node.args, values, strict=False):
            reads.formatted(reader, part, value)
        return NUMBER
    if dotted in ("str", "repr", "format"):
        if node.args:
            reads.formatted(reader, node.args[0], first)
        return NUMBER
    if dotted.startswith(_MATH):
        for part, value in zip(node.args, values, strict=False):
            reads.taken(reader, part, value, f"{reader.says(node)} reads a tensor")
        return NUMBER
    if dotted == "range":
        for part, value in zip(node.args, values, strict=False):
            reads.taken(reader, part, value, f"{reader.says(node)} reads a tensor")
        return NUMBER
    if dotted in ("any", "all", "sorted") or (dotted in ("min", "max") and len(values) > 1):
        for part, value in zip(node.args, values, strict=False):
            reads.taken(reader, part, value, f"{dotted}() of {reader.says(part)} reads a tensor")
    if dotted == "next" and node.args:
        stores.advanced(reader, node, node.args[0])
    if dotted == "iter" or dotted.startswith("itertools."):
        return Value(Kind.ITERATOR, local=True)
    if dotted in ("len", "isinstance", "hasattr", "type", "any", "all"):
        return NUMBER
    if dotted in ("sum", "abs", "min", "max") and any(value.is_tensor for value in values):
        return TENSOR
    if dotted in ("enumerate", "zip", "reversed", "list", "tuple", "iter", "sorted", "map"):
        return UNKNOWN
    return _unknown(reader, node, values) if "." in dotted else UNKNOWN


def _unknown(reader: Reader, node: ast.Call, values: list[Value]) -> Value:
    """A function that is not known: of tensors it probably gives one."""
    target = reader.value(node.func.id) if isinstance(node.func, ast.Name) else reader.evaluate(node.func)
    if target.kind is Kind.MODULE:
        return TENSOR
    if target.kind is Kind.NORMALIZER:
        text = f"{reader.says(node)} makes tensors of the mean and the deviation"
        reader.found(rules.NORMALIZED, node, text)
        return TENSOR
    if target.kind is Kind.MIXER:
        reader.found(rules.MIXUP, node, f"{reader.says(node)} draws with numpy")
        return MAYBE
    return MAYBE if any(value.kind in (Kind.TENSOR, Kind.MAYBE) for value in values) else UNKNOWN
