"""Reads and writes of globals, builtins, variables of functions around, and imported modules."""

from __future__ import annotations

import builtins
from types import CellType
from typing import Any

from ....base import identity
from ...state import CELL, ITEM, MISSING
from ..trace import Trace, is_compilers

_STARTING = ("torch.cuda", "torch.xpu", "torch.mtia")
_BUILTINS = vars(builtins)
_LEFT_OUT = frozenset({
    ("torch.nn.utils.parametrize", "_cache"),  # made anew around each use of it
    ("linecache", "cache"),  # lines of source, for messages
    *((module, name) for module in _STARTING for name in ("_lazy_seed_tracker", "_queued_calls")),
    *((f"torch._functorch.{module}", "DECOMPOSITIONS_LOADED") for module in ("predispatch", "vmap")),
    *(("torch.autograd.profiler", f"_cupti_monitor_{name}") for name in ("checked", "module")),
})  # fmt: skip
"""Globals that are no condition and no effect: what Python and PyTorch keep for themselves.

Devices that have not started queue what is to be done when they do. All of it sets random numbers, which
makes a call eager anyway.
"""


def name(trace: Trace, name: str, table: dict[str, Any]) -> None:
    """A global, or else a builtin, is about to be looked up."""
    frame = trace.frame()
    builtins = frame.f_builtins if frame is not None else _BUILTINS
    trace.seen.add((identity(table), name, "global"))
    if of_globals(trace, name, table) is MISSING and name in builtins and not _is_left_out(table, name):
        trace.find(builtins, None, "")
        trace.read(ITEM, builtins, name, builtins[name], name)


def of_globals(trace: Trace, name: str, table: dict[str, Any]) -> Any:
    """A global is about to be looked up, perhaps before a builtin; returns it, or MISSING."""
    found = table.get(name, MISSING)
    if _is_left_out(table, name):
        return found
    trace.find(table, None, "")
    if found is MISSING:
        trace.absent(table, name, name)
    else:
        trace.read(ITEM, table, name, found, name)
    return found


def _is_left_out(table: dict[str, Any], name: str) -> bool:
    """Whether a global is a compiler's, or one of :data:`_LEFT_OUT`."""
    module = table.get("__name__")
    return is_compilers(module) or (type(module) is str and (module, name) in _LEFT_OUT)


def store_name(trace: Trace, name: str, table: dict[str, Any], *_: Any) -> None:
    """A global is about to be set or deleted."""
    if not _is_left_out(table, name):
        trace.find(table, None, "")
        trace.write(ITEM, table, name, None)


def cell(trace: Trace, cell: CellType) -> None:
    """A variable of a function around is about to be read."""
    if trace.has(cell):
        trace.seen.add(("cell", identity(cell)))
        try:
            value = cell.cell_contents
        except ValueError:  # it is empty
            value = MISSING
        trace.read(CELL, cell, None, value, "")


def store_cell(trace: Trace, cell: CellType, new: Any = None) -> None:
    """A variable of a function around is about to be set or deleted."""
    trace.write(CELL, cell, None, cell)
