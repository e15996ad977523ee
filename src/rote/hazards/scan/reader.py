"""Reads one function, statement by statement, and knows what its names are.

Branches are read one after the other, each from what was known before it, and joined; bodies of loops once.
A function that no capture runs is read silently, for what its names are, since functions inside of it use
them; only blocks of ``with torch.cuda.graph(...)`` in it are reported.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from ...base.location import Site
from ..finding import Finding, Severity
from ..rules import Rule
from . import reads, stores
from .evidence import defaults_of, parameter_values
from .expressions import evaluate
from .names import text_of
from .program import CAPTURES, Function, Program, Reach
from .values import MAYBE, NUMBER, TENSOR, UNKNOWN, Kind, Value, join

Env = dict[str, Value]


class Reader:
    """State while one function is read.

    Args:
        program: The file.
        function: The function; None for the file's own statements.
        outside: What the names of the scopes around it are.
        report: Takes the findings.
    """

    def __init__(
        self, program: Program, function: Function | None, outside: Env, report: Callable[[Finding], None]
    ) -> None:
        self.program = program
        self.names = program.names
        self.function = function
        self.outside = outside
        self.reach = function.reach if function is not None else Reach.NONE
        self.self_name = function.self_name if function is not None else ""
        self.attributes = function.owner.attributes if function is not None and function.owner else {}
        self.env: Env = {}
        self.declared: set[str] = set()
        self.lazy: set[str] = set()
        self.lists: set[str] = set()
        self.raising = 0
        self.shared: set[str] = set()
        self._report = report
        if function is not None:
            self.env.update(parameter_values(function.node, program.names, function.self_name))
            self.shared = {
                name
                for name, default in defaults_of(function.node).items()
                if isinstance(default, (ast.List, ast.Dict, ast.Set))
            }

    def read(self) -> Reader:
        """Read the whole function, or the file's own statements."""
        if self.function is None:
            self.block(self.program.tree.body)
        elif isinstance(self.function.node, ast.Lambda):
            self.evaluate(self.function.node.body)
        else:
            self.block(self.function.node.body)
        return self

    def found(
        self,
        rule: Rule,
        node: ast.expr | ast.stmt,
        message: str,
        *,
        severity: Severity | None = None,
        remedy: str | None = None,
    ) -> None:
        """Report a finding, if a capture runs this code."""
        if self.reach is Reach.NONE:
            return
        name = self.function.name if self.function is not None else "<module>"
        where = Site(self.program.file, node.lineno, name)
        path = self.function.path if self.function is not None else ()
        self._report(
            Finding(
                rule.code, severity or rule.severity, where, message, remedy or rule.remedy,
                node.col_offset + 1, path=path,
            )
        )  # fmt: skip

    def value(self, name: str) -> Value:
        """What a name is."""
        if name in self.env:
            return self.env[name]
        return self.outside.get(name, UNKNOWN)

    def is_local(self, name: str) -> bool:
        """Whether a name belongs to the function and was not handed in."""
        return name in self.env and name not in self.declared and not self.env[name].argument

    def evaluate(self, node: ast.expr | None) -> Value:
        """What an expression is; reports what is wrong with it."""
        return UNKNOWN if node is None else evaluate(self, node)

    # ------------------------------------------------------------------ statements

    def block(self, body: Iterable[ast.stmt]) -> None:
        """Read statements in order."""
        for statement in body:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        """Read one statement."""
        match node:
            case ast.Assign():
                value = self.evaluate(node.value)
                for target in node.targets:
                    stores.assign(self, target, node.value, value)
            case ast.AnnAssign() if node.value is not None:
                stores.assign(self, node.target, node.value, self.evaluate(node.value))
            case ast.AugAssign():
                stores.augment(self, node)
            case ast.Expr():
                if not isinstance(node.value, ast.Constant):
                    stores.ambient(self, node.value)
                    self.evaluate(node.value)
            case ast.Return():
                self.evaluate(node.value)
            case ast.If():
                self._branch(node)
            case ast.While():
                reads.truth(self, node.test, self.evaluate(node.test), "while")
                self.block(node.body)
                self.block(node.orelse)
            case ast.For() | ast.AsyncFor():
                self._loop(node)
            case ast.With() | ast.AsyncWith():
                self._with(node)
            case ast.Try():
                for part in (
                    node.body,
                    *(handler.body for handler in node.handlers),
                    node.orelse,
                    node.finalbody,
                ):
                    self.block(part)
            case ast.Assert():
                reads.truth(self, node.test, self.evaluate(node.test), "assert")
            case ast.Raise():
                self.raising += 1
                self.evaluate(node.exc)
                self.raising -= 1
            case ast.Global() | ast.Nonlocal():
                self.declared.update(node.names)
            case ast.Delete():
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self.env.pop(target.id, None)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self.env[node.name] = Value(local=True)
            case _:
                pass

    def _branch(self, node: ast.If) -> None:
        reads.truth(self, node.test, self.evaluate(node.test), "if")
        lazy = stores.lazily_made(self, node)
        self.lazy |= lazy
        before = dict(self.env)
        narrowed = reads.narrowed(node.test)
        if narrowed is not None and narrowed[1]:
            self.env[narrowed[0]] = TENSOR
        if narrowed is not None and not narrowed[1]:
            self.env[narrowed[0]] = NUMBER
        self.block(node.body)
        self.lazy -= lazy
        after, self.env = self.env, before
        self.block(node.orelse)
        if not _leaves(node.body):
            names = after.keys() | self.env.keys()
            self.env = {
                name: join(after[name], self.env[name])
                if name in after and name in self.env
                else after.get(name) or self.env[name]
                for name in names
            }

    def _loop(self, node: ast.For | ast.AsyncFor) -> None:
        items = self.evaluate(node.iter)
        stores.looped(self, node.iter, items)
        several = self._in_step(node.iter)
        if isinstance(node.target, ast.Tuple) and len(node.target.elts) == len(several):
            for target, value in zip(node.target.elts, several, strict=True):
                stores.bind(self, target, value)
        else:
            stores.bind(self, node.target, _item_of(items))
        self.block(node.body)
        self.block(node.orelse)

    def _in_step(self, node: ast.expr) -> list[Value]:
        """What the items of ``enumerate(x)`` and ``zip(x, y)`` are."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            return []
        values = [_item_of(self.evaluate(part)) for part in node.args]
        if node.func.id == "enumerate":
            return [NUMBER, *values[:1]]
        return values if node.func.id == "zip" else []

    def _with(self, node: ast.With | ast.AsyncWith) -> None:
        captures = False
        for item in node.items:
            value = self.evaluate(item.context_expr)
            call = item.context_expr
            dotted = self.names.resolve(call.func) if isinstance(call, ast.Call) else ""
            captures = captures or dotted in CAPTURES
            if item.optional_vars is not None:
                stores.bind(self, item.optional_vars, value)
        reach = self.reach
        if captures and reach < Reach.FORWARD:
            self.reach = Reach.GRAPHED
        self.block(node.body)
        self.reach = reach

    def says(self, node: ast.AST) -> str:
        """An expression as text for a message."""
        return text_of(node)


def _item_of(items: Value) -> Value:
    """What an item of something is."""
    if items.is_tensor:
        return items._replace(argument="")
    if items.kind in (Kind.SHAPE, Kind.NUMBER, Kind.LIST):
        return NUMBER
    return MAYBE if items.kind is Kind.MAYBE else UNKNOWN


def _leaves(body: list[ast.stmt]) -> bool:
    """Whether a block always leaves the function or the loop."""
    return bool(body) and isinstance(body[-1], (ast.Return, ast.Raise, ast.Continue, ast.Break))
