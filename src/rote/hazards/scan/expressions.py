"""What an expression is: reads its parts in order and reports host reads on the way."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from . import reads
from .calls import call
from .names import self_attribute
from .values import HOST_ATTRIBUTES, MASK, MAYBE, NUMBER, SHAPE, TENSOR, UNKNOWN, Kind, Value, join

if TYPE_CHECKING:
    from .reader import Reader


def evaluate(reader: Reader, node: ast.expr) -> Value:
    """What an expression is."""
    match node:
        case ast.Constant():
            return NUMBER
        case ast.Name():
            return reader.value(node.id)
        case ast.Attribute():
            return _attribute(reader, node)
        case ast.Call():
            return call(reader, node)
        case ast.BinOp():
            return _binary(reader, node)
        case ast.UnaryOp():
            return _unary(reader, node)
        case ast.Compare():
            return _compare(reader, node)
        case ast.BoolOp():
            return _bool(reader, node)
        case ast.IfExp():
            return _choice(reader, node)
        case ast.Subscript():
            return _subscript(reader, node)
        case ast.JoinedStr():
            return _text(reader, node)
        case ast.NamedExpr():
            value = reader.evaluate(node.value)
            reader.env[node.target.id] = value
            return value
        case ast.List() | ast.Tuple() | ast.Set():
            return _display(reader, node)
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            return _comprehension(reader, node)
        case ast.Dict():
            for value in node.values:
                reader.evaluate(value)
            return Value(Kind.CONTAINER, local=True)
        case ast.Starred() | ast.Await():
            return reader.evaluate(node.value)
        case _:
            return UNKNOWN


def _choice(reader: Reader, node: ast.IfExp) -> Value:
    reads.truth(reader, node.test, reader.evaluate(node.test), "if")
    narrowed, before = reads.narrowed(node.test), dict(reader.env)
    values: list[Value] = []
    for part, holds in ((node.body, True), (node.orelse, False)):
        if narrowed is not None:
            reader.env[narrowed[0]] = TENSOR if narrowed[1] is holds else NUMBER
        values.append(reader.evaluate(part))
        reader.env = dict(before)
    return join(*values)


def _attribute(reader: Reader, node: ast.Attribute) -> Value:
    name = self_attribute(node, reader.self_name)
    if name:
        known = reader.attributes.get(name)
        if known is not None:
            return known._replace(local=False)
        return Value(Kind.DEVICE) if name == "device" else UNKNOWN
    dotted = reader.names.resolve(node)
    if dotted.startswith("torch."):
        return Value(Kind.DTYPE) if dotted.count(".") == 1 else UNKNOWN
    base = reader.evaluate(node.value)
    if node.attr == "shape":
        return SHAPE
    if node.attr == "device":
        return Value(Kind.DEVICE)
    if node.attr == "dtype":
        return Value(Kind.DTYPE)
    if base.is_tensor:
        return NUMBER if node.attr in HOST_ATTRIBUTES else base._replace(argument="")
    if base.kind is Kind.MODULE:
        return TENSOR if node.attr in ("weight", "bias") else Value(Kind.MODULE)
    return MAYBE if base.kind is Kind.MAYBE else UNKNOWN


def _binary(reader: Reader, node: ast.BinOp) -> Value:
    left, right = reader.evaluate(node.left), reader.evaluate(node.right)
    if isinstance(node.op, ast.Mod) and _is_text(node.left):
        parts = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
        for part in parts:
            reads.formatted(reader, part, reader.evaluate(part))
        return NUMBER
    if left.is_tensor or right.is_tensor:
        return _combined(left, right)
    if Kind.MAYBE in (left.kind, right.kind):
        return MAYBE
    if left.kind is Kind.NUMBER and right.kind is Kind.NUMBER:
        return NUMBER
    if Kind.LIST in (left.kind, right.kind) or Kind.ARRAY in (left.kind, right.kind):
        return left if left.kind in (Kind.LIST, Kind.ARRAY) else right
    return UNKNOWN


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _combined(left: Value, right: Value) -> Value:
    tensors = [value for value in (left, right) if value.is_tensor]
    others = [value for value in (left, right) if not value.is_tensor]
    host = all(value.host for value in tensors) and all(value.kind is Kind.NUMBER for value in others)
    drawn = any(value.drawn for value in tensors)
    return Value(
        Kind.TENSOR, mask=all(v.mask for v in tensors) and not others, host=host, drawn=drawn, local=True
    )


def _unary(reader: Reader, node: ast.UnaryOp) -> Value:
    value = reader.evaluate(node.operand)
    if isinstance(node.op, ast.Not):
        reads.truth(reader, node.operand, value, "not")
        return NUMBER
    return value._replace(argument="") if value.is_tensor else value


def _compare(reader: Reader, node: ast.Compare) -> Value:
    values = [reader.evaluate(part) for part in (node.left, *node.comparators)]
    if any(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
        return NUMBER
    if any(isinstance(op, (ast.In, ast.NotIn)) for op in node.ops):
        if values[-1].on_device or (values[0].on_device and values[-1].kind is Kind.LIST):
            reads.read(reader, node, f"{reader.says(node)} compares on the host")
        return NUMBER
    tensors = [value for value in values if value.is_tensor]
    if not tensors:
        if any(value.kind is Kind.MAYBE for value in values):
            return MAYBE
        return UNKNOWN if any(value.kind in (Kind.UNKNOWN, Kind.ARRAY) for value in values) else NUMBER
    if len(node.ops) > 1 and any(value.on_device for value in tensors):
        reads.read(reader, node, f"{reader.says(node)} is two comparisons, the first of which is read")
    host = all(value.host for value in tensors)
    return MASK._replace(host=host, drawn=any(value.drawn for value in tensors))


def _bool(reader: Reader, node: ast.BoolOp) -> Value:
    values = [reader.evaluate(part) for part in node.values]
    word = "and" if isinstance(node.op, ast.And) else "or"
    for part, value in zip(node.values[:-1], values[:-1], strict=True):
        reads.truth(reader, part, value, word)
    return values[-1] if values[-1].is_tensor else NUMBER


def _subscript(reader: Reader, node: ast.Subscript) -> Value:
    base = reader.evaluate(node.value)
    return indexed(reader, node, base)


def indexed(reader: Reader, node: ast.Subscript, base: Value) -> Value:
    """What an indexed expression is; reports masks, lists and tensors among the indices."""
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    values = [_index(reader, part, base) for part in parts]
    if base.kind in (Kind.LIST, Kind.SHAPE, Kind.CONTAINER):
        for part, value in zip(parts, values, strict=True):
            if value.on_device and base.kind is not Kind.CONTAINER:
                reads.read(reader, part, f"{reader.says(node)} reads {reader.says(part)} to index a list")
        return NUMBER if base.kind is Kind.SHAPE else UNKNOWN
    if base.is_tensor:
        if isinstance(node.ctx, ast.Load):
            for part, value in zip(parts, values, strict=True):
                if value.mask and value.is_tensor:
                    reads.selected(reader, node, part)
        for part, value in zip(parts, values, strict=True):
            if isinstance(part, ast.List) or (isinstance(part, ast.Name) and part.id in reader.lists):
                reads.listed(reader, node, part, value)
        return base._replace(argument="" if isinstance(node.ctx, ast.Load) else base.argument, local=True)
    if base.kind is Kind.MAYBE or (base.kind is Kind.UNKNOWN and any(v.mask and v.is_tensor for v in values)):
        if isinstance(node.ctx, ast.Load) and any(v.mask and v.is_tensor for v in values):
            reads.selected(reader, node, parts[0])
        return MAYBE
    return UNKNOWN


def _index(reader: Reader, part: ast.expr, base: Value) -> Value:
    if isinstance(part, ast.Slice):
        for bound in (part.lower, part.upper, part.step):
            value = reader.evaluate(bound)
            if value.on_device and bound is not None:
                reads.read(reader, bound, f"the bound {reader.says(bound)} of a slice is read")
        return UNKNOWN
    value = reader.evaluate(part)
    return MASK if base.is_tensor and reads.is_mask(reader, part) else value


def _text(reader: Reader, node: ast.JoinedStr) -> Value:
    for part in node.values:
        if isinstance(part, ast.FormattedValue):
            reads.formatted(reader, part.value, reader.evaluate(part.value))
    return NUMBER


def _display(reader: Reader, node: ast.List | ast.Tuple | ast.Set) -> Value:
    values = [reader.evaluate(part) for part in node.elts]
    if values and all(value.kind is Kind.NUMBER for value in values):
        return Value(Kind.LIST, local=True)
    if any(value.is_tensor for value in values):
        return Value(Kind.CONTAINER, local=True)
    return Value(Kind.CONTAINER if not values else Kind.UNKNOWN, local=True)


def _comprehension(
    reader: Reader, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
) -> Value:
    before = dict(reader.env)
    for part in node.generators:
        items = reader.evaluate(part.iter)
        item = items._replace(argument="") if items.is_tensor else UNKNOWN
        if items.kind in (Kind.SHAPE, Kind.NUMBER, Kind.LIST):
            item = NUMBER
        for name in ast.walk(part.target):
            if isinstance(name, ast.Name):
                reader.env[name.id] = item
        for test in part.ifs:
            reads.truth(reader, test, reader.evaluate(test), "if")
    if isinstance(node, ast.DictComp):
        reader.evaluate(node.key)
        reader.evaluate(node.value)
        value = UNKNOWN
    else:
        value = reader.evaluate(node.elt)
    reader.env = before
    if isinstance(node, ast.GeneratorExp):
        return Value(Kind.ITERATOR, local=True)
    return Value(Kind.LIST if value.kind is Kind.NUMBER else Kind.CONTAINER, local=True)
