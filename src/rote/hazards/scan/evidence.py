"""Which parameters of a function are tensors: by annotation, by default, by use."""

from __future__ import annotations

import ast

from .syntax import Imports, names, text_literal
from .values import MASK, NUMBER, SHARED_NAMES, TENSOR, TENSOR_NAMES, UNKNOWN, Inferred, Type, is_mask_name

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

_HOLDERS = frozenset(
    {"list", "tuple", "dict", "List", "Tuple", "Dict", "Sequence", "Iterable", "Mapping", "set"}
)
_OPERATIONS = names("operations")
_PARTS = {"Module": Type.MODULE, "Optimizer": Type.OPTIMIZER, "ndarray": Type.ARRAY}


def defaults_of(node: FunctionNode) -> dict[str, ast.expr]:
    """Default values by parameter."""
    positional, given = [*node.args.posonlyargs, *node.args.args], node.args.defaults
    last = positional[len(positional) - len(given) :]
    pairs = (*zip(last, given, strict=True), *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True))
    return {each.arg: default for each, default in pairs if default is not None}


def parameter_values(node: FunctionNode, imports: Imports, owner: str) -> dict[str, Inferred]:
    """What each parameter is, without ``self``, which is called ``owner``."""
    defaults = defaults_of(node)
    used = _uses(node, imports)
    found: dict[str, Inferred] = {}
    for parameter in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
        name = parameter.arg
        if name == owner:
            continue
        value = annotated(parameter.annotation) or _defaulted(defaults.get(name))
        if value is None:
            value = UNKNOWN if name not in used else MASK if is_mask_name(name) else TENSOR
        found[name] = value._replace(argument=name, local=False)
    return found


def tensor_parameters(node: FunctionNode, imports: Imports, owner: str) -> list[str]:
    """The parameters that are tensors by annotation or use."""
    return [name for name, value in parameter_values(node, imports, owner).items() if value.is_tensor]


def annotated(annotation: ast.expr | None) -> Inferred | None:
    """What an annotation says; None if it says nothing."""
    if annotation is None:
        return None
    text = text_literal(annotation) or ast.unparse(annotation)
    outer = text.partition("[")[0].rpartition(".")[2]
    if outer in _HOLDERS:
        return Inferred(Type.CONTAINER)
    if "BoolTensor" in text:
        return MASK
    if "Tensor" in text:
        return TENSOR if not any(part in text for part in ("int", "float", "list", "tuple")) else None
    for part, kind in _PARTS.items():
        if part in text:
            return Inferred(kind)
    words = {word.strip(" []|.,") for word in text.replace("[", " ").replace("|", " ").split()}
    if words & {"int", "float", "bool", "str"}:
        return NUMBER
    return UNKNOWN


def _defaulted(default: ast.expr | None) -> Inferred | None:
    if isinstance(default, ast.Constant) and default.value is not None:
        return NUMBER
    if isinstance(default, ast.UnaryOp) and isinstance(default.operand, ast.Constant):
        return NUMBER
    if isinstance(default, (ast.List, ast.Dict, ast.Set, ast.Tuple)):
        return Inferred(Type.CONTAINER)
    return None


def _uses(node: FunctionNode, imports: Imports) -> set[str]:
    """Names that are used as only a tensor can be."""
    found: set[str] = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and each.attr in TENSOR_NAMES:
            shared = isinstance(each.value, ast.Name) and each.attr in SHARED_NAMES
            if isinstance(each.value, (ast.Name, ast.BinOp, ast.Compare)) and not shared:
                found.update(_operands(each.value))
        elif isinstance(each, ast.Call) and each.args:
            dotted = imports.resolve(each.func)
            if dotted.startswith("torch.nn.functional.") or (
                dotted.startswith("torch.") and dotted.removeprefix("torch.") in _OPERATIONS
            ):
                found.update(_operands(each.args[0]))
        elif isinstance(each, ast.BinOp) and isinstance(each.op, ast.MatMult):
            found.update(_operands(each))
        elif isinstance(each, ast.Subscript) and isinstance(each.value, ast.Name):
            several = isinstance(each.slice, ast.Tuple) and any(
                isinstance(part, ast.Slice) or (isinstance(part, ast.Constant) and part.value in (None, ...))
                for part in each.slice.elts
            )
            itself = isinstance(each.slice, ast.Compare) and each.value.id in _operands(each.slice)
            if several or itself:
                found.add(each.value.id)
    return found


def _operands(node: ast.expr) -> set[str]:
    """The names among the operands of an expression."""
    match node:
        case ast.Name():
            return {node.id}
        case ast.BinOp():
            parts = [node.left, node.right]
        case ast.Compare():
            parts = [node.left, *node.comparators]
        case ast.UnaryOp():
            parts = [node.operand]
        case ast.Subscript():
            parts = [node.value]
        case _:
            parts = []
    return {name for part in parts for name in _operands(part)}
