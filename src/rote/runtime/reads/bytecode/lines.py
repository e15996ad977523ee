"""The table of lines and the table of exception handlers of code into which instructions were put.

The interpreter trusts both. A table of lines that covers more than the code makes a profiled call write past
the end of a block of memory. So neither is made anew: each entry of a table stays what it was, and covers the
code units that have come of those that it covered.

Formats: ``Objects/locations.md`` and ``Objects/exception_handling_notes.txt`` of CPython 3.11 and later.
"""

from __future__ import annotations

from collections.abc import Sequence

_BEGINS = 0x80
"""Set in the first byte of each entry of both tables, and in no other byte."""
_MORE = 0x40
"""Set in each byte of a number except the last."""
_MOST = 8
"""Code units that one entry for lines covers at most."""
_FORM = 0x78
_ONE_LINE, _NO_COLUMNS, _LONG = 10 << 3, 13 << 3, 14 << 3


def moved_lines(table: bytes, places: Sequence[int]) -> bytes:
    """The table of locations, from that of the old code.

    ``places`` says where each unit of the old code lies now, and, behind them, how many units there are.
    """
    made = bytearray()
    at, now, most = 0, places[0], len(places) - 1
    begins = [index for index, byte in enumerate(table) if byte & _BEGINS]
    for begin, end in zip(begins, [*begins[1:], len(table)], strict=True):
        form, at = table[begin] & _FORM, min(at + (table[begin] & 7) + 1, most)
        units, now = places[at] - now, places[at]
        said = table[begin + 1 : end]
        if units > _MOST:
            made.append(_BEGINS | form | _MOST - 1)
            made += said
            form, said = _again(form, said)
            more, units = divmod(units - 1, _MOST)
            made += (bytes((_BEGINS | form | _MOST - 1,)) + said) * (more - 1)
            units += 1
        if units > 0:
            made.append(_BEGINS | form | units - 1)
            made += said
    return bytes(made)


def _again(form: int, said: bytes) -> tuple[int, bytes]:
    """How an entry goes on that says the same as the one before it: lines are told by their difference."""
    if _ONE_LINE <= form < _NO_COLUMNS:
        return _ONE_LINE, said
    if form == _NO_COLUMNS:
        return form, b"\0"
    if form == _LONG:
        first = next(index for index, byte in enumerate(said) if not byte & _MORE)
        return form, b"\0" + said[first + 1 :]
    return form, said


def moved_handlers(table: bytes, places: Sequence[int]) -> bytes:
    """The table of exception handlers, likewise."""
    made = bytearray()
    numbers = _numbers(table)
    for start, length, target, depth in zip(*[iter(numbers)] * 4, strict=True):
        end = places[start + length]
        first = len(made)
        for number in (places[start], end - places[start], places[target], depth):
            _append(made, number)
        made[first] |= _BEGINS
    return bytes(made)


def handlers_of(table: bytes) -> list[tuple[int, int, int]]:
    """Of each handler where what it covers begins, where it begins, and its depth, with the lowest bit apart.

    That says whether the instruction is pushed at which the exception was raised.
    """
    numbers = _numbers(table)
    return list(zip(numbers[::4], numbers[2::4], numbers[3::4], strict=True))


def _numbers(table: bytes) -> list[int]:
    """All numbers of a table, which has four for each handler."""
    found: list[int] = []
    number = 0
    for byte in table:
        number = number << 6 | byte & 0x3F
        if not byte & _MORE:
            found.append(number)
            number = 0
    return found


def _append(made: bytearray, number: int) -> None:
    digits = [number & 0x3F]
    while number := number >> 6:
        digits.append(number & 0x3F | _MORE)
    made += bytes(reversed(digits))
