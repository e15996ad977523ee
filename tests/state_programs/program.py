"""What a state program is: one callable, and a piece of Python state that changes between its calls.

The programs run by the machinery of ``tests/footguns``: each builds a fresh world, graphs callables with
``wrap`` and yields all that its user sees. What it changes outside its own world it puts back.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from tests.footguns.case import Program, attempt, full

POINTS = MappingProxyType(
    {
        "reads": "what a call's Python takes from outside",
        "effects": "what a call leaves behind outside",
        "C": "state of C objects and of C callables",
        "classes": "a class of error of its own: backward, settings, operators, modules",
        "lifetimes": "what has to die",
        "limits": "limits that were documented",
        "replays": "what has to replay",
    }
)
"""The parts of the requirement that programs belong to."""

Change = Callable[[], object]


@dataclass(frozen=True)
class StateProgram:
    """One program.

    Attributes:
        program: Takes ``wrap`` and the device, yields what the user sees.
        point: One of :data:`POINTS`.
        replays: Whether the late calls have to be answered from a recording; None where both are right.
    """

    program: Program
    point: str
    replays: bool | None = None

    @property
    def name(self) -> str:
        """The function's name."""
        return self.program.__name__

    @property
    def group(self) -> str:
        """The module the program is in."""
        return self.program.__module__.rpartition(".")[2]

    @property
    def label(self) -> str:
        """The program's name in results."""
        return f"{self.group}/{self.name}"

    @property
    def title(self) -> str:
        """What changes, in one line."""
        return (inspect.getdoc(self.program) or "").partition("\n")[0]


def state(point: str, *, replays: bool | None = None) -> Callable[[Program], StateProgram]:
    """Make a function a :class:`StateProgram`."""
    if point not in POINTS:
        raise ValueError(f"{point!r} is none of {list(POINTS)}")
    return lambda program: StateProgram(program, point, replays)


def turns(
    g: Callable[..., Any],
    device: torch.device,
    *changes: Change,
    args: Callable[[torch.Tensor], tuple[Any, ...]] = lambda x: (x,),
    watch: Callable[[], Any] = lambda: None,
    before: int = 5,
    after: int = 3,
) -> Iterator[Any]:
    """Call a callable, and again after each change.

    Args:
        g: The callable under test.
        device: Where its argument is.
        *changes: What changes, one after the other.
        args: The arguments of a call, made from its tensor.
        watch: What the user looks at after each call, beside the result.
        before: Calls before the first change.
        after: Calls after each change.
    """
    number = 0
    for change in (None, *changes):
        if change is not None:
            change()
        for _ in range(after if change else before):
            number += 1
            out = attempt(g, *args(full(number, device)))
            yield out, watch()


def put(owner: object, **values: Any) -> Change:
    """A change that sets attributes."""

    def change() -> None:
        for name, value in values.items():
            setattr(owner, name, value)

    return change


def item(container: Any, key: Any, value: Any) -> Change:
    """A change that sets an item."""
    return lambda: container.__setitem__(key, value)
