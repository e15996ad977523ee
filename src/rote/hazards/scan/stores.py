"""Stores of a call: attributes, globals, containers, arguments written in place."""

from __future__ import annotations

import ast
from copy import copy

from .. import rules
from ..rules import Severity
from .program import Reach
from .scope import Scope
from .syntax import is_literal, last_name, parts_of_index, root_name, self_attribute, text_of
from .transfers import is_mask
from .values import NUMBER, UNKNOWN, Inferred, Type

_JOINS = ("cat", "concat", "concatenate", "stack", "hstack", "vstack")


# ------------------------------------------------------------------ statements


def assign(scope: Scope, target: ast.expr, source: ast.expr, value: Inferred) -> None:
    """``target = source``."""
    match target:
        case ast.Name():
            if target.id in scope.declared and not scope.is_inside:
                scope.found(rules.STATE_CHANGES, target, "is a variable of an outer scope")
            scope.env[target.id] = value
            listed = isinstance(source, ast.List) and value.type is Type.LIST
            (scope.lists.add if listed else scope.lists.discard)(target.id)
        case ast.Tuple() | ast.List():
            if isinstance(source, (ast.Tuple, ast.List)) and len(source.elts) == len(target.elts):
                for part, each in zip(target.elts, source.elts, strict=True):
                    assign(scope, part, each, scope.evaluate(each))
            else:
                for part in target.elts:
                    assign(scope, part, source, _part(value))
        case ast.Starred():
            bind(scope, target.value, UNKNOWN)
        case ast.Attribute():
            _attribute(scope, target, source, value)
        case ast.Subscript():
            _item(scope, target, value)
        case _:
            pass


def bind(scope: Scope, target: ast.expr, value: Inferred) -> None:
    """Bind names, without reports."""
    for node in ast.walk(target):
        if isinstance(node, ast.Name):
            scope.env[node.id] = _part(value) if node is not target else value


def _part(value: Inferred) -> Inferred:
    if value.may_be_tensor:
        return value.derived
    return NUMBER if value.type is Type.SHAPE else UNKNOWN


def augment(scope: Scope, node: ast.AugAssign) -> None:
    """``target += value``."""
    value = scope.evaluate(node.value)
    target = node.target
    before = scope.evaluate(_loaded(target))
    match target:
        case ast.Name():
            if target.id in scope.declared:
                if not scope.is_inside:
                    scope.found(rules.STATE_CHANGES, node, "changes a variable of an outer scope")
            elif before.is_tensor:
                mutated(scope, node, before)
            elif value.is_tensor:
                scope.env[target.id] = value.derived
        case ast.Attribute():
            if before.is_tensor or value.is_tensor:
                return  # in place, if it is a tensor
            if self_attribute(target, scope.self_name) or not scope.is_local(root_name(target)):
                scope.found(rules.STATE_CHANGES, node, "changes Python state, which a replay does not")
        case ast.Subscript():
            mutated(scope, node, scope.evaluate(target.value))


def _loaded(target: ast.Name | ast.Attribute | ast.Subscript) -> ast.expr:
    """The target of an augmented assignment, as it is read."""
    loaded = copy(target)
    loaded.ctx = ast.Load()
    return loaded


def looped(scope: Scope, node: ast.expr, items: Inferred) -> None:
    """``for item in iterator``: the call advances an iterator that was made outside."""
    outer = isinstance(node, ast.Name) and not scope.is_local(node.id)
    if items.type is Type.ITERATOR and (outer or self_attribute(node, scope.self_name)):
        text = f"the loop advances {text_of(node)}, which was made outside of the call"
        scope.report(rules.STATE_CHANGES, node, text)


def ambient(scope: Scope, node: ast.expr) -> None:
    """A statement that sets a mode and leaves it set."""
    if isinstance(node, ast.Call) and scope.imports.resolve(node.func) == "torch.set_grad_enabled":
        scope.found(rules.AMBIENT_CHANGES, node, "stays set after the call")


def lazily_made(scope: Scope, node: ast.If) -> set[str]:
    """Attributes that a branch makes because they are not there yet, or because a flag says so."""
    text, owner = ast.unparse(node.test), scope.self_name
    found: set[str] = set()
    parts = [part for statement in node.body for part in ast.walk(statement)]
    flagged = any(text == f"not {owner}.{_flag(statement, owner)}" for statement in node.body)
    for each in parts:
        if isinstance(each, (ast.Attribute, ast.Subscript)) and isinstance(each.ctx, ast.Store):
            name = self_attribute(each.value if isinstance(each, ast.Subscript) else each, owner)
            asked = (
                f"not in {owner}.{name}",
                f"{owner}.{name} is None",
                f"not hasattr({owner}, '{name}')",
                f"not {owner}.{name}",
                f"getattr({owner}, '{name}', None) is None",
            )
            if name and (flagged or any(part in text for part in asked)):
                found.add(name)
    return found


def _flag(node: ast.stmt, owner: str) -> str:
    """The attribute that a statement sets to True; empty if it does something else."""
    if not isinstance(node, ast.Assign) or not is_literal(node.value, True):
        return ""
    return self_attribute(node.targets[0], owner)


# ------------------------------------------------------------------ calls


def advanced(scope: Scope, node: ast.expr, source: ast.expr) -> None:
    """``next(iterator)``: the call advances an iterator that was made outside."""
    outer = isinstance(source, ast.Name) and not scope.is_local(source.id) and source.id in scope.outside
    if outer or self_attribute(source, scope.self_name):
        scope.found(rules.STATE_CHANGES, node, "takes another value at every call")


def mutated(scope: Scope, node: ast.expr | ast.stmt, base: Inferred, text: str = "") -> None:
    """A write into a tensor, which may be an argument."""
    if base.is_tensor and base.argument:
        text = text or text_of(node)
        scope.report(rules.ARGUMENT_MUTATED, node, f"{text} changes the argument {base.argument} in place")


# ------------------------------------------------------------------ attributes and items


def _attribute(scope: Scope, target: ast.Attribute, source: ast.expr, value: Inferred) -> None:
    name = self_attribute(target, scope.self_name)
    if scope.imports.resolve(target).startswith("torch.backends."):
        scope.found(rules.AMBIENT_CHANGES, target, "stays set after the call")
    elif target.attr == "data" and not name:
        scope.found(rules.TENSOR_MOVED, target, "is bound to other memory")
    elif target.attr == "grad":
        if not is_literal(source, None):  # inside of the call a gradient may be made anew
            text = "is replaced; write into it with copy_"
            scope.found(rules.GRADIENT_MOVED, target, text, severity=Severity.SPEED)
    elif name:
        _own_attribute(scope, target, name, source, value)
    else:
        _other_attribute(scope, target, value)


def _own_attribute(scope: Scope, target: ast.Attribute, name: str, source: ast.expr, value: Inferred) -> None:
    parts = [part for part in ast.walk(source) if isinstance(part, ast.expr)]
    again = any(self_attribute(part, scope.self_name) == name for part in parts)
    joins = any(isinstance(part, ast.Call) and last_name(part.func) in _JOINS for part in parts)
    if name in scope.lazy:
        scope.found(rules.LAZY_STATE, target, "is made in the first call that needs it")
    elif isinstance(source, ast.Call) and scope.imports.resolve(source.func) == "torch.nn.Parameter":
        scope.found(rules.TENSOR_MOVED, target, "is a new parameter in every call")
    elif again and joins:
        scope.found(rules.GROWING, target, "grows with every call")
    elif value.may_be_tensor and not value.argument:
        scope.found(rules.SCALE_ON_SELF, target, "keeps a tensor that this call computes")
    elif value.is_tensor:
        scope.found(rules.STATE_CHANGES, target, f"keeps the argument {value.argument}")
    elif again or isinstance(source, ast.IfExp):
        scope.found(rules.STATE_CHANGES, target, "is another value after every call")
    elif not is_literal(source, None):
        text = "is assigned, which a replay does not do"
        scope.found(rules.STATE_CHANGES, target, text, severity=Severity.SPEED)
    if value.type is not Type.UNKNOWN:
        scope.attributes.setdefault(name, value.derived)


def _other_attribute(scope: Scope, target: ast.Attribute, value: Inferred) -> None:
    """An attribute of another object than ``self``."""
    root = root_name(target)
    base = scope.evaluate(target.value)
    if not root or base.is_tensor or root == scope.self_name or scope.is_local(root):
        return
    if root in scope.env and scope.env[root].argument:
        if root != "ctx":  # an autograd function stores in its context
            text = f"{text_of(target)} is stored in the argument {root}"
            _argument(scope, target, text, again=value.is_tensor)
    elif root in scope.outside and not scope.is_inside:
        rule = rules.SCALE_ON_SELF if value.is_tensor else rules.STATE_CHANGES
        scope.found(rule, target, "keeps a value of this call")


def _item(scope: Scope, target: ast.Subscript, value: Inferred) -> None:
    base = scope.evaluate(target.value)
    scope.evaluate(target)
    text = f"{text_of(target)} = ..."
    if not base.is_tensor:
        contained(scope, target, text, target.value, base, again=value.is_tensor)
        return
    masks = [part for part in parts_of_index(target) if is_mask(scope, part)]
    if masks and ((value.may_be_tensor and not value.number) or value.argument):
        message = f"stores as many elements as the mask {text_of(masks[0])} has true values"
        scope.found(rules.DYNAMIC_SHAPE, target, message)
    else:
        mutated(scope, target, base, text)


def contained(
    scope: Scope, node: ast.expr, text: str, base_node: ast.expr, base: Inferred, *, again: bool = False
) -> None:
    """A change of a container: ``container.append(x)``, ``container[key] = x``."""
    root, name = root_name(base_node), self_attribute(base_node, scope.self_name)
    if not root or base.local or base.type in (Type.TENSOR, Type.MODULE, Type.ARRAY, Type.MAYBE):
        return
    if name:
        if name in scope.lazy:
            scope.report(rules.LAZY_STATE, node, f"{text} is made in the first call that needs it")
        elif base.type in (Type.CONTAINER, Type.LIST):
            scope.report(rules.STATE_CHANGES, node, f"{text} changes a container that the module keeps")
    elif root == scope.self_name or scope.is_local(root):
        return
    elif root in scope.shared:
        message = f"{text} changes the default of {root}, one object for all calls"
        scope.report(rules.MUTABLE_DEFAULT, node, message)
    elif root in scope.env:
        if isinstance(base_node, ast.Name) and not scope.env[root].is_tensor:
            _argument(scope, node, f"{text} changes the argument {root}", again=again)
    elif not scope.is_inside and scope.value(root).type in (Type.CONTAINER, Type.LIST):
        scope.report(rules.STATE_CHANGES, node, f"{text} changes a container made outside of the call")


def _argument(scope: Scope, node: ast.expr, text: str, *, again: bool) -> None:
    """A store into an argument. Only an argument of the outermost function is certainly the caller's.

    With ``again``, each replay stores its own tensor there.
    """
    if scope.reach is not Reach.TENSORS:
        outermost = scope.reach is Reach.GRAPHED and scope.function is not None and not scope.function.path
        severity = Severity.SPEED if again or not outermost else None
        scope.report(rules.ARGUMENT_CHANGED, node, text, severity=severity)
