"""Which opcodes may read or write something from outside of the call: the rows of ``opcodes.toml``.

``tests/runtime/reads/test_opcodes.py`` goes through ``dis.opmap``, so a Python with new opcodes fails there.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, NamedTuple


class NotedOpcode(NamedTuple):
    """What is noted before an opcode."""

    note: str  # the method of the notes that is called
    items: int  # how many items from the top of the stack it is given, the deepest first
    each: int = 0  # how many more for each that the instruction's own argument counts


_ROWS: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())

NOTED = {name: NotedOpcode(**row) for name, row in _ROWS["noted"].items()}
"""Opcodes that are noted, of all versions."""

BINARY = (*_ROWS["operators"], *[f"INPLACE_{name}" for name in _ROWS["operators"]])
"""Operators by the argument of ``BINARY_OP``."""

IMPORT_STAR, UNARY_POSITIVE = 2, 5
"""Functions of the interpreter that read, by the argument of ``CALL_INTRINSIC_1`` since Python 3.12."""

SILENT = frozenset[str](_ROWS["silent"])
"""Opcodes that move values, make new ones, or store where only the call's own code looks."""

OPAQUE = frozenset[str](_ROWS["opaque"])
"""Opcodes that are not followed."""
