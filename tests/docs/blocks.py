"""The code blocks of a page, and running them.

- ``python`` runs, one block after the other, in one namespace for each page, as a file ``example.py``.
  Behind ``<!-- not run: WHY -->`` it is only compiled.
- ``text`` behind ``<!-- output -->`` has to be what the last ``python`` block printed; ``...`` stands for
  anything.
- ``sh`` has to be the shell's syntax, and every ``make`` target, ``rote`` command with its options and
  ``python -m`` module in it has to exist.
- ``json`` has to be JSON. Other languages are errors.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import importlib
import importlib.util
import io
import json
import linecache
import re
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import rote

_FENCE = re.compile(
    r"(?:^<!-- (?P<note>[^\n]*?) -->\n+)?^```(?P<kind>[^\n]*)\n(?P<code>.*?)^```$", re.M | re.S
)
_COMMAND = re.compile(r"^rote (\w+)(.*)$", re.M)
_MODULE = re.compile(r"\bpython\d* -m ([\w.]+)")
_TARGET = re.compile(r"^make (.*)$", re.M)


def options_of(command: str) -> set[str]:
    """The options of a ``rote`` command, with both names of switches."""
    typer = pytest.importorskip("typer")
    app = importlib.import_module("rote.cli.app").app
    commands: dict[str, Any] = getattr(typer.main.get_command(app), "commands", {})
    assert command in commands, f"there is no command rote {command}"
    found = [commands[command], *getattr(commands[command], "commands", {}).values()]
    return {name for each in found for param in each.params for name in (*param.opts, *param.secondary_opts)}


class Block(NamedTuple):
    """A fenced block.

    Attributes:
        line: Where it begins in the page.
        kind: The language.
        code: What stands in it.
        note: The comment directly before it.
    """

    line: int
    kind: str
    code: str
    note: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(text.count("\n", 0, found.start("kind")) + 1, found["kind"], found["code"], found["note"] or "")
        for found in _FENCE.finditer(text)
    ]


class Runner:
    """Runs the blocks of one page.

    Args:
        folder: Where the page's program lies while it runs.
        makefile: Text of the Makefile.
    """

    def __init__(self, folder: Path, makefile: str) -> None:
        self.namespace: dict[str, Any] = {"__name__": "example"}
        self._file = folder / "example.py"
        self._makefile = makefile
        self._printed: str | None = None

    def run(self, block: Block) -> None:
        match block.kind:
            case "python":
                self._python(block)
            case "text":
                self._text(block)
            case "sh":
                self._shell(block)
            case "json":
                json.loads(block.code)
            case _:
                raise AssertionError(f"a block of {block.kind!r} is checked by nothing")

    def _python(self, block: Block) -> None:
        if block.note.startswith("not run"):
            assert block.note.startswith("not run: "), "say why it is not run"
            compile(block.code, str(self._file), "exec")
            return
        for node in ast.walk(ast.parse(block.code)):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "rote"
            ):
                # A folder of rote is an attribute here, where tests have imported it, and not for a reader.
                assert node.attr in rote.__all__, f"rote.{node.attr} has to be imported"
        self._file.write_text(block.code)
        linecache.checkcache(str(self._file))
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block.code, str(self._file), "exec", dont_inherit=True), self.namespace)
        self._printed = printed.getvalue()

    def _text(self, block: Block) -> None:
        if block.note != "output":
            return
        assert self._printed is not None, "no block before it has printed anything"
        flags, checker = doctest.ELLIPSIS, doctest.OutputChecker()
        assert checker.check_output(block.code, self._printed, flags), f"printed:\n{self._printed}"

    def _shell(self, block: Block) -> None:
        checked = subprocess.run(
            ["bash", "-n"], input=block.code, text=True, capture_output=True, check=False
        )
        assert checked.returncode == 0, checked.stderr
        for name, rest in _COMMAND.findall(block.code):
            known_options = options_of(name)
            for option in re.findall(r"(?<!\S)--[\w-]+", rest):
                assert option in known_options, f"rote {name} has no {option}"
        for name in _MODULE.findall(block.code):
            assert importlib.util.find_spec(name) is not None, f"there is no module {name}"
        for line in _TARGET.findall(block.code):
            for word in line.partition("#")[0].split():
                known = "=" in word or re.search(rf"^{re.escape(word)}\b[^\n]*:", self._makefile, re.M)
                assert known, f"the Makefile has no target {word}"
