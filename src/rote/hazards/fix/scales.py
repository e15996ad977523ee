"""A scale that ``forward`` stores on ``self``, as a registered buffer that is updated in place.

``self._scale = value`` becomes ``scale = value`` and ``self._scale.copy_(scale.detach())``, and a later read
in ``forward`` becomes the local name: the call computes exactly what it did, with its gradients, and the
layer shows the value of the last call. It is done only where the value has no dimensions, the attribute is
private, assigned once and used nowhere else in the file, and ``__init__`` makes other state of the module as
well (so that somebody moves it to its device).

Known limits: a module made under ``torch.inference_mode`` and called outside of it refuses the update, and so
does ``vmap`` over the layer.
"""

from __future__ import annotations

import ast
from typing import NamedTuple

from ..scan import self_attribute

_REDUCTIONS = frozenset({"amax", "amin", "max", "min", "mean", "sum", "norm", "std", "var", "median"})
_ELEMENTWISE = frozenset(
    {"clamp", "clamp_min", "clamp_max", "abs", "sqrt", "float", "detach", "exp", "log", "neg"}
)


class Scale(NamedTuple):
    """A scale that can be moved.

    Attributes:
        local: Its name in ``forward``.
        self_name: What ``forward`` calls ``self``.
        end: The last line of ``forward``.
        registered: The line in ``__init__`` that sets it so far, or else the one that calls ``super``.
        made: Whether ``__init__`` sets it so far.
    """

    attribute: str
    local: str
    self_name: str
    line: int
    end: int
    registered: int
    made: bool


def movable(tree: ast.Module, line: int) -> Scale | None:
    """The scale that a line assigns, if it certainly can be moved."""
    for owner in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        for method in owner.body:
            if isinstance(method, ast.FunctionDef) and method.name == "forward" and method.args.args:
                for statement in method.body:
                    if isinstance(statement, ast.Assign) and statement.lineno == line:
                        return _scale(tree, owner, method, statement)
    return None


def _scale(
    tree: ast.Module, owner: ast.ClassDef, method: ast.FunctionDef, statement: ast.Assign
) -> Scale | None:
    target, self_name = statement.targets[0], method.args.args[0].arg
    name = self_attribute(target, self_name)
    if len(statement.targets) != 1 or not name:
        return None
    local = name.strip("_")
    names = {node.id for node in ast.walk(method) if isinstance(node, ast.Name)}
    names |= {node.arg for node in ast.walk(method) if isinstance(node, ast.arg)}
    init = next((m for m in owner.body if isinstance(m, ast.FunctionDef) and m.name == "__init__"), None)
    begins = _super_call(init) if init is not None else None
    if init is None or begins is None or not _has_no_dimensions(statement.value) or not local:
        return None
    if local in names or not local.isidentifier() or "torch" not in _imports(tree):
        return None
    if [each.arg for each in init.args.args[:1]] != ["self"]:
        return None
    functions = [node for node in ast.walk(method) if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    if not name.startswith("_") or len(functions) > 1 or not _has_state(init):
        return None
    uses = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == name]
    inside = {id(node) for node in ast.walk(method)}
    made = [each for each in init.body if isinstance(each, ast.Assign) and _targets(each) == [name]]
    known = {id(node) for each in made for node in ast.walk(each)}
    reads = [node for node in uses if id(node) in inside and node is not target]
    if any(
        node.lineno <= (statement.end_lineno or 0) or not isinstance(node.ctx, ast.Load) for node in reads
    ):
        return None
    if any(id(node) not in inside and id(node) not in known for node in uses) or _mentions(tree, name):
        return None
    if len(made) > 1 or any(not isinstance(each.value, ast.Constant) for each in made):
        return None
    end, registered = method.end_lineno or 0, (made[0] if made else begins).lineno
    return Scale(name, local, self_name, statement.lineno, end, registered, bool(made))


def _has_no_dimensions(node: ast.expr) -> bool:
    """Whether a value is certainly a tensor without dimensions: a full reduction, and arithmetic with it."""
    match node:
        case ast.Call(ast.Attribute(base, name), args, keywords):
            if name in _REDUCTIONS:
                return not args and not keywords
            return name in _ELEMENTWISE and _has_no_dimensions(base)
        case ast.BinOp(left=left, right=right):
            sides = (_has_no_dimensions(left), _has_no_dimensions(right))
            numbers = (isinstance(left, ast.Constant), isinstance(right, ast.Constant))
            return any(sides) and all(a or b for a, b in zip(sides, numbers, strict=True))
        case _:
            return False


def _targets(node: ast.Assign) -> list[str]:
    """The attributes that are assigned."""
    return [each.attr if isinstance(each, ast.Attribute) else "" for each in node.targets]


def _super_call(init: ast.FunctionDef) -> ast.stmt | None:
    return next((each for each in init.body if ast.unparse(each).startswith("super().__init__(")), None)


def _has_state(init: ast.FunctionDef) -> bool:
    """Whether a module has parameters, buffers or modules, which move to the device with it."""
    calls = (node.func for node in ast.walk(init) if isinstance(node, ast.Call))
    return any(ast.unparse(each).startswith(("nn.", "torch.nn.", "self.register_")) for each in calls)


def _imports(tree: ast.Module) -> set[str]:
    imports = (node for node in tree.body if isinstance(node, ast.Import))
    return {alias.asname or alias.name for node in imports for alias in node.names}


def _mentions(tree: ast.Module, name: str) -> bool:
    """Whether the name stands in a string: ``getattr(self, "_scale")``, ``hasattr``."""
    return any(isinstance(node, ast.Constant) and node.value == name for node in ast.walk(tree))
