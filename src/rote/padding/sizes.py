"""The sizes to which arguments are padded: given by the user, powers of two, or learnt from the calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ..base import OptionError

POWERS, LEARN = "powers", "learn"

MAX_LEARNT = 8
"""The most learnt sizes of one axis."""

OFTEN = 3
"""Calls with a size after which it is learnt."""

Axes = Mapping[str, Mapping[int, Sequence[int] | str]]
"""For each argument the axes, and for each axis the ascending sizes, ``"powers"`` or ``"learn"``."""


class AxisSizes:
    """The sizes to which one axis is padded.

    With ``"learn"``, a size that comes ``OFTEN`` times is learnt (``MAX_LEARNT`` at most). Others are padded
    to the next learnt size, or to the next power of two if it is smaller, so their number stays bounded.
    """

    def __init__(self, given: Sequence[int] | str) -> None:
        self._given = given if isinstance(given, str) else tuple(given)
        self._seen: Counter[int] = Counter()
        self._learnt: set[int] = set()

    @property
    def largest(self) -> int | None:
        """The largest one, if there is one."""
        return None if isinstance(self._given, str) else self._given[-1]

    def size_for(self, size: int) -> int | None:
        """The size to which a size is padded, or None if it is larger than all."""
        if not isinstance(self._given, str):
            return next((found for found in self._given if found >= size), None)
        power = 1 << max(size - 1, 0).bit_length()
        if self._given == POWERS:
            return power
        self._learn(size)
        return min((found for found in self._learnt if size <= found <= power), default=power)

    def _learn(self, size: int) -> None:
        if size in self._learnt or len(self._learnt) >= MAX_LEARNT:
            return
        self._seen[size] += 1
        if self._seen[size] >= OFTEN:
            self._learnt.add(size)
        elif len(self._seen) > 1024:  # sizes that came once are not kept for ever
            self._seen.clear()


def check_axes(axes: Any) -> None:
    """Raise an OptionError if ``axes`` is no dict of dicts, or has an impossible size."""
    if not isinstance(axes, Mapping) or not axes:
        raise OptionError(f"axes={axes!r} must be a dict of argument names, as in {{'x': {{0: [1, 2, 4]}}}}")
    for name, sizes_of in axes.items():
        if not isinstance(name, str) or not isinstance(sizes_of, Mapping) or not sizes_of:
            raise OptionError(f"axes[{name!r}]={sizes_of!r} must be a dict of axes, as in {{0: [1, 2, 4]}}")
        for axis, sizes in sizes_of.items():
            _check_axis(f"axes[{name!r}][{axis!r}]", axis, sizes)


def _check_axis(where: str, axis: Any, sizes: Any) -> None:
    if type(axis) is not int or axis < 0:
        raise OptionError(f"{where}: an axis must be a whole number of at least 0")
    if isinstance(sizes, str):
        if sizes not in (POWERS, LEARN):
            raise OptionError(f"{where}={sizes!r} must be a list of sizes, {POWERS!r} or {LEARN!r}")
        return
    numbers: list[Any] = list(sizes) if isinstance(sizes, Sequence) else []
    if not numbers or any(type(size) is not int or size < 1 for size in numbers):
        raise OptionError(f"{where}={sizes!r} must be a list of whole numbers of at least 1")
    if numbers != sorted(set(numbers)):
        raise OptionError(f"{where}={sizes!r} must ascend")
