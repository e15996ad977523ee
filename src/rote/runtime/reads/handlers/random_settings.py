"""Settings by which C makes numbers and texts: asked whenever something is made or written by them."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any

import numpy
import torch
import torch._tensor_str

from ..trace import TENSOR, Trace

_numpy: Any = getattr(numpy, "_core", None)
_errors: Callable[[], Any] = getattr(getattr(_numpy, "umath", None), "_get_extobj_dict", numpy.geterr)
_texts: Callable[[], Any] = getattr(
    getattr(getattr(_numpy, "printoptions", None), "format_options", None), "get", numpy.get_printoptions
)
"""What the public functions take their answers from, and copy twice; seen in numpy 2.4 and 2.5."""


def of_decimals() -> str:
    """The decimal context of this thread, with its flags."""
    return repr(decimal.getcontext())


def of_numpy() -> tuple[Any, ...]:
    """What numpy does about errors, the size of its buffers, and how it writes arrays.

    numpy's Python code reads them, and it is not followed where C calls it.
    """
    return (*_errors().values(), *_texts().values())


def of_tensors() -> tuple[Any, ...]:
    """How tensors are written."""
    return tuple([repr(pair) for pair in sorted(vars(torch._tensor_str.PRINT_OPTS).items())])


_DECIMALS = (of_decimals, "decimal.getcontext()")
_NUMPYS = (of_numpy, "numpy.geterr(), numpy.get_printoptions()")
_OF_TYPES: dict[type, tuple[Callable[[], Any], str]] = {
    decimal.Decimal: _DECIMALS,
    numpy.ndarray: _NUMPYS,
    numpy.generic: _NUMPYS,
}
"""By the type of what is computed with."""
_OF_LIBRARIES = {"decimal": _DECIMALS, "_decimal": _DECIMALS, "numpy": _NUMPYS}
"""By the library that computes."""


def computes(trace: Trace, name: str) -> None:
    """A function of C is about to be called: the settings of its library are read."""
    library = name.partition(".")[0]
    if library in _OF_LIBRARIES and ("settings", library) not in trace.seen:
        trace.seen.add(("settings", library))
        trace.outside.ask(_OF_LIBRARIES[library][0], (), _OF_LIBRARIES[library][1])


def settings(trace: Trace, value: Any) -> None:
    """C is about to compute with something: the settings of its type are read."""
    kind = type(value)
    if kind is numpy.ndarray:
        trace.outside.stray(value)
    if ("settings", kind) in trace.seen:
        return
    trace.seen.add(("settings", kind))
    for base, (function, name) in _OF_TYPES.items():
        if issubclass(kind, base):
            trace.outside.ask(function, (), name)


def written(trace: Trace, value: Any) -> None:
    """Something is about to be written as text."""
    if trace.kinds[type(value)] == TENSOR:
        trace.outside.ask(of_tensors, (), "torch._tensor_str.PRINT_OPTS")
    else:
        settings(trace, value)
