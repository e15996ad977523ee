"""Python functions that are kernels of operators, and what they read that no guard looks at.

An operator is called by its name, so nothing that the callable reaches leads to the function behind it. The
function is found when it runs, and its globals and closure are under guard. What it has besides its operands
is not found: the instance of a method, or operands that ``functools.partial`` adds. An operator with such a
kernel is not captured: its Python code runs at every replay.
"""

from __future__ import annotations

from types import CodeType, FrameType
from typing import NamedTuple

from ...base import calls_kernels, is_own

RUNS = "seen"
"""Name of rote's function that runs an operator whose kernel may be Python code."""


class Running(NamedTuple):
    """An operator that is running: its name with the overload, and how many operands its schema has."""

    name: str
    operands: int


def hiding(code: CodeType, frame: FrameType) -> str | None:
    """The operator whose kernel a function is, if it reads what no guard looks at; None for others."""
    running = _operator_of(frame)
    given = code.co_argcount + code.co_kwonlyargcount
    return running.name if running is not None and given > running.operands else None


def _operator_of(frame: FrameType) -> Running | None:
    """The operator that called a function, if only PyTorch's code lies between the two."""
    above = frame.f_back
    while above is not None and calls_kernels(above.f_code.co_filename):
        if above.f_code.co_name == RUNS and is_own(above.f_code.co_filename):
            return getattr(above.f_locals.get("self"), "running", None)
        above = above.f_back
    return None
