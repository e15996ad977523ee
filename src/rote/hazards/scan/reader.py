"""Reads one function, statement by statement, and infers what its names are.

Both branches of an ``if`` start from what was known before it, and are joined after it; bodies of loops are
read once. A function that no capture runs is read silently, for its names, which functions inside of it use;
only its blocks of ``with torch.cuda.graph(...)`` are reported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from .expressions import evaluate, narrowed
from .program import CAPTURES, Reach
from .scope import Scope
from .stores import ambient, assign, augment, bind, lazily_made, looped
from .transfers import tested
from .values import NUMBER, TENSOR, UNKNOWN, Inferred, item_of, join


class Reader(Scope):
    """Reads the nodes of one function in order."""

    def read(self) -> Reader:
        """Read the whole function, or the file's own statements."""
        node = self.function.node if self.function is not None else self.program.tree
        if isinstance(node, ast.Lambda):
            self.evaluate(node.body)
        else:
            self._block(node.body)
        return self

    def evaluate(self, node: ast.expr | None) -> Inferred:
        """What an expression is; reports its hazards."""
        return UNKNOWN if node is None else evaluate(self, node)

    def _block(self, *bodies: Iterable[ast.stmt]) -> None:
        for body in bodies:
            for statement in body:
                self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign():
                value = self.evaluate(node.value)
                for target in node.targets:
                    assign(self, target, node.value, value)
            case ast.AnnAssign() if node.value is not None:
                assign(self, node.target, node.value, self.evaluate(node.value))
            case ast.AugAssign():
                augment(self, node)
            case ast.Expr():
                ambient(self, node.value)
                self.evaluate(node.value)
            case ast.Return():
                self.evaluate(node.value)
            case ast.If():
                self._branch(node)
            case ast.While():
                tested(self, node.test, "while")
                self._block(node.body, node.orelse)
            case ast.For() | ast.AsyncFor():
                self._loop(node)
            case ast.With() | ast.AsyncWith():
                self._with(node)
            case ast.Try():
                handlers = (handler.body for handler in node.handlers)
                self._block(node.body, *handlers, node.orelse, node.finalbody)
            case ast.Assert():
                tested(self, node.test, "assert")
            case ast.Raise():
                self.raising = True
                self.evaluate(node.exc)
                self.raising = False
            case ast.Global() | ast.Nonlocal():
                self.declared.update(node.names)
            case ast.Delete():
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self.env.pop(target.id, None)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self.env[node.name] = Inferred(local=True)
            case _:
                pass

    def _branch(self, node: ast.If) -> None:
        tested(self, node.test, "if")
        lazy = lazily_made(self, node)
        self.lazy |= lazy
        before = dict(self.env)
        name = narrowed(node.test)
        if name is not None:
            self.env[name[0]] = TENSOR if name[1] else NUMBER
        self._block(node.body)
        self.lazy -= lazy
        after, self.env = self.env, before
        self._block(node.orelse)
        if not isinstance(node.body[-1], (ast.Return, ast.Raise, ast.Continue, ast.Break)):
            both = {name: join(after[name], self.env[name]) for name in after.keys() & self.env.keys()}
            self.env = {**after, **self.env, **both}

    def _loop(self, node: ast.For | ast.AsyncFor) -> None:
        items = self.evaluate(node.iter)
        looped(self, node.iter, items)
        several = self._in_step(node.iter)
        if isinstance(node.target, ast.Tuple) and len(node.target.elts) == len(several):
            for target, value in zip(node.target.elts, several, strict=True):
                bind(self, target, value)
        else:
            bind(self, node.target, item_of(items))
        self._block(node.body, node.orelse)

    def _in_step(self, node: ast.expr) -> list[Inferred]:
        """What the items of ``enumerate(x)`` and ``zip(x, y)`` are."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            return []
        values = [item_of(self.evaluate(part)) for part in node.args]
        if node.func.id == "enumerate":
            return [NUMBER, *values[:1]]
        return values if node.func.id == "zip" else []

    def _with(self, node: ast.With | ast.AsyncWith) -> None:
        reach = self.reach
        for item in node.items:
            call = item.context_expr
            value = self.evaluate(call)
            if item.optional_vars is not None:
                bind(self, item.optional_vars, value)
        if reach < Reach.FORWARD and any(self._captures(item.context_expr) for item in node.items):
            self.reach = Reach.GRAPHED
        self._block(node.body)
        self.reach = reach

    def _captures(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and self.imports.resolve(node.func) in CAPTURES
