"""What replays a segment: calls with everything bound, one after the other.

They run below autograd and version counting, as a CUDA replay does: they build no graph, and
``tensor._version`` counts only what the user writes. The modes that kernels look at are as they were at
capture, and are switched only where they change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from operator import itemgetter
from time import perf_counter
from typing import Any, NamedTuple

import torch

from ...pytorch import below_autograd
from .torch_private import Call, grad_setter, inference_guard

Program = Callable[[], None]


class Modes(NamedTuple):
    """What kernels look at besides their operands.

    Attributes:
        grad: Grad mode; some CPU kernels choose their arithmetic by it.
    """

    grad: bool
    inference: bool
    dtype: torch.dtype

    @classmethod
    def now(cls) -> Modes:
        """The modes of this thread."""
        return cls(torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype())


class Store(NamedTuple):
    """A result to copy where it belongs.

    Attributes:
        span: Of a result whose elements overlap: copy so many elements of its memory, as it lies, from this
            offset in its storage.
    """

    path: tuple[int, ...]
    target: torch.Tensor
    span: tuple[int, int] | None


class ReplayStep(NamedTuple):
    """One call of the replay, and what to copy from its result."""

    call: Call
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    stores: tuple[Store, ...] = ()


def program(steps: Iterable[tuple[Modes, ReplayStep]]) -> Program:
    """A function that runs steps in order, each under its modes."""
    runs = [(modes, [step for _, step in run]) for modes, run in groupby(steps, key=itemgetter(0))]

    def replay() -> None:
        default = torch.get_default_dtype()
        try:
            for (grad, inference, dtype), run in runs:
                if dtype is not torch.get_default_dtype():
                    torch.set_default_dtype(dtype)
                with inference_guard(inference), below_autograd():
                    grad_setter(grad)
                    _run(run)
        finally:
            if default is not torch.get_default_dtype():
                torch.set_default_dtype(default)

    return replay


def run_timed(steps: Iterable[tuple[Modes, ReplayStep]]) -> list[float]:
    """Run steps as :func:`program` does; the seconds of each."""
    seconds = list[float]()

    def timed(step: ReplayStep) -> None:
        began = perf_counter()
        _run([step])
        seconds.append(perf_counter() - began)

    program((modes, ReplayStep(timed, (step,), {})) for modes, step in steps)()
    return seconds


def _run(steps: list[ReplayStep]) -> None:
    for call, args, kwargs, stores in steps:
        result = call(*args, **kwargs)
        for path, target, span in stores:
            part = result
            for index in path:
                part = part[index]
            if span is not None:
                part = torch.as_strided(part, (span[0],), (1,), span[1])
            target.copy_(part)
