"""What is known while one function is read, and how its hazards are reported."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable

from ...base import Site
from ..rules import Finding, Rule, Severity
from .evidence import defaults_of, parameter_values
from .program import Reach, ScannedFile, SourceFunction
from .syntax import text_of
from .values import UNKNOWN, Inferred

Env = dict[str, Inferred]
Report = Callable[[Finding], None]


class Scope(ABC):
    """The state while one function is read; the function is None for the file's own statements.

    Attributes:
        reach: Whether a capture runs what is being read.
        outside: The names of the scopes around it.
        declared: Names that are ``global`` or ``nonlocal``.
        lazy: Attributes that the branch being read makes because they are not there yet.
        lists: Names of lists of numbers.
        shared: Parameters whose default is a container, one for all calls.
        raising: An exception is being made.
    """

    def __init__(
        self, program: ScannedFile, function: SourceFunction | None, outside: Env, report: Report
    ) -> None:
        self.program = program
        self.imports = program.imports
        self.function = function
        self.outside = outside
        self.reach = function.reach if function is not None else Reach.NONE
        self.self_name = function.self_name if function is not None else ""
        self.attributes = function.owner.attributes if function is not None and function.owner else {}
        self.env: Env = {}
        self.declared: set[str] = set()
        self.lazy: set[str] = set()
        self.lists: set[str] = set()
        self.shared: set[str] = set()
        self.raising = False
        self._report = report
        if function is not None:
            self.env.update(parameter_values(function.node, program.imports, function.self_name))
            defaults = defaults_of(function.node).items()
            self.shared = {name for name, node in defaults if isinstance(node, (ast.List, ast.Dict, ast.Set))}

    @abstractmethod
    def evaluate(self, node: ast.expr | None) -> Inferred:
        """What an expression is; reports its hazards."""

    def arguments(self, node: ast.Call) -> list[Inferred]:
        """Evaluate the arguments of a call; returns the positional ones."""
        values = [self.evaluate(part) for part in node.args]
        for each in node.keywords:
            self.evaluate(each.value)
        return values

    def found(
        self, rule: Rule, node: ast.expr | ast.stmt, what: str, *, severity: Severity | None = None
    ) -> None:
        """Report what an expression does; the message begins with its source."""
        self.report(rule, node, f"{text_of(node)} {what}", severity=severity)

    def report(
        self, rule: Rule, node: ast.expr | ast.stmt, message: str, *,
        severity: Severity | None = None, remedy: str | None = None,
    ) -> None:  # fmt: skip
        """Report a finding, if a capture runs this code."""
        if self.reach is not Reach.NONE:
            name = self.function.name if self.function is not None else "<module>"
            path = self.function.path if self.function is not None else ()
            where = Site(self.program.file, node.lineno, name)
            severity, remedy = severity or rule.severity, remedy or rule.remedy
            self._report(Finding(rule.code, severity, where, message, remedy, node.col_offset + 1, path=path))

    def value(self, name: str) -> Inferred:
        """What a name is."""
        return self.env[name] if name in self.env else self.outside.get(name, UNKNOWN)

    def is_local(self, name: str) -> bool:
        """Whether a name is the function's own, and no argument."""
        return name in self.env and name not in self.declared and not self.env[name].argument

    @property
    def is_inside(self) -> bool:
        """Whether a capture runs the function around it, whose variables are then part of the call."""
        outer = self.function.outer if self.function is not None else None
        return outer is not None and outer.reach is not Reach.NONE
