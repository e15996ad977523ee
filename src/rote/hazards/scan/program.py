"""The functions and classes of a file, and which functions a capture would run.

Nothing is imported and no types are known: a capture is taken to run ``forward`` of a module, a function
that is passed to ``rote.graph`` or ``make_graphed_callables``, and what these call by a name of the same
file. Every other function with tensors among its parameters is read as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field
from enum import IntEnum

from ...base import Site
from .evidence import FunctionNode, tensor_parameters
from .syntax import Imports, decorators, last_name, names, self_attribute
from .values import Inferred

GRAPHERS = frozenset({
    "rote.graph", "torch.cuda.make_graphed_callables", "torch.cuda.graphs.make_graphed_callables",
})  # fmt: skip
CAPTURES = frozenset({"torch.cuda.graph", "torch.cuda.graphs.graph"})

_SETUP = names("setup")
_BASES = ("Module", "Model", "Layer", "Block", "Mixin", "Module2d", "Net", "Head", "Encoder", "Decoder")


class Reach(IntEnum):
    """How certain it is that a capture runs a function."""

    NONE = 0
    TENSORS = 1
    FORWARD = 2
    GRAPHED = 3


@dataclass(eq=False)
class SourceClass:
    """A class of the file.

    Attributes:
        is_module: It has a base class, and a ``forward`` or a base that is a module by its name.
        is_function: It is a ``torch.autograd.Function``.
        attributes: The attributes of ``self``, from ``__init__`` and the class body.
    """

    node: ast.ClassDef
    is_module: bool
    is_function: bool
    methods: dict[str, SourceFunction] = field(default_factory=dict)
    attributes: dict[str, Inferred] = field(default_factory=dict)


@dataclass(eq=False)
class SourceFunction:
    """A function of the file.

    Attributes:
        self_name: What it calls ``self``; empty if it is no method.
        path: The lines that led to it, from the entry on.
        inner: Functions defined in it, by name.
    """

    node: FunctionNode
    name: str
    owner: SourceClass | None
    outer: SourceFunction | None
    self_name: str
    reach: Reach = Reach.NONE
    path: tuple[Site, ...] = ()
    inner: dict[str, SourceFunction] = field(default_factory=dict)

    def nodes(self) -> Iterator[ast.AST]:
        """Its nodes, without those of functions and classes inside (lambdas count as its own)."""
        return _nodes(self.node)


class ScannedFile:
    """A file's functions and classes.

    Attributes:
        classes: Its classes by name; of several with one name, the last.
        top: The functions of the file itself, by name.
        captures: Whether it captures graphs.
    """

    def __init__(self, tree: ast.Module, imports: Imports, file: str) -> None:
        self.tree = tree
        self.imports = imports
        self.file = file
        self.functions: list[SourceFunction] = []
        self.classes: dict[str, SourceClass] = {}
        self.every_class: list[SourceClass] = []
        self.top: dict[str, SourceFunction] = {}
        self._collect(tree, None, None)
        self.captures = self._uses(ast.walk(tree), CAPTURES | GRAPHERS | {"torch.cuda.CUDAGraph"})
        self._find_entries()
        self._follow()
        self._add_functions_of_tensors()
        self._follow()

    def lookup(self, function: SourceFunction | None, name: str) -> SourceFunction | None:
        """The function that a name means inside of another function."""
        while function is not None:
            if name in function.inner:
                return function.inner[name]
            function = function.outer
        return self.top.get(name)

    def method(self, owner: SourceClass | None, name: str) -> SourceFunction | None:
        """A method of a class or of its bases in this file."""
        seen: set[int] = set()
        while owner is not None and id(owner) not in seen:
            seen.add(id(owner))
            if name in owner.methods:
                return owner.methods[name]
            bases = map(last_name, owner.node.bases)
            owner = next((self.classes[base] for base in bases if base in self.classes), None)
        return None

    def _collect(self, node: ast.AST, owner: SourceClass | None, outer: SourceFunction | None) -> None:
        """The functions and classes below a node of a class or a function."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                self._collect(child, self._class(child), outer)
            elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                self._collect(child, None, self._function(child, owner, outer))
            else:
                self._collect(child, owner, outer)

    def _function(
        self, node: FunctionNode, owner: SourceClass | None, outer: SourceFunction | None
    ) -> SourceFunction:
        name, self_name = "<lambda>", ""
        if not isinstance(node, ast.Lambda):
            name = node.name
            positional = [*node.args.posonlyargs, *node.args.args]
            static = any(last_name(e) in ("staticmethod", "classmethod") for e in node.decorator_list)
            self_name = positional[0].arg if owner is not None and positional and not static else ""
        function = SourceFunction(node, name, owner, outer, self_name)
        self.functions.append(function)
        if owner is not None:
            owner.methods.setdefault(name, function)
        elif outer is not None:
            outer.inner.setdefault(name, function)
        else:
            self.top[name] = function
        return function

    def _class(self, node: ast.ClassDef) -> SourceClass:
        bases = [self.imports.resolve(base) or last_name(base) for base in node.bases]
        is_function = any(base.endswith("autograd.Function") for base in bases)
        has_forward = any(isinstance(item, ast.FunctionDef) and item.name == "forward" for item in node.body)
        inherited = any(base in self.classes and self.classes[base].is_module for base in bases)
        named = any(base.endswith(_BASES) for base in bases)
        is_module = bool(node.bases) and (has_forward or named or inherited) and not is_function
        found = SourceClass(node, is_module, is_function)
        self.classes[node.name] = found
        self.every_class.append(found)
        return found

    def _uses(self, nodes: Iterable[ast.AST], dotted: Set[str]) -> bool:
        names = (node for node in nodes if isinstance(node, (ast.Attribute, ast.Name)))
        return any(self.imports.resolve(node) in dotted for node in names)

    def _find_entries(self) -> None:
        for function in self.functions:
            owner, node = function.owner, function.node
            if owner is not None and (
                (owner.is_module and function.name == "forward")
                or (owner.is_function and function.name in ("forward", "backward", "vmap"))
            ):
                function.reach = Reach.FORWARD
            if not isinstance(node, ast.Lambda) and any(
                self.imports.resolve(called) in GRAPHERS for _, called in decorators(node)
            ):
                function.reach = Reach.GRAPHED
        for scope in (None, *self.functions):
            for node in _nodes(self.tree if scope is None else scope.node):
                if isinstance(node, ast.Call) and node.args and self.imports.resolve(node.func) in GRAPHERS:
                    target = self._target(node.args[0], scope)
                    if target is not None:
                        target.reach = Reach.GRAPHED

    def _target(self, node: ast.expr, scope: SourceFunction | None) -> SourceFunction | None:
        if isinstance(node, ast.Lambda):
            return next((each for each in self.functions if each.node is node), None)
        if isinstance(node, ast.Name):
            return self.lookup(scope, node.id)
        if isinstance(node, ast.Attribute):
            if scope is not None and self_attribute(node, scope.self_name):
                return self.method(scope.owner, node.attr)
            methods = [owner.methods[node.attr] for owner in self.every_class if node.attr in owner.methods]
            return methods[0] if len(methods) == 1 else None
        return None

    def _follow(self) -> None:
        todo = [function for function in self.functions if function.reach]
        while todo:
            function = todo.pop()
            for called, line in self._called(function):
                if called.reach < function.reach and called.name != "__init__":
                    called.reach = function.reach
                    called.path = (*function.path, Site(self.file, line, function.name))
                    todo.append(called)

    def _called(self, function: SourceFunction) -> Iterator[tuple[SourceFunction, int]]:
        for node in function.nodes():
            found: SourceFunction | None = None
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                name = self_attribute(node.func, function.self_name)
                found = self.method(function.owner, name) if name else None
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                found = self.lookup(function, node.id)
            if found is not None and found is not function:
                yield found, getattr(node, "lineno", 0)
        for inner in function.inner.values():
            if inner.name == "<lambda>":
                yield inner, inner.node.lineno

    def _add_functions_of_tensors(self) -> None:
        for function in self.functions:
            takes = not function.reach and not self._is_setup(function)
            if takes and tensor_parameters(function.node, self.imports, function.self_name):
                function.reach = Reach.TENSORS

    def _is_setup(self, function: SourceFunction) -> bool:
        """Whether a function is no part of a call, by its name or because it captures graphs itself."""
        name = function.name.lstrip("_")
        if function.name.startswith("__") or any(f"{name}_".startswith(f"{word}_") for word in _SETUP):
            return True
        return self._uses(function.nodes(), CAPTURES | GRAPHERS)


def _nodes(root: ast.AST) -> Iterator[ast.AST]:
    todo = list(ast.iter_child_nodes(root))
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            todo.extend(ast.iter_child_nodes(node))
