"""Where the numbers of an operation lie among the parameters of the kernels that it launches.

The operator table says which numbers of an operator reach its kernels, and as what: as they are, negated or
inverted. Where they lie depends on the kernel, which PyTorch chooses by types, layouts and sizes. So the
operation is captured several times with other numbers, never run, and the parameters are compared. A word in
which they differ must be one of the table's numbers in all captures, rounded to the type of the word. Of an
operation that differs in any other way, nothing is patched.

Some bytes are whatever lay on the host's stack: structures have gaps, and tables that are not full. So each
number is captured twice. Bytes that differ although the numbers are equal do not follow from these. The
second time the numbers come in the opposite order, since the stack often repeats itself after a few calls.

Numbers for which PyTorch might take another kernel (zero, one, two, a half, their opposites) are among those
it is captured with. A number that does not fit its word is refused before anything is replayed
(:meth:`..protocol.NumberCell.bound`), as are infinities and NaN: the call is traced then, and raises if it
raises in PyTorch.

What does not work: to look for the one number that the call has. It may be anything's bits, and the words of
two equal numbers could not be told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from ctypes import c_float
from math import copysign, inf
from operator import neg
from struct import pack, unpack
from typing import Any, NamedTuple

import numpy
import torch

from ....operators import facts_of
from ...protocol import Magnitudes, NumberCell
from .launched import LaunchedKernel

_EXACT = 1 << 53
"""Up to here a whole number is a float, so it is rounded once."""
_FLOATS = (0.7310585786300049, -2.2360679774997896, 0.0011792366266891359, 917.3313218391)
_INTEGERS = (1237, -4211, 30011, 20011)
"""Numbers that differ in all bytes of any word, and fit every word."""
_SPECIAL = (0, 1, -1, 2, -2)
_SPECIAL_FLOATS = (-0.0, 0.5, -0.5)


class Coding(NamedTuple):
    """How a word holds a number.

    Attributes:
        size: Bytes.
        magnitudes: Of numbers that have a word, and that PyTorch takes.
        pack: Makes the word.
    """

    size: int
    magnitudes: Magnitudes
    pack: Callable[[Any], bytes]


class Word(NamedTuple):
    """A word of a kernel's parameters.

    Attributes:
        parameter: Which parameter.
        start: At which of its bytes.
    """

    parameter: int
    start: int
    cell: NumberCell
    coding: Coding

    def is_in(self, kernel: LaunchedKernel) -> bool:
        """Whether a launch has the number of now there."""
        found = kernel.parameters[self.parameter][self.start : self.start + self.coding.size]
        return found == self.coding.pack(self.cell.value)


Round = Mapping[NumberCell, Any]
"""The numbers with which an operation is captured once."""
Roles = Mapping[NumberCell, Collection[str]]
"""As what each number may reach a kernel: ``""`` as it is, ``"-"`` negated, ``"1/"`` inverted."""


def roles_of(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Roles | None:
    """What the operator table says of the numbers of an operation; None if of one of them nothing."""
    facts, found = facts_of(func), dict[NumberCell, list[str]]()
    names = [each.name for each in func._schema.arguments]
    for name, operand in (*zip(names, args, strict=False), *kwargs.items()):
        roles = [role for parameter, role in facts.parameters if parameter == name]
        for each in operand if type(operand) is list else [operand]:
            if type(each) is not NumberCell:
                continue
            if not roles or type(each.value) not in (int, float):
                return None
            found.setdefault(each, []).extend(roles)
    return found


def rounds(cells: Sequence[NumberCell]) -> list[Round]:
    """Numbers to capture an operation with, as many of them as tell where each lies."""
    found: list[Round] = []
    for number in range(len(_FLOATS)):
        found.append({cell: _generic(cell, number, place) for place, cell in enumerate(cells)})
    for special in (*_SPECIAL, *_SPECIAL_FLOATS):
        if type(special) is int or any([type(cell.value) is float for cell in cells]):
            found.append({cell: type(cell.value)(special) for cell in cells})
    return found


def twice(numbers: Sequence[Round]) -> list[Round]:
    """The numbers in the order in which an operation is captured with them."""
    return [*numbers, *reversed(numbers)]


def _generic(cell: NumberCell, number: int, place: int) -> Any:
    if type(cell.value) is float:
        return _FLOATS[number] * (1 + place / 509)
    return _INTEGERS[number] + (number + 3) * place


def words_in(
    tried: Sequence[Sequence[LaunchedKernel]],
    numbers: Sequence[Round],
    roles: Roles,
) -> list[list[Word]] | None:
    """The words of each kernel that an operation launches, or None if that is not known.

    Args:
        tried: The kernels launched for each of :func:`twice` the ``numbers``.
    """
    first = tried[0]
    if not all([are_started_alike(each, first) for each in tried]):
        return None
    codes = _codes(numbers, roles)
    found = [_words_of([each[number] for each in tried], codes) for number in range(len(first))]
    words = [each for each in found if each is not None]
    if len(words) < len(found) or {word.cell for each in words for word in each} != set(roles):
        return None
    return words


def are_started_alike(kernels: Sequence[LaunchedKernel], others: Sequence[LaunchedKernel]) -> bool:
    """Whether the same kernels are launched in the same way, with whatever parameters."""
    return len(kernels) == len(others) and all(
        [one.is_started_as(other) for one, other in zip(kernels, others, strict=True)]
    )


_Codes = Mapping[int, Mapping[bytes, tuple[NumberCell, Coding]]]
"""By size, then by the words of all captures: whose they are."""


def _codes(numbers: Sequence[Round], roles: Roles) -> _Codes:
    found: dict[int, dict[bytes, tuple[NumberCell, Coding]]] = {8: {}, 4: {}, 2: {}}
    for cell, each in roles.items():
        for role in each:
            for coding in _CODINGS[type(cell.value), role]:
                words = b"".join([coding.pack(values[cell]) for values in twice(numbers)])
                found[coding.size].setdefault(words, (cell, coding))
    return found


def _words_of(tried: Sequence[LaunchedKernel], codes: _Codes) -> list[Word] | None:
    words: list[Word] = []
    for parameter, each in enumerate(zip(*[kernel.parameters for kernel in tried], strict=True)):
        found = _words_of_parameter(parameter, each, codes)
        if found is None:
            return None
        words += found
    return words


def _words_of_parameter(parameter: int, tried: Sequence[bytes], codes: _Codes) -> list[Word] | None:
    """The words of one parameter, as it was in each capture; None if it differs where no word is."""
    table = numpy.frombuffer(b"".join(tried), numpy.uint8).reshape(2, len(tried) // 2, -1)
    stray = _by_words((table[0] != table[1, ::-1]).any(0))
    words: list[Word] = []
    covered = 0
    for place in numpy.flatnonzero((table != table[0, 0]).any((0, 1)) & ~stray).tolist():
        if place < covered:
            continue
        word = next(_words_around(parameter, place, tried, codes), None)
        if word is None or word.start < covered:
            return None
        covered = word.start + word.coding.size
        words.append(word)
    return words


def _by_words(differs: Any) -> Any:
    """Whether a byte or one beside it differs: of an address on the stack often only some do."""
    padded = numpy.pad(differs, (0, -len(differs) % 4))
    return padded.reshape(-1, 4).any(1).repeat(4)[: len(differs)]


def _words_around(parameter: int, place: int, tried: Sequence[bytes], codes: _Codes) -> Iterator[Word]:
    for size, known in codes.items():
        start = place - place % size
        owner = known.get(b"".join([each[start : start + size] for each in tried]))
        if owner is not None:
            yield Word(parameter, start, *owner)


# ---------------------------------------------------------------------- numbers as words


def _single(value: Any) -> float:
    """A number as float32 has it."""
    return c_float(value).value


def _brain(value: Any) -> bytes:
    """The upper half of a float32, rounded to even."""
    (bits,) = unpack("<I", pack("<f", value))
    return pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)


def _inverse(value: float) -> float:
    return 1.0 / value if value else copysign(inf, value)


_AS: Mapping[str, Callable[[Any], Any]] = {"": lambda value: value, "-": neg}
_DOUBLE, _SINGLE, _HALF, _BRAIN = [
    torch.finfo(each).max for each in (torch.float64, torch.float32, torch.float16, torch.bfloat16)
]


def _codings(kind: type, role: str) -> tuple[Coding, ...]:
    """The types of words in which PyTorch's kernels take a number of Python's, the widest first."""
    if role == "1/":  # calculated in double precision, or in that of the word
        return (
            Coding(8, _inverted(kind, _DOUBLE), lambda value: pack("<d", _inverse(float(value)))),
            Coding(4, _inverted(kind, _SINGLE), lambda value: pack("<f", _single(_inverse(float(value))))),
            Coding(4, _inverted(kind, _SINGLE), lambda value: pack("<f", _single(_inverse(_single(value))))),
        )
    made = _AS[role]
    floats = (
        Coding(8, _up_to(kind, _DOUBLE), lambda value: pack("<d", made(value))),
        Coding(4, _up_to(kind, _SINGLE), lambda value: pack("<f", made(value))),
        Coding(2, _up_to(kind, _HALF), lambda value: pack("<e", _single(made(value)))),
        Coding(2, _up_to(kind, _BRAIN), lambda value: _brain(made(value))),
    )
    integers = (
        Coding(8, Magnitudes(0, (1 << 63) - 1), lambda value: pack("<q", made(value))),
        Coding(4, Magnitudes(0, (1 << 31) - 1), lambda value: pack("<i", made(value))),
    )
    return floats if kind is float else (*integers, *floats)


def _up_to(kind: type, largest: float) -> Magnitudes:
    return Magnitudes(0, largest if kind is float else min(largest, _EXACT))


def _inverted(kind: type, largest: float) -> Magnitudes:
    """Of numbers whose inverse is one up to a magnitude, too."""
    return Magnitudes(1 / largest, _up_to(kind, largest).largest)


_CODINGS: Mapping[tuple[type, str], tuple[Coding, ...]] = {
    (kind, role): _codings(kind, role) for kind in (float, int) for role in ("", "-", "1/")
}
