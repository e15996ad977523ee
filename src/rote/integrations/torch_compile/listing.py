"""The compiled graphs that are alive, with their reports."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from ...api import CompiledFrom, Graphed, SizesOf
from ...runtime.arguments import CompiledInput
from .inputs import of_numbers
from .torch_private import boxed
from .wishes import Wishes


class Listing:
    """What graphs compiled code, and knows it as long as it is alive."""

    def __init__(self) -> None:
        self._alive = weakref.WeakSet[Graphed]()

    def _graph(
        self,
        function: Callable[..., Any],
        name: str,
        wishes: Wishes,
        inputs: tuple[CompiledInput, ...] = (),
        sizes_of: SizesOf = of_numbers,
    ) -> Graphed:
        """Graph compiled code.

        Args:
            inputs: What its arguments are in the program; empty where that is not known.
            sizes_of: The sizes of a call that ``capture_sizes`` speaks of.
        """
        function.__qualname__ = name
        source = CompiledFrom(wishes.kernels, inputs, wishes.max_parameter_sets)
        graphed = Graphed(
            function, wishes.recording, compiled=source, sizes_of=sizes_of, keeps_all=wishes.kept_out
        )
        self._alive.add(graphed)
        return graphed

    def graphed(self) -> list[Graphed]:
        """The compiled graphs that are alive, each with ``report()``, ``explain()`` and ``reset()``."""
        return sorted(self._alive, key=lambda each: each.__qualname__)

    def explain(self) -> str:
        """The reports of all compiled graphs that are alive, as text."""
        return "\n".join(each.explain() for each in self.graphed())

    def reset(self) -> None:
        """Free everything that was recorded."""
        for each in self.graphed():
            each.reset()


def of_list(graphed: Graphed) -> Callable[[list[Any]], Any]:
    """What calls graphed code with a list of inputs, and empties it, as compiled code does."""

    def call(inputs: list[Any]) -> Any:
        given = tuple(inputs)
        inputs.clear()  # what is needed no more is freed while the code runs
        return graphed(*given)

    return boxed(call)
