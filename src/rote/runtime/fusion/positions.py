"""Where an element of one tensor lies in another one's memory, as a sum of digits.

A kernel counts the elements of what it makes in the order in which they lie: ``t`` from 0 on. The element of
an operand that belongs to ``t`` lies at

    start + sum over terms of (((t // span) % size) - low) * step

A term is one digit of ``t``: it takes ``size`` values and changes every ``span`` elements. A dimension that
is broadcast has no term. Neighbouring digits that step on as one are one digit, so an operand that lies like
the result has the single term ``t``.

``low`` and ``high`` bound a digit where a kernel looks at one piece of a concatenation: there it is from
``low`` to ``high``, and counts from ``low``.

Positions are put behind one another (:func:`behind`): where an operand of ``p`` lies for the elements of
``q``, if ``q`` reads ``p``. Then ``p`` need not be in memory. That works if each digit of ``p`` is made of
whole digits of ``q``; digits are cut in two where that helps. Otherwise there is no such position, and ``p``
is written to memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Term(NamedTuple):
    """One digit, and what it adds.

    Attributes:
        span: Elements of the result for which it stays the same.
        size: How many values it has.
        step: Elements of the operand's memory between two of them.
        low: The first value that is looked at.
        high: The first value behind those.
    """

    span: int
    size: int
    step: int
    low: int
    high: int

    @property
    def whole(self) -> bool:
        """Whether all of its values are looked at."""
        return self.low == 0 and self.high == self.size

    @property
    def reach(self) -> int:
        """The most that it adds."""
        return (self.high - self.low - 1) * self.step


@dataclass(frozen=True)
class ElementPosition:
    """Where the element of an operand lies that belongs to an element of the result.

    Attributes:
        start: Elements before the first one.
        terms: Digits, the slowest first.
    """

    start: int
    terms: tuple[Term, ...]

    @property
    def reach(self) -> int:
        """Where the last element may lie."""
        return self.start + sum([term.reach for term in self.terms])

    @classmethod
    def same(cls, count: int) -> ElementPosition:
        """An operand that lies like the result."""
        return cls(0, (Term(1, count, 1, 0, count),) if count > 1 else ())


class Digit(NamedTuple):
    """A dimension of a tensor without gaps, as it lies.

    Attributes:
        span: Elements for which it stays the same.
    """

    span: int
    size: int
    dimension: int


def digits_of(shape: Sequence[int], stride: Sequence[int]) -> tuple[Digit, ...] | None:
    """The dimensions of a tensor as they lie, the slowest first; None if it has gaps or overlaps.

    Dimensions of size 1 are left out.
    """
    found = [
        Digit(step, size, number)
        for number, (size, step) in enumerate(zip(shape, stride, strict=True))
        if size != 1
    ]
    found.sort(key=lambda digit: digit.span, reverse=True)
    expected = 1
    for digit in reversed(found):
        if digit.span != expected or not digit.size:
            return None
        expected *= digit.size
    return tuple(found)


def aligned(
    digits: Sequence[Digit], rank: int, shape: Sequence[int], stride: Sequence[int], start: int
) -> ElementPosition:
    """Where the elements of an operand lie, which is broadcast to a result.

    Args:
        digits: The dimensions of the result, as they lie.
    """
    missing = rank - len(shape)
    terms: list[Term] = []
    for span, size, dimension in digits:
        own = dimension - missing
        step = stride[own] if own >= 0 and shape[own] != 1 else 0
        terms.append(Term(span, size, step, 0, size))
    return ElementPosition(start, _joined(terms))


def piece(
    digits: Sequence[Digit], dimension: int, low: int, stride: Sequence[int], size: int, start: int
) -> ElementPosition:
    """Where the elements of one piece of a concatenation lie.

    Args:
        digits: The dimensions of the result, as they lie.
        dimension: The one along which pieces follow one another.
        low: Where the piece begins in it.
    """
    terms = [
        Term(span, full, stride[number], low, low + size)
        if number == dimension
        else Term(span, full, stride[number], 0, full)
        for span, full, number in digits
    ]
    return ElementPosition(start, _joined(terms))


def behind(first: ElementPosition, second: ElementPosition, count: int) -> ElementPosition | None:
    """Where an operand of ``p`` lies for the elements of ``q``.

    Args:
        first: Where the elements of ``p`` lie for those of ``q``.
        second: Where the elements of the operand lie for those of ``p``.

    Returns:
        None if that is no sum of digits.
    """
    blocks = _blocks(second, count)
    terms = _cut(first.terms, [bound for block in blocks for bound in (block.span, block.span * block.size)])
    if terms is None or first.reach >= count:
        return None
    start, found = second.start, list[Term]()
    for block in blocks:
        inside = _inside(terms, block.span, block.size)
        here = first.start // block.span % block.size
        if inside is None or here + sum([term.reach for term in inside]) // block.span >= block.size:
            return None
        if not block.whole:
            digit = _only(inside, block.span) if not here else None
            if digit is None:
                return None
            inside = [digit._replace(low=block.low, high=block.high)]
            here = 0
        start += here * block.step
        found += [term._replace(step=term.step // block.span * block.step) for term in inside]
    found.sort(key=lambda term: term.span, reverse=True)
    return ElementPosition(start, _joined(found))


def digit_behind(position: ElementPosition, span: int, size: int) -> Term | None:
    """The digit of the result that is one digit of a tensor, which is looked at from ``position``.

    Args:
        position: Where the elements of the tensor lie.
        span: Elements of its memory for which the digit stays the same.
        size: How many values the digit has.

    Returns:
        None if that digit is made of several, or of part of one.
    """
    terms = _cut(position.terms, (span, span * size))
    inside = _inside(terms, span, size) if terms is not None else None
    return _only(inside, span) if inside is not None and not position.start // span % size else None


def _only(terms: Sequence[Term], span: int) -> Term | None:
    """The only one of some digits, if it is the digit at ``span`` itself."""
    alone = len(terms) == 1 and terms[0].step == span and terms[0].whole
    return terms[0] if alone else None


def _inside(terms: Sequence[Term], span: int, size: int) -> list[Term] | None:
    """The digits that add to one digit of a tensor; None if one of them adds to parts of it."""
    inside = [term for term in terms if span <= term.step < span * size]
    return None if any([term.step % span for term in inside]) else inside


def _blocks(position: ElementPosition, count: int) -> list[Term]:
    """All digits of a tensor with ``count`` elements, those that add nothing as well, the slowest first."""
    found: list[Term] = []
    upper = count
    for term in position.terms:
        covered = term.span * term.size
        if covered < upper:
            found.append(Term(covered, upper // covered, 0, 0, upper // covered))
        found.append(term)
        upper = term.span
    if upper > 1:
        found.append(Term(1, upper, 0, 0, upper))
    return found


def _cut(terms: Sequence[Term], bounds: Sequence[int]) -> list[Term] | None:
    """Digits that lie on one side of each bound; None if one of them cannot be cut there."""
    found = list(terms)
    for bound in bounds:
        for at, term in enumerate(found):
            if not term.step < bound <= term.reach:
                continue
            fast = bound // term.step
            if bound % term.step or term.size % fast or not term.whole:
                return None
            slow = term.size // fast
            found[at : at + 1] = [
                Term(term.span * fast, slow, bound, 0, slow),
                Term(term.span, fast, term.step, 0, fast),
            ]
            break
    return found


def _joined(terms: Sequence[Term]) -> tuple[Term, ...]:
    """Digits, the slowest first, with those joined that step on as one."""
    found: list[Term] = []
    for term in terms:
        if not term.step or term.size == 1:
            continue
        before = found[-1] if found else None
        if before is not None and _steps_on(before, term):
            size = before.size * term.size
            found[-1] = Term(term.span, size, term.step, 0, size)
        else:
            found.append(term)
    return tuple(found)


def _steps_on(slow: Term, fast: Term) -> bool:
    """Whether two digits are one."""
    lies = slow.span == fast.span * fast.size and slow.step == fast.step * fast.size
    return lies and slow.whole and fast.whole
