"""What a call leaves behind: attributes, globals, containers, arguments written in place."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ..finding import Severity
from ..rules import (
    AMBIENT_CHANGES,
    ARGUMENT_CHANGED,
    ARGUMENT_MUTATED,
    DYNAMIC_SHAPE,
    GRADIENT_MOVED,
    GROWING,
    LAZY_STATE,
    MUTABLE_DEFAULT,
    SCALE_ON_SELF,
    STATE_CHANGES,
    TENSOR_MOVED,
)
from . import reads
from .names import root_name, self_attribute
from .program import Reach
from .values import UNKNOWN, Kind, Value

if TYPE_CHECKING:
    from .reader import Reader

_JOINS = ("cat", "concat", "concatenate", "stack", "hstack", "vstack")


def assign(reader: Reader, target: ast.expr, source: ast.expr, value: Value) -> None:
    """``target = source``."""
    match target:
        case ast.Name():
            _name(reader, target, value)
            if isinstance(source, ast.List) and value.kind is Kind.LIST:
                reader.lists.add(target.id)
            else:
                reader.lists.discard(target.id)
        case ast.Tuple() | ast.List():
            if isinstance(source, (ast.Tuple, ast.List)) and len(source.elts) == len(target.elts):
                for part, each in zip(target.elts, source.elts, strict=True):
                    assign(reader, part, each, reader.evaluate(each))
                return
            for part in target.elts:
                assign(reader, part, source, _part(value))
        case ast.Starred():
            bind(reader, target.value, UNKNOWN)
        case ast.Attribute():
            _attribute(reader, target, source, value)
        case ast.Subscript():
            _item(reader, target, value)
        case _:
            pass


def bind(reader: Reader, target: ast.expr, value: Value) -> None:
    """Bind names without looking for stores."""
    for node in ast.walk(target):
        if isinstance(node, ast.Name):
            reader.env[node.id] = _part(value) if node is not target else value


def augment(reader: Reader, node: ast.AugAssign) -> None:
    """``target += value``."""
    value = reader.evaluate(node.value)
    target = node.target
    before = reader.evaluate(_loaded(target))
    text = reader.says(node)
    if isinstance(target, ast.Name):
        if target.id in reader.declared:
            if _is_inside(reader):
                return
            reader.found(STATE_CHANGES, node, f"{text} changes a variable of an outer scope")
        elif before.is_tensor and before.argument:
            _mutated(reader, node, text, before)
        elif value.is_tensor and not before.is_tensor:
            reader.env[target.id] = value._replace(argument="")
    elif isinstance(target, ast.Attribute):
        if before.is_tensor or value.is_tensor:
            return  # in place, if it is a tensor
        name = self_attribute(target, reader.self_name)
        if name or not reader.is_local(root_name(target)):
            reader.found(STATE_CHANGES, node, f"{text} changes Python state, which a replay does not")
    else:
        base = reader.evaluate(target.value)
        if base.is_tensor and base.argument:
            _mutated(reader, node, text, base)


def lazily_made(reader: Reader, node: ast.If) -> set[str]:
    """Attributes that a branch makes because they are not there yet."""
    text = ast.unparse(node.test)
    found: set[str] = set()
    for statement in node.body:
        for each in ast.walk(statement):
            if isinstance(each, (ast.Attribute, ast.Subscript)) and isinstance(each.ctx, ast.Store):
                stored = each.value if isinstance(each, ast.Subscript) else each
                name = self_attribute(stored, reader.self_name)
                owner = reader.self_name
                asked = (
                    f"not in {owner}.{name}",
                    f"{owner}.{name} is None",
                    f"not hasattr({owner}, '{name}')",
                    f"not {owner}.{name}",
                )
                if name and (
                    any(part in text for part in asked) or f"getattr({owner}, '{name}', None) is None" in text
                ):
                    found.add(name)
    return found


def advanced(reader: Reader, node: ast.expr, source: ast.expr) -> None:
    """``next(iterator)``: one that was made outside is further after the call."""
    outer = isinstance(source, ast.Name) and not reader.is_local(source.id) and source.id in reader.outside
    if outer or self_attribute(source, reader.self_name):
        reader.found(STATE_CHANGES, node, f"{reader.says(node)} takes another value at every call")


def looped(reader: Reader, node: ast.expr, items: Value) -> None:
    """``for item in iterator``: one that was made outside is further after the call."""
    outer = isinstance(node, ast.Name) and not reader.is_local(node.id)
    if items.kind is Kind.ITERATOR and (outer or self_attribute(node, reader.self_name)):
        text = f"the loop advances {reader.says(node)}, which was made outside of the call"
        reader.found(STATE_CHANGES, node, text)


def ambient(reader: Reader, node: ast.expr) -> None:
    """Calls that set a mode and leave it set, as statements of their own."""
    if isinstance(node, ast.Call) and reader.names.resolve(node.func) == "torch.set_grad_enabled":
        reader.found(AMBIENT_CHANGES, node, f"{reader.says(node)} stays set after the call")


def _name(reader: Reader, target: ast.Name, value: Value) -> None:
    if target.id in reader.declared and not _is_inside(reader):
        reader.found(STATE_CHANGES, target, f"{target.id} is a variable of an outer scope")
    reader.env[target.id] = value


def _part(value: Value) -> Value:
    if value.is_tensor or value.kind is Kind.MAYBE:
        return value._replace(argument="")
    return Value(Kind.NUMBER) if value.kind is Kind.SHAPE else UNKNOWN


def _attribute(reader: Reader, target: ast.Attribute, source: ast.expr, value: Value) -> None:
    name = self_attribute(target, reader.self_name)
    text = reader.says(target)
    dotted = reader.names.resolve(target)
    if dotted.startswith("torch.backends."):
        reader.found(AMBIENT_CHANGES, target, f"{text} stays set after the call")
    elif target.attr == "data" and not name:
        reader.found(TENSOR_MOVED, target, f"{text} is bound to other memory")
    elif target.attr == "grad":
        if isinstance(source, ast.Constant) and source.value is None:
            return  # inside of the call a gradient may be made anew
        reader.found(
            GRADIENT_MOVED, target, f"{text} is replaced; write into it with copy_", severity=Severity.SPEED
        )
    elif name:
        _own_attribute(reader, target, name, source, value)
    else:
        _other_attribute(reader, target, value)


def _own_attribute(reader: Reader, target: ast.Attribute, name: str, source: ast.expr, value: Value) -> None:
    text = reader.says(target)
    again = any(
        isinstance(part, ast.Attribute) and self_attribute(part, reader.self_name) == name
        for part in ast.walk(source)
    )
    if name in reader.lazy:
        reader.found(LAZY_STATE, target, f"{text} is made in the first call that needs it")
    elif _makes_parameter(reader, source):
        reader.found(TENSOR_MOVED, target, f"{text} is a new parameter in every call")
    elif again and _joins(source):
        reader.found(GROWING, target, f"{text} grows with every call")
    elif value.kind in (Kind.TENSOR, Kind.MAYBE) and not value.argument:
        reader.found(SCALE_ON_SELF, target, f"{text} keeps a tensor that this call computes")
    elif value.is_tensor:
        reader.found(STATE_CHANGES, target, f"{text} keeps the argument {value.argument}")
    elif again or isinstance(source, ast.IfExp):
        reader.found(STATE_CHANGES, target, f"{text} is another value after every call")
    elif not (isinstance(source, ast.Constant) and source.value is None):
        reader.found(
            STATE_CHANGES, target, f"{text} is assigned, which a replay does not do", severity=Severity.SPEED
        )
    if value.kind is not Kind.UNKNOWN and name not in reader.attributes:
        reader.attributes[name] = value._replace(argument="")


def _other_attribute(reader: Reader, target: ast.Attribute, value: Value) -> None:
    """An attribute of something else than ``self``."""
    root = root_name(target)
    base = reader.evaluate(target.value)
    if not root or base.is_tensor or root == reader.self_name or reader.is_local(root):
        return
    text = reader.says(target)
    known = reader.value(root)
    if root in reader.env and known.argument:
        if root != "ctx":  # that of an autograd function is made for storing
            _argument(reader, target, f"{text} is stored in the argument {root}", again=value.is_tensor)
    elif root in reader.outside and not _is_inside(reader):
        rule = SCALE_ON_SELF if value.is_tensor else STATE_CHANGES
        reader.found(rule, target, f"{text} keeps a value of this call")


def _item(reader: Reader, target: ast.Subscript, value: Value) -> None:
    base = reader.evaluate(target.value)
    reader.evaluate(target)
    text = reader.says(target)
    parts = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
    if base.is_tensor:
        masks = [part for part in parts if reads.is_mask(reader, part)]
        unknown = (value.kind in (Kind.TENSOR, Kind.MAYBE) and not value.number) or bool(value.argument)
        if masks and unknown:
            message = f"{text} stores as many elements as the mask {reader.says(masks[0])} has true values"
            reader.found(DYNAMIC_SHAPE, target, message)
        elif base.argument:
            _mutated(reader, target, f"{text} = ...", base)
        return
    _container(reader, target, f"{text} = ...", target.value, base, again=value.is_tensor)


def contained(reader: Reader, node: ast.Call, base_node: ast.expr, base: Value) -> None:
    """``container.append(x)`` and its kin."""
    _container(reader, node, reader.says(node), base_node, base)


def _container(
    reader: Reader, node: ast.expr, text: str, base_node: ast.expr, base: Value, *, again: bool = False
) -> None:
    root = root_name(base_node)
    if not root or base.local or base.kind in (Kind.TENSOR, Kind.MODULE, Kind.ARRAY, Kind.MAYBE):
        return
    if self_attribute(base_node, reader.self_name):
        if self_attribute(base_node, reader.self_name) in reader.lazy:
            reader.found(LAZY_STATE, node, f"{text} is made in the first call that needs it")
        elif base.kind in (Kind.CONTAINER, Kind.LIST):
            reader.found(STATE_CHANGES, node, f"{text} changes a container that the module keeps")
    elif root == reader.self_name or reader.is_local(root):
        return
    elif root in reader.shared:
        reader.found(MUTABLE_DEFAULT, node, f"{text} changes the default of {root}, one object for all calls")
    elif root in reader.env:
        if isinstance(base_node, ast.Name) and not reader.value(root).is_tensor:
            _argument(reader, node, f"{text} changes the argument {root}", again=again)
    elif (
        not _is_inside(reader)
        and root in reader.outside
        and reader.outside[root].kind in (Kind.CONTAINER, Kind.LIST)
    ):
        reader.found(STATE_CHANGES, node, f"{text} changes a container made outside of the call")


def _mutated(reader: Reader, node: ast.expr | ast.stmt, text: str, base: Value) -> None:
    reader.found(ARGUMENT_MUTATED, node, f"{text} changes the argument {base.argument} in place")


def mutated(reader: Reader, node: ast.expr, base: Value) -> None:
    """A method that writes an argument."""
    if base.is_tensor and base.argument:
        _mutated(reader, node, reader.says(node), base)


def _argument(reader: Reader, node: ast.expr, text: str, *, again: bool) -> None:
    """A container that was handed in: only that of the outermost function is the caller's for certain.

    A tensor in it is stored again by each replay.
    """
    if reader.reach is not Reach.TENSORS:
        outermost = reader.reach is Reach.GRAPHED and reader.function is not None and not reader.function.path
        severity = Severity.SPEED if again or not outermost else None
        reader.found(ARGUMENT_CHANGED, node, text, severity=severity)


def _is_inside(reader: Reader) -> bool:
    """Whether the function is defined in one that a capture runs: what is around it is part of the call."""
    function = reader.function
    return function is not None and function.outer is not None and function.outer.reach is not Reach.NONE


def _makes_parameter(reader: Reader, source: ast.expr) -> bool:
    return isinstance(source, ast.Call) and reader.names.resolve(source.func) == "torch.nn.Parameter"


def _joins(source: ast.expr) -> bool:
    return any(
        isinstance(part, ast.Call) and isinstance(part.func, (ast.Attribute, ast.Name))
        and (part.func.attr if isinstance(part.func, ast.Attribute) else part.func.id) in _JOINS
        for part in ast.walk(source)
    )  # fmt: skip


def _loaded(target: ast.Name | ast.Attribute | ast.Subscript) -> ast.expr:
    """The target of an augmented assignment, as it is read."""
    if isinstance(target, ast.Name):
        return ast.copy_location(ast.Name(target.id, ast.Load()), target)
    if isinstance(target, ast.Attribute):
        return ast.copy_location(ast.Attribute(target.value, target.attr, ast.Load()), target)
    return ast.copy_location(ast.Subscript(target.value, target.slice, ast.Load()), target)
