"""The sizes that arguments are padded to: given by the user, powers of two, or learnt from the calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.errors import OptionError

POWERS, LEARN = "powers", "learn"

MAX_LEARNT = 8
"""Sizes of one axis that are learnt."""

OFTEN = 3
"""Calls with a size after which it is learnt."""

Axes = Mapping[int, Sequence[int] | str]
"""For each axis the sizes, ascending, or ``"powers"``, or ``"learn"``."""


class Sizes:
    """The buckets of one axis.

    With ``"learn"``, a size met ``OFTEN`` times becomes a bucket of its own (``MAX_LEARNT`` at most). Any
    other goes to the next learnt size, or to the next power of two if that is smaller, so the number of
    buckets stays bounded whatever comes.

    Args:
        given: Sizes, ``"powers"`` or ``"learn"``.
    """

    def __init__(self, given: Sequence[int] | str) -> None:
        self._given = given if isinstance(given, str) else tuple(given)
        self._seen: Counter[int] = Counter()
        self._learnt: set[int] = set()

    @property
    def largest(self) -> int | None:
        """The largest bucket, if there is one."""
        return None if isinstance(self._given, str) else self._given[-1]

    def bucket(self, size: int) -> int | None:
        """The bucket of a size, or None if it is larger than all."""
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
        elif len(self._seen) > 1024:  # sizes that came once must not be kept for ever
            self._seen.clear()


def check_buckets(shapes: str, buckets: Any) -> None:
    """Check the option.

    Raises:
        OptionError: It has another form than a dict of dicts, or a size that cannot be.
    """
    if (shapes == "buckets") != bool(buckets):
        raise OptionError(
            'shapes="buckets" and buckets={"argument": {axis: sizes}} belong together; '
            f"shapes={shapes!r} was given with buckets={buckets!r}"
        )
    if not buckets:
        return
    if not isinstance(buckets, Mapping):
        raise OptionError(f"buckets={buckets!r} must be a dict of argument names")
    for name, axes in buckets.items():
        if not isinstance(name, str) or not isinstance(axes, Mapping) or not axes:
            raise OptionError(f"buckets[{name!r}]={axes!r} must be a dict of axes, as in {{0: [1, 2, 4]}}")
        for axis, sizes in axes.items():
            _check_axis(f"buckets[{name!r}][{axis!r}]", axis, sizes)


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
