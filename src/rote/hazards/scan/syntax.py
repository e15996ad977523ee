"""Names and expressions by themselves: imports resolved to dotted names, literals, source text.

``names.toml`` holds the names that the scan knows.
"""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from typing import Any

from ...base import cut

_TABLE: dict[str, Any] = tomllib.loads(Path(__file__).with_name("names.toml").read_text(encoding="utf-8"))

CALLS: list[dict[str, Any]] = _TABLE["calls"]
"""Functions that are always a finding: ``names``, the code of their ``rule``, and what each ``does``."""

COLLECTIVES = frozenset(
    [name for call in CALLS if call["rule"] in ("RT801", "RT802") for name in call["names"]]
)
"""Functions that processes call together."""

MAKES: dict[str, list[str]] = _TABLE["makes"]
"""Constructors by the name of the type that they make."""

WIDTH = 60
"""Characters of an expression that a message shows."""

_RENAMED = {
    "torch.functional.": "torch.",
    "torch.nn.utils.clip_grad.": "torch.nn.utils.",
    "torch.nn.parallel.distributed.": "torch.nn.parallel.",
    "torch.nn.parameter.": "torch.nn.",
}


def names(of: str) -> frozenset[str]:
    """A list of names in ``names.toml``."""
    return frozenset(_TABLE["names"][of])


BUILTINS = names("builtins")


class Imports:
    """Imports of one file. One inside a function counts for the whole file; the last one of a name wins."""

    def __init__(self, tree: ast.Module) -> None:
        self._known: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    first = alias.name.partition(".")[0]
                    self._known[alias.asname or first] = alias.name if alias.asname else first
            elif isinstance(node, ast.ImportFrom):
                module = "." * node.level + (node.module or "")
                for alias in node.names:
                    self._known[alias.asname or alias.name] = f"{module}.{alias.name}"

    def resolve(self, node: ast.expr) -> str:
        """The dotted name of what was imported or is a builtin function; empty for all else."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        first = self._known.get(node.id, "")
        if not first:
            return node.id if not parts and node.id in BUILTINS else ""
        dotted = ".".join([first, *reversed(parts)])
        for long, short in _RENAMED.items():
            if dotted.startswith(long):
                dotted = short + dotted.removeprefix(long)
        return dotted


def text_of(node: ast.AST) -> str:
    """The source of an expression in one line, cut to a width."""
    return cut(" ".join(ast.unparse(node).split()), WIDTH)


def last_name(node: ast.expr) -> str:
    """``scheduler`` of ``self.scheduler``; empty if there is no name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def self_attribute(node: ast.expr, owner: str) -> str:
    """``scale`` of ``self.scale``, empty for anything else; ``owner`` is what ``self`` is called."""
    match node:
        case ast.Attribute(ast.Name(name), attribute) if owner and name == owner:
            return attribute
        case _:
            return ""


def root_name(node: ast.expr) -> str:
    """``cache`` of ``cache.layers[0].keys``."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def keyword(node: ast.Call, name: str) -> ast.expr | None:
    """A keyword argument of a call."""
    return next((each.value for each in node.keywords if each.arg == name), None)


def is_literal(node: ast.AST | None, value: object) -> bool:
    """Whether an expression is a literal of that type and value: ``True``, ``None``, a text."""
    return isinstance(node, ast.Constant) and type(node.value) is type(value) and node.value == value


def text_literal(node: ast.expr | None) -> str:
    """The text of a literal; empty if it is none."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def parts_of_index(node: ast.Subscript) -> list[ast.expr]:
    """``i`` and ``j`` of ``x[i, j]``."""
    return node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]


def decorators(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[tuple[ast.expr, ast.expr]]:
    """The decorators of a function, each with what is called in it."""
    return [(each, each.func if isinstance(each, ast.Call) else each) for each in node.decorator_list]
