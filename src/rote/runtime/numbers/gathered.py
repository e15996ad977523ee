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
        texts: That is made of texts.
        caller: Identity of the frame that takes it.
        generator: It, as long as it lives.
    """

    function: str
    caller: int
    generator: weakref.ref[GeneratorType[Any, Any, Any]]
    texts: bool
    values: list[Any] = field(default_factory=list[Any])

    def is_of(self, frame: FrameType | None) -> bool:
        """Whether a frame is that of the generator."""
        generator = self.generator()
        return generator is not None and frame is not None and generator.gi_frame is frame


class Gathered:
    """The generators that are taken, the innermost last, and the frames that get what an object writes."""

    def __init__(self) -> None:
        self._taken: list[Gathering] = []
        self._written: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._taken or self._written)

    def begin(
        self,
        function: str,
        caller: FrameType,
        generator: GeneratorType[Any, Any, Any],
        first: tuple[Any, ...] = (),
        *,
        texts: bool = False,
    ) -> None:
        """A frame takes what a generator gives; ``first`` comes before that."""
        self._taken.append(Gathering(function, identity(caller), weakref.ref(generator), texts, [*first]))

    def write(self, caller: FrameType) -> None:
        """A frame has an object write itself as text, and gets the very text."""
        self._written.add(identity(caller))

    def is_written(self, caller: FrameType | None) -> bool:
        """Whether what a method of that name returns is handed on to a frame."""
        return identity(caller) in self._written

    def taking(self, source: FrameType | None) -> Gathering | None:
        """Where what a generator gives goes; None if that is not known."""
        return next((each for each in self._taken if each.is_of(source)), None)

    def end(self, caller: FrameType | None) -> list[Gathering]:
        """A frame does something else: what it has taken, if anything, and then what was meanwhile."""
        self._written.discard(identity(caller))
        places = [place for place, each in enumerate(self._taken) if each.caller == identity(caller)]
        found = self._taken[places[-1] :] if places else []
        del self._taken[len(self._taken) - len(found) :]
        return found

    def leave(self, gathering: Gathering) -> None:
        """The generator gives something else than numbers, or texts."""
        self._taken = [each for each in self._taken if each is not gathering]

    def clear(self) -> list[Any]:
        """Nothing is taken any more; returns the numbers of which nothing was computed."""
        left = [value for each in self._taken for value in each.values]
        self._taken.clear()
        self._written.clear()
        return left
