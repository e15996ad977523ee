"""The table of lines of code that was assembled: where each instruction stands in the source.

The interpreter trusts the table. One that covers more than the code makes a profiled call write past the end
of a block of memory, which is what the assembler's own table does here and there (0.19.1: where a jump has
got longer on the way). So the table is made from the bytes of the code themselves.

Format: ``Objects/locations.md`` of CPython 3.11 and later.
"""

from __future__ import annotations

import dis
from collections.abc import Sequence
from types import CodeType
from typing import Any

_EXTENDED, _CACHE = dis.opmap["EXTENDED_ARG"], dis.opmap["CACHE"]
_LONG, _NONE, _NO_COLUMNS = 14, 15, 13
_MOST = 8


def line_table(code: CodeType, instructions: Sequence[Any]) -> bytes:
    """The table of locations.

    Args:
        code: The code.
        instructions: Its instructions in order, with a ``location`` each; without prefixes and caches.

    Raises:
        ValueError: The code has not these instructions.
    """
    table = bytearray()
    line = code.co_firstlineno
    for location, units in _runs(code.co_code, instructions):
        while units:
            taken = min(units, _MOST)
            line = _entry(table, location, taken, line)
            units -= taken
    return bytes(table)


def _runs(text: bytes, instructions: Sequence[Any]) -> list[tuple[Any, int]]:
    """Locations with the number of code units that they cover, equal ones together."""
    found: list[tuple[Any, int]] = []
    left = iter(instructions)
    prefix, location = 0, None
    for opcode in text[::2]:
        if opcode == _EXTENDED:
            prefix += 1
            continue
        if opcode != _CACHE:
            instruction = next(left, None)
            if instruction is None:
                raise ValueError("the code has more instructions than are known")
            location = instruction.location
        if found and (found[-1][0] is location or found[-1][0] == location):
            found[-1] = location, found[-1][1] + prefix + 1
        else:
            found.append((location, prefix + 1))
        prefix = 0
    if next(left, None) is not None:
        raise ValueError("the code has fewer instructions than are known")
    return found


def _entry(table: bytearray, location: Any, units: int, line: int) -> int:
    """Append one entry; returns its line."""
    if location is None or location.lineno is None:
        table.append(0x80 | _NONE << 3 | units - 1)
        return line
    ends = (location.end_lineno, location.col_offset, location.end_col_offset)
    if None in ends:
        table.append(0x80 | _NO_COLUMNS << 3 | units - 1)
        _signed(table, location.lineno - line)
        return location.lineno
    table.append(0x80 | _LONG << 3 | units - 1)
    _signed(table, location.lineno - line)
    _unsigned(table, location.end_lineno - location.lineno)
    _unsigned(table, location.col_offset + 1)
    _unsigned(table, location.end_col_offset + 1)
    return location.lineno


def _unsigned(table: bytearray, value: int) -> None:
    while value > 63:
        table.append(0x40 | value & 63)
        value >>= 6
    table.append(value)


def _signed(table: bytearray, value: int) -> None:
    _unsigned(table, (-value << 1 | 1) if value < 0 else value << 1)
