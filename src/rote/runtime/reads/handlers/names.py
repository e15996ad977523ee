"""Reads and writes of globals, builtins and closure variables."""

from __future__ import annotations

import builtins
from types import CellType
from typing import Any

from ....base import identity
from ...state import CELL, ITEM, MISSING
from ..table import NAMES
from ..trace import Trace, is_compilers

_BUILTINS = vars(builtins)
_LEFT_OUT = NAMES["left_out"]


def name(trace: Trace, name: str, table: dict[str, Any]) -> None:
    """Note a lookup of a global, or else of a builtin."""
    frame = trace.running.frame()
    builtins = frame.f_builtins if frame is not None else _BUILTINS
    trace.seen.add((identity(table), name, "global"))
    if of_globals(trace, name, table) is MISSING and not _is_left_out(table, name):
        trace.outside.find(builtins, None, "")
        if name in builtins:
            trace.outside.read(ITEM, builtins, name, builtins[name], name)
        else:
            trace.outside.absent(builtins, name, name)


def of_globals(trace: Trace, name: str, table: dict[str, Any]) -> Any:
    """Note a lookup of a global; returns it, or MISSING."""
    found = table.get(name, MISSING)
    if _is_left_out(table, name):
        return found
    trace.outside.find(table, None, "")
    if found is MISSING:
        trace.outside.absent(table, name, name)
    else:
        trace.outside.read(ITEM, table, name, found, name)
    return found


def _is_left_out(table: dict[str, Any], name: str) -> bool:
    """Whether a global belongs to a compiler, or is private to Python or PyTorch."""
    module = table.get("__name__")
    return is_compilers(module) or (type(module) is str and f"{module}.{name}" in _LEFT_OUT)


def store_name(trace: Trace, name: str, table: dict[str, Any], *_: Any) -> None:
    """Note that a global is set."""
    if not _is_left_out(table, name):
        trace.outside.find(table, None, "")
        trace.writes.write(ITEM, table, name, None)


def delete_name(trace: Trace, name: str, table: dict[str, Any], *_: Any) -> None:
    """Note that a global is deleted."""
    store_name(trace, name, table)
    trace.writes.delete(table, name, None)


def cell(trace: Trace, cell: CellType) -> None:
    """Note a read of a closure variable."""
    if trace.outside.has(cell):
        trace.seen.add(("cell", identity(cell)))
        try:
            value = cell.cell_contents
        except ValueError:  # the cell is empty
            value = MISSING
        trace.outside.read(CELL, cell, None, value, "")


def store_cell(trace: Trace, cell: CellType, new: Any = None) -> None:
    """Note that a closure variable is set or deleted."""
    trace.writes.write(CELL, cell, None, cell)
