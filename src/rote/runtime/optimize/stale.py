"""Results that are calculated again because memory is slower than calculating them (``docs/design.md``).

An attention with few queries runs on a few multiprocessors, which wait for each piece of its mask: so it is
to lie in the cache. It is the operation of the program itself that runs again, where it stood, so its bits
are the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..fusion import DeviceKernels, Fusible, NoKernelError
from ..operators import short
from ..program import Origin
from .shortening import ShortStretch

_CACHE = 16 << 20
"""Bytes that pass through the cache until what lay there is gone; a part of that of recent GPUs."""
_MOST = 1 << 20
"""Bytes of a result that is calculated again."""


def without_stale(stretch: ShortStretch, kernels: DeviceKernels) -> ShortStretch:
    """The stretch in which attentions read small results that were made just before."""
    stale = [index for index in dict.fromkeys(_stale(stretch)) if _is_calculated(index, stretch, kernels)]
    return stretch.with_again(stale) if stale else stretch


def _stale(stretch: ShortStretch) -> Iterator[int]:
    """The operations that would make anew what attentions read after much else was read."""
    effects = stretch.effects
    passed = 0
    touched: dict[Origin, int] = {}
    for run in stretch.runs:
        for index in run.operations:
            attends = "attention" in short(effects.operations[index].name)
            for token in effects.touched[index].reads:
                home, made = stretch.home(token.origin), effects.made.get(token.origin)
                old = passed - touched.get(home, passed) > _CACHE
                if attends and old and made is not None and made in stretch.again:
                    yield made
                touched[home] = passed
            passed += sum([token.nbytes for token in effects.touched[index].reads])
            touched.update(dict.fromkeys(effects.touched[index].makes, passed))


def _is_calculated(index: int, stretch: ShortStretch, kernels: DeviceKernels) -> bool:
    """Whether a kernel may calculate an operation, and its result is small."""
    try:
        each = Fusible.of(index, stretch.effects.operations[index])
    except NoKernelError:
        return False
    return each.result.nbytes <= _MOST and kernels.refusal(each) is None
