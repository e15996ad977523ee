"""Python functions that are kernels of operators, and what they read that no guard looks at.

An operator is called by its name, so nothing that the callable reaches leads to the function behind it. It is
found when it runs, and what it reads from its globals and its closure is under guard. What it has besides its
operands is not found: an instance whose method it is, operands that ``functools.partial`` adds. An operator
with such a kernel is not captured: its Python code runs at every replay.
"""

from __future__ import annotations

from types import CodeType, FrameType
from typing import NamedTuple

from ...base import is_internal, is_own

RUNS = "seen"
"""Name of the function of ours that runs an operator whose kernel may be Python code."""


class Running(NamedTuple):
    """An operator that is being run.

    Attributes:
        name: With its overload.
        operands: How many its schema has.
    """

    name: str
    operands: int


def hiding(code: CodeType, frame: FrameType) -> str | None:
    """The operator whose kernel a function is, if that reads what no guard looks at; None for others."""
    running = _operator_of(frame)
    if running is None:
        return None
    given = code.co_argcount + code.co_kwonlyargcount
    return running.name if given > running.operands else None


def _operator_of(frame: FrameType) -> Running | None:
    """The operator that called a function, if nothing but PyTorch stands between both."""
    above = frame.f_back
    while above is not None and is_internal(above.f_code.co_filename):
        if above.f_code.co_name == RUNS and is_own(above.f_code.co_filename):
            return getattr(above.f_locals.get("self"), "running", None)
        above = above.f_back
    return None
