"""Calls of functions with a dotted name: what they return, and the hazards among them."""

from __future__ import annotations

import ast

from .. import rules
from .known import known_function, known_keywords, known_object, made_by_library
from .program import GRAPHERS
from .scope import Scope
from .stores import advanced
from .syntax import MAKES, is_literal, keyword, names, text_literal, text_of
from .transfers import copied, factory, formatted, repeated, shaped, taken
from .values import DRAWS, FACTORIES, MASKS, MAYBE, NUMBER, TENSOR, UNKNOWN, Inferred, Type, made

_HOST_FUNCTIONS = names("host_functions")
_COUNTING = names("counting")
_SHAPED = {
    "torch.nonzero": None, "torch.argwhere": None, "torch.masked_select": None, "torch.unique": None,
    "torch.unique_consecutive": None,
    "torch.bincount": "Give minlength, clamp the values, and use torch.zeros(n).scatter_add_ instead.",
}  # fmt: skip
_COMPARED = frozenset({"torch.equal", "torch.allclose", "torch.is_nonzero"})
_CONVERSIONS = frozenset({"int", "float", "bool", "complex", "round"})
_MOSTLY_TENSORS = ("torch.ops.", "torch.func.", "torch.autograd.grad", "torch.utils.checkpoint.")
_RESULTS = {name: Type[kind] for kind, makers in MAKES.items() for name in makers}


def function_call(scope: Scope, node: ast.Call, dotted: str) -> Inferred:
    """What a call returns; reports its hazards."""
    values = scope.arguments(node)
    known_function(scope, node, dotted)
    if dotted.startswith(("random.", "numpy.random.", "secrets.")) and dotted not in _RESULTS:
        scope.found(rules.HOST_RANDOM, node, "draws on the host, once for all replays")
        return Inferred(Type.ARRAY) if dotted.startswith("numpy.") else NUMBER
    known_keywords(scope, node)
    result = made_by_library(dotted) or _RESULTS.get(dotted)
    if result is not None:
        return made(result)
    if dotted.startswith("torch."):
        return _torch(scope, node, dotted, values)
    if dotted.startswith("numpy."):
        for part, value in zip(node.args, values, strict=False):
            if value.on_device:
                text = f"numpy works on the memory of {text_of(part)}"
                scope.report(rules.MEMORY_ESCAPE, part, text)
        return made(Type.ARRAY)
    return _plain(scope, node, dotted, values) if dotted else _unknown(scope, node, values)


def _torch(scope: Scope, node: ast.Call, dotted: str, values: list[Inferred]) -> Inferred:
    space, _, name = dotted.rpartition(".")
    single = len(node.args) == 1
    if dotted in _SHAPED:
        shaped(scope, node, f"{dotted}()", _SHAPED[dotted])
        return TENSOR
    if dotted in _COMPARED:
        scope.found(rules.HOST_READ, node, "gives a Python value")
        return NUMBER
    if dotted == "torch.where" and single and not node.keywords:
        shaped(scope, node, "torch.where() of one argument")
        return TENSOR
    if dotted == "torch.compile":
        if text_literal(keyword(node, "mode")) in ("reduce-overhead", "max-autotune"):
            scope.found(rules.NESTED_CAPTURE, node, "makes graphs of its own")
        else:
            scope.found(rules.COMPILED_INSIDE, node, "compiles in every call")
        return made(Type.MODULE)
    if dotted == "torch.nn.functional.one_hot" and single and keyword(node, "num_classes") is None:
        shaped(scope, node, "one_hot() without num_classes", "Give num_classes.")
    elif dotted == "torch.repeat_interleave":
        repeated(scope, node, values[1:], alone=single)
        return TENSOR
    elif dotted == "torch.nn.utils.clip_grad_norm_" and is_literal(keyword(node, "error_if_nonfinite"), True):
        scope.found(rules.NORM_CHECKED, node, "reads the norm")
        return TENSOR
    if space == "torch" and name in FACTORIES:
        return factory(scope, node, name, values)
    if dotted.startswith("torch.cuda.") and name.endswith("Tensor"):
        copied(scope, node, values)
        return TENSOR
    if dotted in ("torch.nn.Parameter", "torch.nn.Buffer", "torch.nn.UninitializedParameter"):
        return TENSOR
    if space == "torch.optim":
        on_device = any(is_literal(keyword(node, each), True) for each in ("capturable", "fused"))
        return Inferred(Type.OPTIMIZER, counting=name in _COUNTING and not on_device, local=True)
    if space == "torch.optim.lr_scheduler":
        return made(Type.SCHEDULER)
    if name[:1].isupper():
        return made(Type.MODULE) if dotted.startswith("torch.nn.") else UNKNOWN
    if space == "torch":
        return _operation(name, values)
    if space in ("torch.nn.functional", "torch.special", "torch.linalg", "torch.fft", "torch.sparse"):
        return TENSOR
    return MAYBE if dotted.startswith(_MOSTLY_TENSORS) else UNKNOWN


def _operation(name: str, values: list[Inferred]) -> Inferred:
    if name in _HOST_FUNCTIONS or name.startswith(("get_", "set_", "is_")):
        return NUMBER
    host = bool(values) and all(value.is_tensor and value.host for value in values)
    drawn = any(value.is_tensor and value.drawn for value in values) or name in DRAWS
    return TENSOR._replace(mask=name in MASKS, host=host, drawn=drawn)


def _plain(scope: Scope, node: ast.Call, dotted: str, values: list[Inferred]) -> Inferred:
    """A function of Python."""
    first = values[0] if values else UNKNOWN
    if dotted in _CONVERSIONS and node.args:
        taken(scope, node, first, f"{text_of(node)} reads a tensor")
        return first if dotted == "round" and first.is_tensor else NUMBER
    if dotted in GRAPHERS:
        return made(Type.GRAPH)
    if dotted == "print" or dotted.startswith(("logging.", "wandb.", "loguru.")):
        for part, value in zip(node.args, values, strict=False):
            formatted(scope, part, value)
        return NUMBER
    if dotted in ("str", "repr", "format"):
        if node.args:
            formatted(scope, node.args[0], first)
        return NUMBER
    if dotted.startswith(("math.", "cmath.")) or dotted == "range":
        for part, value in zip(node.args, values, strict=False):
            taken(scope, part, value, f"{text_of(node)} reads a tensor")
        return NUMBER
    if dotted in ("any", "all", "sorted") or (dotted in ("min", "max") and len(values) > 1):
        for part, value in zip(node.args, values, strict=False):
            taken(scope, part, value, f"{dotted}() of {text_of(part)} reads a tensor")
    if dotted == "next" and node.args:
        advanced(scope, node, node.args[0])
    if dotted == "iter" or dotted.startswith("itertools."):
        return made(Type.ITERATOR)
    if dotted in ("len", "isinstance", "hasattr", "type", "any", "all"):
        return NUMBER
    if dotted in ("sum", "abs", "min", "max") and any(value.is_tensor for value in values):
        return TENSOR
    return _unknown(scope, node, values) if "." in dotted else UNKNOWN


def _unknown(scope: Scope, node: ast.Call, values: list[Inferred]) -> Inferred:
    """An unknown function: of tensors it probably returns one."""
    target = scope.value(node.func.id) if isinstance(node.func, ast.Name) else scope.evaluate(node.func)
    if target.type is Type.MODULE:
        return TENSOR
    if target.type is Type.NORMALIZER:
        known_object(scope, node, target.type)
        return TENSOR
    if target.type is Type.MIXER:
        known_object(scope, node, target.type, "with numpy")
        return MAYBE
    return MAYBE if any(value.may_be_tensor for value in values) else UNKNOWN
