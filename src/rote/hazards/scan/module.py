"""The scan of one source file: reads its functions from the outside in, and collects the findings."""

from __future__ import annotations

import ast
from dataclasses import replace

from ...base import MisuseError, Site
from .. import rules
from ..rules import Finding, Rule
from .evidence import annotated
from .program import CAPTURES, GRAPHERS, Reach, ScannedFile, SourceClass, SourceFunction
from .reader import Reader
from .scope import Env
from .syntax import COLLECTIVES, Imports, decorators, is_literal, keyword, last_name, text_literal, text_of
from .values import FACTORIES, TENSOR

_REGISTERS = ("register_buffer", "register_parameter")
_MEMOS = frozenset({"functools.lru_cache", "functools.cache"})
_RANKS = frozenset({"rank", "local_rank", "global_rank", "get_rank", "get_local_rank", "is_main_process"})
_BETWEEN_TWO = frozenset({"send", "recv", "isend", "irecv"})
_WRAPPERS = ("DistributedDataParallel", "FullyShardedDataParallel", "fully_shard")


def scan_text(text: str, file: str) -> list[Finding]:
    """The findings in the text of a file, in order of line and column.

    Raises:
        MisuseError: It is not Python; the message names file and line.
    """
    try:
        tree = ast.parse(text, file)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise MisuseError(f"{file}:{line}: this is not Python: {getattr(error, 'msg', error)}") from error
    return _File(ScannedFile(tree, Imports(tree), file), text).read()


class _File:
    """Reads a file once."""

    def __init__(self, program: ScannedFile, text: str) -> None:
        self._program = program
        self._lines = text.splitlines()
        self._found: dict[tuple[int, int, str], Finding] = {}
        self._env: dict[SourceFunction, Env] = {}

    def read(self) -> list[Finding]:
        """All findings."""
        read = Reader(self._program, None, {}, self._report).read().env
        top = {name: value._replace(local=False) for name, value in read.items()}
        for owner in self._program.every_class:
            self._attributes(owner)
        for function in self._program.functions:
            outside = {**top, **self._outer(function, top)}
            self._read(function, outside)
            if not isinstance(function.node, ast.Lambda):
                self._memoized(function.node)
                self._gradients(function)
        self._whole_file()
        return sorted(self._found.values(), key=lambda found: (found.where.line, found.column, found.code))

    def _read(self, function: SourceFunction, outside: Env) -> Env:
        if function not in self._env:
            self._env[function] = {}  # a function may lead to itself
            self._env[function] = Reader(self._program, function, outside, self._report).read().env
        return self._env[function]

    def _outer(self, function: SourceFunction, top: Env) -> Env:
        """The names of the functions around a function."""
        if function.outer is None:
            return {}
        around = self._outer(function.outer, top)
        outside = {**around, **self._read(function.outer, {**top, **around})}
        return {name: value._replace(argument="", local=False) for name, value in outside.items()}

    def _attributes(self, owner: SourceClass) -> None:
        """Collect the attributes of ``self``: from ``__init__``, the class body and bases in this file."""
        for base in owner.node.bases:
            known = self._program.classes.get(base.id) if isinstance(base, ast.Name) else None
            if known is not None:
                owner.attributes.update(known.attributes)
        silent = Reader(self._program, None, {}, lambda found: None)
        for statement in owner.node.body:
            match statement:
                case ast.Assign(targets=[ast.Name(name), *_]):
                    owner.attributes[name] = silent.evaluate(statement.value)
                case ast.AnnAssign(ast.Name(name), annotation):
                    stated = annotated(annotation)
                    owner.attributes.update({} if stated is None else {name: stated})
                case _:
                    pass
        made = owner.methods.get("__init__")
        if made is not None:
            reader = Reader(self._program, replace(made, reach=Reach.NONE), {}, lambda found: None).read()
            owner.attributes.update(reader.attributes)
            for node in made.nodes():
                if isinstance(node, ast.Call) and last_name(node.func) in _REGISTERS and node.args:
                    owner.attributes |= {name: TENSOR for name in [text_literal(node.args[0])] if name}

    def _report(self, found: Finding) -> None:
        line = found.where.line
        source = self._lines[line - 1].strip() if 0 < line <= len(self._lines) else ""
        self._found.setdefault((line, found.column, found.code), replace(found, source=source))

    # -------------------------------------------------------------- beyond one function

    def _whole_file(self) -> None:
        """Autocast around captures, wrappers of several processes, experts that are looped over."""
        for node in ast.walk(self._program.tree):
            if isinstance(node, (ast.With, ast.AsyncWith)):
                self._autocast(node)
            elif isinstance(node, ast.If) and self._program.captures:
                self._of_ranks(node)
            elif isinstance(node, ast.Call):
                if last_name(node.func) in _WRAPPERS and self._program.captures:
                    text = f"{text_of(node)} wraps a model in a file that captures graphs"
                    self._found_at(rules.WRAPPED, node, text)
                if is_literal(keyword(node, "experts_implementation"), "eager"):
                    text = f"{text_of(node)} loops over the experts on the host"
                    self._found_at(rules.EXPERTS, node, text)

    def _of_ranks(self, node: ast.If) -> None:
        """A branch for some ranks, with a collective that the other branch has not."""
        names = {
            last_name(each) for each in ast.walk(node.test) if isinstance(each, (ast.Name, ast.Attribute))
        }
        if names.isdisjoint(_RANKS):
            return
        one, other = self._collectives(node.body), self._collectives(node.orelse)
        for mine, theirs in ((one, other), (other, one)):
            known = {last_name(call.func) for call in theirs}
            for call in mine:
                if last_name(call.func) not in known:
                    text = f"{text_of(call)} is called by some ranks only: if {text_of(node.test)}"
                    self._found_at(rules.SOME_RANKS, call, text)

    def _collectives(self, body: list[ast.stmt]) -> list[ast.Call]:
        """The collectives of all ranks in some statements."""
        calls = [each for part in body for each in ast.walk(part) if isinstance(each, ast.Call)]
        found = [each for each in calls if self._program.imports.resolve(each.func) in COLLECTIVES]
        found = [each for each in found if last_name(each.func) not in _BETWEEN_TWO]
        return [each for each in found if keyword(each, "group") is None]

    def _memoized(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """A cache of a function of tensors."""
        for decorator, called in decorators(node):
            if self._program.imports.resolve(called) not in _MEMOS:
                continue
            if node.returns is not None:
                tensors = "Tensor" in ast.unparse(node.returns)
            else:
                calls = (each.func for each in ast.walk(node) if isinstance(each, ast.Call))
                called = map(self._program.imports.resolve, calls)
                tensors = any(name.removeprefix("torch.") in FACTORIES for name in called)
            if tensors:
                text = f"{node.name} keeps tensors of earlier calls"
                self._found_at(rules.MEMOIZED, decorator, text, node.name)

    def _gradients(self, function: SourceFunction) -> None:
        """Gradients dropped around a graph that is replayed by hand."""
        nodes = list(function.nodes())
        replays = any(isinstance(node, ast.Call) and last_name(node.func) == "replay" for node in nodes)
        if not replays or function.reach is not Reach.NONE:
            return
        for node in nodes:
            if isinstance(node, ast.Call) and last_name(node.func) == "zero_grad":
                place = None if is_literal(keyword(node, "set_to_none"), False) else node
                does = "drops the gradients"
            elif isinstance(node, ast.Assign):
                grads = any(isinstance(each, ast.Attribute) and each.attr == "grad" for each in node.targets)
                place, does = node.targets[0] if grads else None, "replaces a gradient"
            else:
                continue
            if place is not None:
                text = f"{text_of(node)} {does} that a graph may add into"
                self._found_at(rules.GRADIENT_MOVED, place, text, function.name)

    def _autocast(self, node: ast.With | ast.AsyncWith) -> None:
        """``with autocast`` around a capture, in one statement or in the next."""
        contexts = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
        resolve = self._program.imports.resolve
        casts = [
            each
            for each in contexts
            if resolve(each.func).startswith("torch.")
            and last_name(each.func) == "autocast"
            and not is_literal(keyword(each, "cache_enabled"), False)
        ]
        inside = (part for statement in node.body for part in ast.walk(statement))
        calls = (each.func for each in (*contexts, *inside) if isinstance(each, ast.Call))
        if casts and any(resolve(each) in CAPTURES | GRAPHERS - {"rote.graph"} for each in calls):
            text = f"{text_of(casts[0])} keeps casts that were made before or inside the capture"
            self._found_at(rules.AUTOCAST_AROUND, casts[0], text)

    def _found_at(self, rule: Rule, node: ast.expr, text: str, function: str = "<module>") -> None:
        where = Site(self._program.file, node.lineno, function)
        self._report(Finding(rule.code, rule.severity, where, text, rule.remedy, node.col_offset + 1))
