"""One source file: reads its functions from the outside in, and collects what is found."""

from __future__ import annotations

import ast
from dataclasses import replace

from ...base.errors import MisuseError
from ..finding import Finding
from .evidence import annotated
from .names import Names, last_name
from .program import Class, Entries, Function, Program, Reach
from .reader import Env, Reader
from .values import TENSOR
from .whole import whole_file, whole_function

_REGISTERS = ("register_buffer", "register_parameter")


def scan_text(text: str, file: str, entries: Entries | None = None) -> list[Finding]:
    """Scan the text of a file.

    Args:
        text: The source.
        file: The name that findings give.
        entries: The functions that a capture runs; if None they are found, and every function with tensors
            among its parameters is read too.

    Returns:
        The findings, by line and column.

    Raises:
        MisuseError: It is not Python; the message names file and line.
    """
    try:
        tree = ast.parse(text, file)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise MisuseError(f"{file}:{line}: this is not Python: {getattr(error, 'msg', error)}") from error
    return _File(Program(tree, Names(tree), file, entries), text, entries is None).read()


class _File:
    """Reads a file once."""

    def __init__(self, program: Program, text: str, whole: bool) -> None:
        self._program = program
        self._lines = text.splitlines()
        self._whole = whole
        self._found: dict[tuple[int, int, str], Finding] = {}
        self._env: dict[int, Env] = {}

    def read(self) -> list[Finding]:
        """All findings."""
        read = Reader(self._program, None, {}, self._report).read().env
        top = {name: value._replace(local=False) for name, value in read.items()}
        for owner in self._program.every_class:
            self._attributes(owner)
        for function in self._program.functions:
            outside = {**top, **self._outer(function, top)}
            env = self._read(function, outside)
            whole_function(self._program, function, {**outside, **env}, self._report)
        if self._whole:
            whole_file(self._program, self._report)
        return sorted(self._found.values(), key=lambda found: (found.where.line, found.column, found.code))

    def _read(self, function: Function, outside: Env) -> Env:
        if id(function) not in self._env:
            self._env[id(function)] = {}  # a function that is reached from itself
            reader = Reader(self._program, function, outside, self._report).read()
            self._env[id(function)] = reader.env
        return self._env[id(function)]

    def _outer(self, function: Function, top: Env) -> Env:
        """The names of the functions around a function."""
        if function.outer is None:
            return {}
        around = self._outer(function.outer, top)
        outside = {**around, **self._read(function.outer, {**top, **around})}
        return {name: value._replace(argument="", local=False) for name, value in outside.items()}

    def _attributes(self, owner: Class) -> None:
        """What ``self`` has: from ``__init__``, the class body and the base classes of this file."""
        for base in owner.node.bases:
            known = self._program.classes.get(base.id) if isinstance(base, ast.Name) else None
            if known is not None:
                owner.attributes.update(known.attributes)
        silent = Reader(self._program, None, {}, lambda found: None)
        for statement in owner.node.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                owner.attributes[statement.targets[0].id] = silent.evaluate(statement.value)
            elif (
                isinstance(statement, ast.AnnAssign)
                and isinstance(statement.target, ast.Name)
                and (known := annotated(statement.annotation)) is not None
            ):
                owner.attributes[statement.target.id] = known
        made = owner.methods.get("__init__")
        if made is None:
            return
        reader = Reader(self._program, replace(made, reach=Reach.NONE), {}, lambda found: None).read()
        owner.attributes.update(reader.attributes)
        for node in made.nodes():
            if isinstance(node, ast.Call) and last_name(node.func) in _REGISTERS and node.args:
                name = node.args[0]
                if isinstance(name, ast.Constant) and isinstance(name.value, str):
                    owner.attributes[name.value] = TENSOR

    def _report(self, found: Finding) -> None:
        line = found.where.line
        source = self._lines[line - 1].strip() if 0 < line <= len(self._lines) else ""
        self._found.setdefault((line, found.column, found.code), replace(found, source=source))
