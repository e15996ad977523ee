"""Settings by which C makes numbers and texts: asked whenever something is made or written by them."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any

import numpy
import torch
import torch._tensor_str

from .kinds import TENSOR
from .trace import Trace


def of_decimals() -> tuple[Any, ...]:
    """By what decimal numbers are computed on this thread, and what happened so far."""
    now = decimal.getcontext()
    traps, flags = (tuple([kind.__name__ for kind, on in of.items() if on]) for of in (now.traps, now.flags))
    return now.prec, now.rounding, now.Emin, now.Emax, now.capitals, now.clamp, traps, flags


def of_arrays() -> tuple[Any, ...]:
    """What numpy does about errors, and how it writes arrays."""
    return repr(numpy.geterr()), repr(numpy.get_printoptions())


def of_tensors() -> tuple[Any, ...]:
    """How tensors are written."""
    return tuple([repr(pair) for pair in sorted(vars(torch._tensor_str.PRINT_OPTS).items())])


_ASKED: dict[type, tuple[Callable[[], Any], str]] = {
    decimal.Decimal: (of_decimals, "decimal.getcontext()"),
    numpy.ndarray: (of_arrays, "numpy.geterr(), numpy.get_printoptions()"),
    numpy.generic: (of_arrays, "numpy.geterr(), numpy.get_printoptions()"),
}
"""By the type of what is computed with."""


def settings(trace: Trace, value: Any) -> None:
    """Something is about to be computed or written by C: the settings of its type are read."""
    kind = type(value)
    if ("settings", kind) in trace.seen:
        return
    trace.seen.add(("settings", kind))
    for base, (function, name) in _ASKED.items():
        if issubclass(kind, base):
            trace.ask(function, (), name)


def written(trace: Trace, value: Any) -> None:
    """Something is about to be written as text."""
    if trace.kinds[type(value)] == TENSOR:
        trace.ask(of_tensors, (), "torch._tensor_str.PRINT_OPTS")
    else:
        settings(trace, value)
