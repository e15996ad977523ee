"""Expressions that replace hazards: kernels instead of Python numbers, ``device=``, ``torch.where``."""

from __future__ import annotations

import ast
from collections.abc import Callable

Say = Callable[[ast.AST], str]
"""Gives the source text of a node."""

MOST = 8
"""Numbers of a list, at most, that become one kernel each."""

_FACTORIES = frozenset({"zeros", "ones", "full", "eye"})
_KEPT = frozenset({"device", "dtype"})


def filled(call: ast.Call, say: Say) -> str | None:
    """``torch.full(...)`` for ``torch.tensor(0.5, device=d)``; None if it is not certain."""
    if len(call.args) != 1 or {each.arg for each in call.keywords} - _KEPT:
        return None
    if ast.unparse(call.func) != "torch.tensor" or not any(each.arg == "device" for each in call.keywords):
        return None
    keywords = "".join(f", {each.arg}={say(each.value)}" for each in call.keywords)
    value = call.args[0]
    if _number(value) is not None:
        return f"torch.full((), {say(value)}{keywords})"
    if not isinstance(value, (ast.List, ast.Tuple)) or not value.elts:
        return None
    numbers = [_number(each) for each in value.elts]
    if any(each is None for each in numbers) or len({type(each) for each in numbers}) != 1:
        return None
    texts = [say(each) for each in value.elts]
    if len(set(texts)) == 1:
        return f"torch.full(({len(texts)},), {texts[0]}{keywords})"
    if all(type(each) is int for each in numbers) and numbers == list(range(len(numbers))):
        return f"torch.arange({len(numbers)}{keywords})"
    if len(texts) > MOST:
        return None
    return f"torch.stack([{', '.join(f'torch.full((), {text}{keywords})' for text in texts)}])"


def placed(call: ast.Call, say: Say) -> str | None:
    """``torch.zeros(n, device=x.device)`` for ``torch.zeros(n).to(x.device)``; None if it is not certain.

    The factory has to give the same values on every device, and the target has to be called ``device``.
    """
    match call:
        case ast.Call(ast.Attribute(ast.Call() as made, "to"), [ast.Attribute(_, "device") as target], []):
            pass
        case ast.Call(ast.Attribute(ast.Call() as made, "to"), [], [ast.keyword("device", target)]):
            if not isinstance(target, ast.Attribute) or target.attr != "device":
                return None
        case _:
            return None
    space, _, factory = ast.unparse(made.func).partition(".")
    counted = factory == "arange" and all(type(_number(each)) is int for each in made.args)
    if space != "torch" or not (factory in _FACTORIES or counted):
        return None
    if {each.arg for each in made.keywords} - {"dtype"}:
        return None
    inside = say(made)[:-1].rstrip().removesuffix(",")
    return f"{inside}, device={say(target)})"


def summed(node: ast.Subscript, say: Say) -> str | None:
    """``torch.where(x > 2, x, 0)`` for ``x[x > 2]``, of which the sum is taken; None if it is not certain.

    The mask has to compare the tensor itself with a number: then it has the tensor's shape.
    """
    base, mask = ast.unparse(node.value), node.slice
    if not isinstance(node.value, ast.Name):
        return None
    plain = mask.operand if isinstance(mask, ast.UnaryOp) and isinstance(mask.op, ast.Invert) else mask
    compares = (
        isinstance(plain, ast.Compare) and len(plain.ops) == 1 and ast.unparse(plain.left) == base
        and _number(plain.comparators[0]) is not None
    )  # fmt: skip
    asks = ast.unparse(plain) in (f"{base}.isnan()", f"{base}.isfinite()", f"{base}.isinf()")
    return f"torch.where({say(mask)}, {base}, 0)" if compares or asks else None


def _number(node: ast.expr) -> bool | int | float | complex | None:
    """The value of a literal number, with its sign, or ``float("inf")``."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value = _number(node.operand)
        if value is None or isinstance(value, bool):
            return None
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
        small = not isinstance(node.value, int) or abs(node.value) < 1 << 62
        return node.value if small else None
    text = ast.unparse(node).replace('"', "'")
    if text in ("float('inf')", "float('-inf')", "float('nan')"):
        return float(text[7:-2])
    return None
