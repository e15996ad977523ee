"""What a generator gives to who takes it at once: a loop, or a function like ``sum`` that takes all of it.

Nobody else sees that. So the numbers are not looked at one by one: a function computes with all of them, or
hands them on as they are. Nothing here keeps a generator or a frame alive, nor what their variables hold.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from types import FrameType, GeneratorType
from typing import Any

from ...base import identity


@dataclass(frozen=True)
class Gathering:
    """What one generator gives.

    Attributes:
        function: What is computed of all that it gives; empty if that is handed on.
        caller: Identity of the frame that takes it.
        generator: It, as long as it lives.
    """

    function: str
    caller: int
    generator: weakref.ref[GeneratorType[Any, Any, Any]]
    values: list[Any] = field(default_factory=list[Any])

    def is_of(self, frame: FrameType | None) -> bool:
        """Whether a frame is that of the generator."""
        generator = self.generator()
        return generator is not None and frame is not None and generator.gi_frame is frame


class Gathered:
    """The generators that are taken; the innermost is the last."""

    def __init__(self) -> None:
        self._taken: list[Gathering] = []

    def __bool__(self) -> bool:
        return bool(self._taken)

    def begin(self, function: str, caller: FrameType, generator: GeneratorType[Any, Any, Any]) -> None:
        """A frame takes what a generator gives."""
        self._taken.append(Gathering(function, identity(caller), weakref.ref(generator)))

    def taking(self, source: FrameType | None) -> Gathering | None:
        """Where what a generator gives goes; None if that is not known."""
        return next((each for each in self._taken if each.is_of(source)), None)

    def end(self, caller: FrameType | None) -> list[Gathering]:
        """A frame does something else: what it has taken, if anything, and then what was meanwhile."""
        places = [place for place, each in enumerate(self._taken) if each.caller == identity(caller)]
        found = self._taken[places[-1] :] if places else []
        del self._taken[len(self._taken) - len(found) :]
        return found

    def leave(self, gathering: Gathering) -> None:
        """The generator gives something else than numbers."""
        self._taken = [each for each in self._taken if each is not gathering]

    def clear(self) -> list[Any]:
        """Nothing is taken any more; returns the numbers of which nothing was computed."""
        left = [value for each in self._taken for value in each.values]
        self._taken.clear()
        return left
