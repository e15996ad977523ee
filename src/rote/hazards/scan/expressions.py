"""Evaluates an expression: reads its parts in order, and reports host reads on the way."""

from __future__ import annotations

import ast

from .. import rules
from .calls import function_call
from .methods import method_call
from .scope import Scope
from .syntax import names, parts_of_index, self_attribute, text_literal, text_of
from .transfers import formatted, is_mask, listed, selected, tested
from .values import MASK, MAYBE, NUMBER, SHAPE, TENSOR, UNKNOWN, Inferred, Type, item_of, join, made

_HOST_ATTRIBUTES = names("host_attributes")
_ATTRIBUTES = {"shape": SHAPE, "device": Inferred(Type.DEVICE), "dtype": Inferred(Type.DTYPE)}


def evaluate(scope: Scope, node: ast.expr) -> Inferred:
    """What an expression is."""
    match node:
        case ast.Constant():
            return NUMBER
        case ast.Name():
            return scope.value(node.id)
        case ast.Attribute():
            return _attribute(scope, node)
        case ast.Call():
            dotted = scope.imports.resolve(node.func)
            if not dotted and isinstance(node.func, ast.Attribute):
                return method_call(scope, node, node.func)
            return function_call(scope, node, dotted)
        case ast.BinOp():
            return _binary(scope, node)
        case ast.UnaryOp():
            value = scope.evaluate(node.operand)
            if isinstance(node.op, ast.Not):
                tested(scope, node.operand, "not", value)
                return NUMBER
            return value.derived if value.is_tensor else value
        case ast.Compare():
            return _compare(scope, node)
        case ast.BoolOp():
            return _bool(scope, node)
        case ast.IfExp():
            return _choice(scope, node)
        case ast.Subscript():
            return _subscript(scope, node)
        case ast.JoinedStr():
            for part in node.values:
                if isinstance(part, ast.FormattedValue):
                    formatted(scope, part.value, scope.evaluate(part.value))
            return NUMBER
        case ast.NamedExpr():
            value = scope.env[node.target.id] = scope.evaluate(node.value)
            return value
        case ast.List() | ast.Tuple() | ast.Set():
            return _display(scope, node)
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            return _comprehension(scope, node)
        case ast.Dict():
            for each in node.values:
                scope.evaluate(each)
            return made(Type.CONTAINER)
        case ast.Starred() | ast.Await():
            return scope.evaluate(node.value)
        case _:
            return UNKNOWN


def narrowed(test: ast.expr) -> tuple[str, bool] | None:
    """A name that a test shows to be a tensor (True) or none (False)."""
    negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    call = test.operand if isinstance(test, ast.UnaryOp) and negated else test
    if not isinstance(call, ast.Call) or not call.args or not isinstance(call.args[0], ast.Name):
        return None
    text = ast.unparse(call)
    if text.startswith("torch.is_tensor(") or (text.startswith("isinstance(") and text.endswith("Tensor)")):
        return call.args[0].id, not negated
    return None


def _choice(scope: Scope, node: ast.IfExp) -> Inferred:
    tested(scope, node.test, "if")
    name, before = narrowed(node.test), dict(scope.env)
    values: list[Inferred] = []
    for part, holds in ((node.body, True), (node.orelse, False)):
        if name is not None:
            scope.env[name[0]] = TENSOR if name[1] is holds else NUMBER
        values.append(scope.evaluate(part))
        scope.env = dict(before)
    return join(*values)


def _attribute(scope: Scope, node: ast.Attribute) -> Inferred:
    name = self_attribute(node, scope.self_name)
    if name in scope.attributes:
        return scope.attributes[name]._replace(local=False)
    if name:
        return Inferred(Type.DEVICE) if name == "device" else UNKNOWN
    dotted = scope.imports.resolve(node)
    if dotted.startswith("torch."):
        return Inferred(Type.DTYPE) if dotted.count(".") == 1 else UNKNOWN
    base = scope.evaluate(node.value)
    if node.attr in _ATTRIBUTES:
        return _ATTRIBUTES[node.attr]
    if base.is_tensor:
        return NUMBER if node.attr in _HOST_ATTRIBUTES else base.derived
    if base.type is Type.MODULE:
        return TENSOR if node.attr in ("weight", "bias") else Inferred(Type.MODULE)
    return MAYBE if base.type is Type.MAYBE else UNKNOWN


def _binary(scope: Scope, node: ast.BinOp) -> Inferred:
    values = left, right = scope.evaluate(node.left), scope.evaluate(node.right)
    is_text = isinstance(node.left, ast.JoinedStr) or bool(text_literal(node.left))
    if isinstance(node.op, ast.Mod) and is_text:
        for part in node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]:
            formatted(scope, part, scope.evaluate(part))
        return NUMBER
    tensors = [value for value in values if value.is_tensor]
    if tensors:
        others = [value for value in values if not value.is_tensor]
        return TENSOR._replace(
            mask=all(value.mask for value in tensors) and not others,
            host=all(v.host for v in tensors) and all(v.type is Type.NUMBER for v in others),
            drawn=any(value.drawn for value in tensors),
        )
    if Type.MAYBE in (left.type, right.type):
        return MAYBE
    if left.type is Type.NUMBER and right.type is Type.NUMBER:
        return NUMBER
    return next((value for value in values if value.type in (Type.LIST, Type.ARRAY)), UNKNOWN)


def _compare(scope: Scope, node: ast.Compare) -> Inferred:
    values = [scope.evaluate(part) for part in (node.left, *node.comparators)]
    if any(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
        return NUMBER
    if any(isinstance(op, (ast.In, ast.NotIn)) for op in node.ops):
        if values[-1].on_device or (values[0].on_device and values[-1].type is Type.LIST):
            scope.found(rules.HOST_READ, node, "compares on the host")
        return NUMBER
    tensors = [value for value in values if value.is_tensor]
    if not tensors:
        if any(value.type is Type.MAYBE for value in values):
            return MAYBE
        return UNKNOWN if any(value.type in (Type.UNKNOWN, Type.ARRAY) for value in values) else NUMBER
    if len(node.ops) > 1 and any(value.on_device for value in tensors):
        scope.found(rules.HOST_READ, node, "is two comparisons, the first of which is read")
    host, drawn = all(value.host for value in tensors), any(value.drawn for value in tensors)
    return MASK._replace(host=host, drawn=drawn)


def _bool(scope: Scope, node: ast.BoolOp) -> Inferred:
    values = [scope.evaluate(part) for part in node.values]
    for part, value in zip(node.values[:-1], values[:-1], strict=True):
        tested(scope, part, "and" if isinstance(node.op, ast.And) else "or", value)
    return values[-1] if values[-1].is_tensor else NUMBER


def _subscript(scope: Scope, node: ast.Subscript) -> Inferred:
    """Evaluates an index; reports masks, lists and tensors among the indices."""
    base = scope.evaluate(node.value)
    parts = parts_of_index(node)
    indices = [(part, _index(scope, part, base)) for part in parts]
    masks = [part for part, value in indices if value.is_mask]
    loads = isinstance(node.ctx, ast.Load)
    if base.type in (Type.LIST, Type.SHAPE, Type.CONTAINER):
        for part, value in indices:
            if value.on_device and base.type is not Type.CONTAINER:
                text = f"{text_of(node)} reads {text_of(part)} to index a list"
                scope.report(rules.HOST_READ, part, text)
        return NUMBER if base.type is Type.SHAPE else UNKNOWN
    if base.is_tensor:
        for part in masks if loads else ():
            selected(scope, node, part)
        for part, value in indices:
            if isinstance(part, ast.List) or (isinstance(part, ast.Name) and part.id in scope.lists):
                listed(scope, node, part, value)
        return base._replace(argument="" if loads else base.argument, local=True)
    if base.type is Type.MAYBE or (base.type is Type.UNKNOWN and masks):
        if loads and masks:
            selected(scope, node, parts[0])
        return MAYBE
    return UNKNOWN


def _index(scope: Scope, part: ast.expr, base: Inferred) -> Inferred:
    if isinstance(part, ast.Slice):
        for bound in (part.lower, part.upper, part.step):
            if bound is not None and scope.evaluate(bound).on_device:
                scope.report(rules.HOST_READ, bound, f"the bound {text_of(bound)} of a slice is read")
        return UNKNOWN
    value = scope.evaluate(part)
    return MASK if base.is_tensor and is_mask(scope, part) else value


def _display(scope: Scope, node: ast.List | ast.Tuple | ast.Set) -> Inferred:
    values = [scope.evaluate(part) for part in node.elts]
    if values and all(value.type is Type.NUMBER for value in values):
        return made(Type.LIST)
    holds_tensors = any(value.is_tensor for value in values)
    return made(Type.CONTAINER if holds_tensors or not values else Type.UNKNOWN)


def _comprehension(
    scope: Scope, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
) -> Inferred:
    before = dict(scope.env)
    for part in node.generators:
        items = scope.evaluate(part.iter)
        item = UNKNOWN if items.type is Type.MAYBE else item_of(items)
        for name in ast.walk(part.target):
            if isinstance(name, ast.Name):
                scope.env[name.id] = item
        for test in part.ifs:
            tested(scope, test, "if")
    if isinstance(node, ast.DictComp):
        scope.evaluate(node.key)
        scope.evaluate(node.value)
        value = UNKNOWN
    else:
        value = scope.evaluate(node.elt)
    scope.env = before
    if isinstance(node, ast.GeneratorExp):
        return made(Type.ITERATOR)
    return made(Type.LIST if value.type is Type.NUMBER else Type.CONTAINER)
