"""What is seen by looking at whole functions and files."""

from __future__ import annotations

import ast
from collections.abc import Callable

from ...base.location import Site
from .. import rules
from ..finding import Finding
from ..rules import Rule
from .names import last_name, text_of
from .program import CAPTURES, GRAPHERS, Function, Program, Reach
from .reader import Env
from .values import FACTORIES, Kind

_MEMOS = frozenset({"functools.lru_cache", "functools.cache"})
_WRAPPERS = ("DistributedDataParallel", "FullyShardedDataParallel", "fully_shard")

Report = Callable[[Finding], None]


def whole_file(program: Program, report: Report) -> None:
    """Autocast around captures, wrappers of several processes, experts that are looped over."""
    for node in ast.walk(program.tree):
        if isinstance(node, (ast.With, ast.AsyncWith)):
            _autocast(program, node, report)
        elif isinstance(node, ast.Call):
            name = last_name(node.func)
            if name in _WRAPPERS and program.captures:
                text = f"{text_of(node)} wraps a model in a file that captures graphs"
                _report(program, report, rules.WRAPPED, node, text)
            for each in node.keywords:
                value = each.value
                eager = isinstance(value, ast.Constant) and value.value == "eager"
                if eager and each.arg == "experts_implementation":
                    text = f"{text_of(node)} loops over the experts on the host"
                    _report(program, report, rules.EXPERTS, node, text)


def whole_function(program: Program, function: Function, env: Env, report: Report) -> None:
    """Memoized tensors, gradients dropped around a graph."""
    node = function.node
    if isinstance(node, ast.Lambda):
        return
    _memoized(program, node, report)
    _gradients(program, function, env, report)


def _memoized(program: Program, node: ast.FunctionDef | ast.AsyncFunctionDef, report: Report) -> None:
    for decorator in node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if program.names.resolve(called) not in _MEMOS:
            continue
        made = (
            program.names.resolve(each.func).removeprefix("torch.")
            for each in ast.walk(node)
            if isinstance(each, ast.Call)
        )
        returns = node.returns is not None and "Tensor" in ast.unparse(node.returns)
        if returns or (node.returns is None and any(name in FACTORIES for name in made)):
            text = f"{node.name} keeps tensors of earlier calls"
            _report(program, report, rules.MEMOIZED, decorator, text, node.name)


def _gradients(program: Program, function: Function, env: Env, report: Report) -> None:
    calls = [node for node in function.nodes() if isinstance(node, ast.Call)]
    graphs = any(
        (isinstance(node.func, ast.Name) and node.func.id in env and env[node.func.id].kind is Kind.GRAPH)
        or last_name(node.func) == "replay"
        for node in calls
    )
    if not graphs or function.reach is not Reach.NONE:
        return
    for node in function.nodes():
        if isinstance(node, ast.Call) and last_name(node.func) == "zero_grad":
            kept = any(
                each.arg == "set_to_none"
                and isinstance(each.value, ast.Constant)
                and each.value.value is False
                for each in node.keywords
            )
            if not kept:
                text = f"{text_of(node)} drops the gradients that a graph may add into"
                _report(program, report, rules.GRADIENT_MOVED, node, text, function.name)
        elif isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Attribute) and target.attr == "grad" for target in node.targets
        ):
            text = f"{text_of(node)} replaces a gradient that a graph may add into"
            _report(program, report, rules.GRADIENT_MOVED, node.targets[0], text, function.name)


def _autocast(program: Program, node: ast.With | ast.AsyncWith, report: Report) -> None:
    """``with autocast`` around a capture, in one statement or in the next."""
    contexts = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
    casts = [
        each
        for each in contexts
        if program.names.resolve(each.func).startswith("torch.")
        and last_name(each.func) == "autocast"
        and not _cache_is_off(each)
    ]
    if not casts:
        return
    for each in (*contexts, *(part for statement in node.body for part in ast.walk(statement))):
        if isinstance(each, ast.Call) and program.names.resolve(each.func) in CAPTURES | GRAPHERS - {
            "rote.graph"
        }:
            text = f"{text_of(casts[0])} keeps casts that were made before or inside the capture"
            _report(program, report, rules.AUTOCAST_AROUND, casts[0], text)
            return


def _cache_is_off(node: ast.Call) -> bool:
    return any(
        each.arg == "cache_enabled" and isinstance(each.value, ast.Constant) and each.value.value is False
        for each in node.keywords
    )


def _report(
    program: Program, report: Report, rule: Rule, node: ast.expr, text: str, function: str = "<module>"
) -> None:
    where = Site(program.file, node.lineno, function)
    report(Finding(rule.code, rule.severity, where, text, rule.remedy, node.col_offset + 1))
