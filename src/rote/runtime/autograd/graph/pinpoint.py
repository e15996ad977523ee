"""Which line changes a piece of state, found in the code that ran.

A call that writes says at which line. Of what C or a backward has changed, only *what* it is is known: the
line that stores the attribute, the global, the closure variable or the item is looked up in the bytecode of
the functions that ran.
"""

from __future__ import annotations

import dis
import re
from collections.abc import Callable, Iterable
from types import CodeType

from ....base import Site

_STORES = frozenset({"STORE_ATTR", "STORE_GLOBAL", "STORE_DEREF", "STORE_NAME"})
_LOADS = frozenset({
    "LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_NAME", "LOAD_CONST",
})  # fmt: skip
_NEAR = 2  # instructions from the name of a container, or of an item, to the store into it
_LENGTH = re.compile(r" \([^()]*\)$")
_METHODS = frozenset({
    "append", "extend", "add", "update", "insert", "pop", "setdefault", "clear", "remove", "popleft",
    "popitem", "appendleft", "extendleft", "rotate", "discard", "sort", "reverse",
})  # fmt: skip


def line_that_changes(name: str, codes: Iterable[CodeType]) -> Site | None:
    """The line in executed code that most likely changes a slot.

    Args:
        name: The slot, as in ``model.layers.0.count`` or ``cache['k'] (length)``.
        codes: Code objects that ran.
    """
    finds = (_store, _subscript) if "[" in name or "(" in name else (_store,)
    return _first(name, codes, *finds)


def line_that_reads(name: str, codes: Iterable[CodeType]) -> Site | None:
    """The line in executed code that most likely reads a slot, or else what the slot lies in."""
    return _first(name, codes, _load)


def _first(
    name: str, codes: Iterable[CodeType], *finds: Callable[[CodeType, str], Site | None]
) -> Site | None:
    """The first line found, for the last part of a name before those that it lies in."""
    for wanted in reversed(_parts(_LENGTH.sub("", name))):
        for code in _mentioning(wanted, codes):
            for find in finds:
                site = find(code, wanted)
                if site is not None:
                    return site
    return None


def line_that_calls(method: str, codes: Iterable[CodeType]) -> Site | None:
    """The line in executed code that calls a method, or a function, of this name."""
    for code in _mentioning(method, codes):
        for instruction in dis.get_instructions(code):
            if instruction.argval == method:
                return _site(code, instruction)
    return None


def _mentioning(name: str, codes: Iterable[CodeType]) -> list[CodeType]:
    """Those that mention a name: to take all code apart takes as long as a small call, for each slot."""
    return [
        code
        for code in codes
        if name in code.co_names
        or name in code.co_varnames
        or name in code.co_freevars
        or name in code.co_cellvars
        or any([type(each) is str and each == name for each in code.co_consts])
    ]


def _parts(name: str) -> list[str]:
    return [part for part in re.split(r"[.\[\]']+", name) if part]


def _load(code: CodeType, wanted: str) -> Site | None:
    for instruction in dis.get_instructions(code):
        if instruction.opname in _LOADS and instruction.argval == wanted:
            return _site(code, instruction)
    return None


def _store(code: CodeType, wanted: str) -> Site | None:
    """The line that stores. A line that also reads (``self.n += 1``) comes first."""
    instructions = [each for each in dis.get_instructions(code) if each.argval == wanted]
    stores = [each for each in instructions if each.opname in _STORES]
    reading = {_line(each) for each in instructions if each.opname in _LOADS}
    best = next((each for each in stores if _line(each) in reading), stores[0] if stores else None)
    return _site(code, best) if best is not None else None


def _subscript(code: CodeType, wanted: str) -> Site | None:
    """A line that mentions the container and stores an item or calls a method that changes it.

    One that may store elsewhere what it reads there (``group["lr"] = rate * state["it"]``) comes last.
    """
    mentioned, since, updated, last = -1, 0, False, None
    for instruction in dis.get_instructions(code):
        line = _line(instruction)
        since += 1
        if instruction.argval == wanted:
            mentioned, since, updated = line, 0, False
        elif instruction.opname == "COPY" and since <= _NEAR:  # the item is read, and stored again
            updated = True
        stores = instruction.opname == "STORE_SUBSCR"
        if line == mentioned and (instruction.argval in _METHODS or (stores and (updated or since <= _NEAR))):
            return _site(code, instruction)
        if line == mentioned and stores and last is None:
            last = _site(code, instruction)
    return last


def _line(instruction: dis.Instruction) -> int:
    positions = instruction.positions
    return positions.lineno or 0 if positions is not None else 0


def _site(code: CodeType, instruction: dis.Instruction) -> Site:
    return Site(code.co_filename, _line(instruction) or code.co_firstlineno, code.co_name)
