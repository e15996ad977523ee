"""Instructions as the bytes that they are, and code made of them with others in between.

What is put between them moves the rest: jumps are written anew, as long as their distances need, and the
tables of lines and exception handlers follow (:mod:`.lines`).
"""

from __future__ import annotations

from dis import hasjrel, opmap, opname
from functools import cache
from itertools import accumulate, pairwise
from types import CodeType
from typing import Any, NamedTuple

from .lines import moved_handlers, moved_lines

_EXTENDED, _CACHE, _NOP = opmap["EXTENDED_ARG"], opmap["CACHE"], opmap["NOP"]
_JUMPS = frozenset(hasjrel)
_BACKWARD = "BACKWARD"
_tuple = tuple.__new__  # half the time of a named tuple's own constructor, at every instruction
_PREFIX = 1 << 8
"""The smallest argument that needs a prefix."""


class Instruction(NamedTuple):
    """An instruction."""

    unit: int  # its first code unit, that of a prefix if it has one
    opcode: int
    name: str
    argument: int  # its argument, as it is encoded
    text: bytes  # with prefixes and caches
    target: int  # which instruction it may jump to, if it is a jump; else -1


class Piece(NamedTuple):
    """An instruction at its place in new code."""

    before: bytes  # instructions that come before it, wherever one comes from
    opcode: int
    text: bytes  # with prefixes and caches
    to: int  # which piece it may jump to, if it is a jump; else -1
    unit: int  # the unit of the old code that has come to lie here


def instructions_of(code: CodeType) -> list[Instruction]:
    """The instructions of code."""
    text = code.co_code
    found: list[Any] = []
    begins: dict[int, int] = {}  # numbers of instructions by their first unit
    jumps: list[tuple[int, int]] = []
    at, end = 0, len(text)
    while at < end:
        begin, opcode, argument = at, text[at], text[at + 1]
        at += 2
        while opcode == _EXTENDED:
            opcode, argument = text[at], argument << 8 | text[at + 1]
            at += 2
        while at < end and text[at] == _CACHE:
            at += 2
        name = opname[opcode]
        begins[begin // 2] = len(found)
        if opcode in _JUMPS:
            jumps.append((len(found), at // 2 + (-argument if _BACKWARD in name else argument)))
        found.append(_tuple(Instruction, (begin // 2, opcode, name, argument, text[begin:at], -1)))
    for number, unit in jumps:
        found[number] = found[number]._replace(target=begins[unit])
    return found


def _sample(value: Any) -> Any:
    """Has the instructions that are written between those of other code, if they have caches."""
    return value(value.real) if value in value else None


_CACHES = {each.opcode: each.text[2:] for each in instructions_of(_sample.__code__)}


@cache
def write(opcode: int, argument: int = 0) -> bytes:
    """An instruction."""
    return _prefixes(argument) + bytes((opcode, argument & 0xFF)) + _CACHES.get(opcode, b"")


def _prefixes(argument: int, least: int = 0) -> bytes:
    """The prefixes of an instruction whose argument takes more than a byte."""
    made = b""
    while argument >= _PREFIX or least > 0:
        argument >>= 8
        least -= 1
        made = bytes((_EXTENDED, argument & 0xFF)) + made
    return made


def placed(code: CodeType, pieces: list[Piece], constants: tuple[Any, ...], depth: int) -> CodeType:
    """The code with other instructions."""
    starts, texts = _laid_out(pieces)
    places = _places(pieces, starts, len(code.co_code) // 2)
    text = b"".join(
        [part for piece, text in zip(pieces, texts, strict=True) for part in (piece.before, text)]
    )
    return code.replace(
        co_code=text,
        co_consts=constants,
        co_stacksize=depth,
        co_linetable=moved_lines(code.co_linetable, places),
        co_exceptiontable=moved_handlers(code.co_exceptiontable, places),
    )


def _laid_out(pieces: list[Piece]) -> tuple[list[int], list[bytes]]:
    """Where each piece begins, in units, and the end of the last; and the texts of their instructions."""
    texts = [each.text for each in pieces]
    sizes = [(len(each.before) + len(each.text)) // 2 for each in pieces]
    jumps = [(at, each) for at, each in enumerate(pieces) if each.to >= 0]
    while True:
        starts = list(accumulate(sizes, initial=0))
        grown = False
        for at, piece in jumps:
            text = texts[at] = _jump(piece, abs(starts[piece.to] - starts[at + 1]), texts[at])
            size = (len(piece.before) + len(text)) // 2
            grown, sizes[at] = grown or size > sizes[at], size
        if not grown:
            return starts, texts


def _jump(piece: Piece, distance: int, text: bytes) -> bytes:
    """A jump over a distance; it never gets shorter than it was."""
    own = next(at for at in range(0, len(text), 2) if text[at] != _EXTENDED)
    prefixes = _prefixes(distance, own // 2)
    return prefixes + bytes((piece.opcode, distance & 0xFF)) + text[own + 2 :]


def _places(pieces: list[Piece], starts: list[int], count: int) -> list[int]:
    """Where each unit of the old code lies now, and, behind them, where the last piece ends.

    What lies in the middle of an instruction lies as far from its end as it did.
    """
    places: list[int] = []
    known = list(zip([*[piece.unit for piece in pieces], count], starts, strict=True))
    for (unit, start), (following, end) in pairwise(known):
        places.append(start)
        places.extend(range(end - (following - unit) + 1, end))
    places.append(known[-1][1])
    return places
