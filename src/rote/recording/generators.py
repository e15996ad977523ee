"""Random generators that a call hands to its operations.

One that lives outside is known by its identity: replays draw from it. One that the call makes itself
(``torch.Generator().manual_seed(3)``) is another object in every call; it is known by the state in which it
is drawn from first, or first after it was seeded. For each such state the recording has a generator of its
own, which it sets to that before it draws.

Which of both a generator is shows when the call has ended: one that somebody else still has then lives
outside. References are counted, because generators can be referred to weakly in some versions of PyTorch only.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ..backends.base import CopyingSegment
from ..base.location import Site
from ..hazards import rules
from ..hazards.rules import Reason, reason


class Drawn:
    """A generator as an operand.

    Args:
        order: The number of the state, among those in which the call has set a generator.
        seed: What it was seeded with last.
        state: That state, where it is drawn from first.
        identity: Of the object, if it is known to live outside.
    """

    def __init__(self, order: int, seed: int, state: bytes | None, identity: int | None) -> None:
        self.order, self.state, self.identity = order, state, identity
        self._seed = seed

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Drawn) or self.identity != other.identity:
            return False
        return self.identity is not None or (self.order, self.state) == (other.order, other.state)

    def __hash__(self) -> int:
        return hash(self.identity or self.order)

    def __repr__(self) -> str:
        return f"a generator seeded with {self._seed}"


class Reseed:
    """A step that sets a generator of the recording as the call set its own.

    Args:
        generator: The generator.
    """

    def __init__(self, generator: torch.Generator) -> None:
        self._generator, self._state = generator, generator.get_state()

    def replay(self) -> None:
        """Set it."""
        self._generator.set_state(self._state)

    def with_copies(
        self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
    ) -> CopyingSegment | None:
        """None: it copies nothing."""
        del inputs, outputs


class _Owner:
    """A generator of Python's, and the only reference to it that the generators of a call have."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def references(self) -> int:
        """How many there are."""
        return sys.getrefcount(self.generator)


_ALONE = _Owner(torch.Generator()).references()
"""References to a generator that nobody else has."""


class _Met:
    """A generator of the call: what it was when it was drawn from last, and how operations have it."""

    def __init__(self, owner: _Owner | None, *, known: bool = False) -> None:
        self.owner = owner
        self.order, self.known = 0, known
        self.state = _state_of(owner.generator) if known and owner is not None else None
        self.drawn: list[Drawn] = []
        self.device = ""
        self.site: Site | None = None


class Generators:
    """The generators of one call.

    Below the dispatcher an operation is given another Python object over the same generator than the call
    has. So what the call has is noted above it.

    Args:
        known: Those that lived outside at earlier calls.

    Attributes:
        outside: Those that live outside, by address; known when the call has ended.
    """

    def __init__(self, known: Iterable[torch.Generator]) -> None:
        self._all: list[_Met] = []
        self._count = 0
        self._met: dict[int, _Met] = {}
        self._owners = {_address(each): _Owner(each) for each in known}
        self._known = {address: _Met(owner, known=True) for address, owner in self._owners.items()}
        self._stands: dict[int, torch.Generator] = {}
        self._reseeded: Reason | None = None
        self.outside: dict[int, torch.Generator] = {}

    def meet(self, generator: torch.Generator) -> None:
        """Python hands a generator to a function of PyTorch."""
        address = _address(generator)
        owner = self._owners.get(address)
        if owner is None or (address not in self._known and owner.generator is not generator):
            self._owners[address] = _Owner(generator)

    def drawn(self, generator: torch.Generator, site: Site) -> Drawn:
        """How an operation has a generator that it is about to draw from."""
        address = _address(generator)
        owner = self._owners.get(address)
        met = self._met.get(address)
        if met is None or met.owner is not owner:
            met = self._known.get(address)
            if met is None or met.owner is not owner:
                met = _Met(owner)
            self._met[address] = met
            self._all.append(met)
        state = _state_of(generator)
        if state == met.state and met.drawn:
            state = None
        elif not met.known:
            met.order, self._count = self._count, self._count + 1
        elif state != met.state and self._reseeded is None:
            text = "the call sets the state of a generator that was made outside"
            self._reseeded = reason(rules.RANDOM_STATE_SET, text, site)
        met.device, met.site = str(generator.device), site
        met.drawn.append(Drawn(met.order, generator.initial_seed(), state, address if met.known else None))
        return met.drawn[-1]

    def follow(self, generator: torch.Generator, stands: dict[int, torch.Generator]) -> None:
        """A replay has drawn: give the call's generator the state of the recording's.

        Args:
            generator: The call's.
            stands: The recording's where the call is, by the number of the state.
        """
        self._stands.update(stands)
        met = self._met[_address(generator)]
        stand = self._stands.get(met.order)
        if not met.known and stand is not None:
            generator.set_state(stand.get_state())
        self.note(generator)

    def note(self, generator: torch.Generator) -> None:
        """An operation has drawn from a generator."""
        self._met[_address(generator)].state = _state_of(generator)

    def stand_in(
        self, generator: torch.Generator, drawn: Drawn, stands: dict[int, torch.Generator]
    ) -> tuple[torch.Generator, Reseed | None]:
        """What a recording draws from instead of the call's generator, and what it has to do before.

        Args:
            generator: The call's.
            drawn: How the operation has it.
            stands: The recording's where the call is, to which the generator is added.
        """
        if drawn.identity is not None or generator.device.type != "cpu":
            return generator, None
        stand = self._stands.get(drawn.order) if drawn.state is None else None
        if stand is None:
            stand = self._stands[drawn.order] = torch.Generator(generator.device)
        stands[drawn.order] = stand
        stand.set_state(generator.get_state())
        return stand, Reseed(stand) if drawn.state is not None else None

    def settle(self) -> list[Reason]:
        """The call has ended: note which generators live outside.

        Returns:
            Why the call cannot be recorded.
        """
        found = [self._reseeded] if self._reseeded is not None else []
        for met in self._all:
            if met.owner is not None and met.owner.references() > _ALONE:
                address = _address(met.owner.generator)
                self.outside[address] = met.owner.generator
                for each in met.drawn:
                    each.identity = address
            elif met.owner is None or met.device != "cpu":
                text = f"the call draws from a generator on {met.device} that it makes itself"
                found.append(reason(rules.GENERATOR_INSIDE, text, met.site))
        return found


def _address(generator: Any) -> int:
    """Where a generator lies, whichever Python object is asked."""
    return generator._cdata


def _state_of(generator: torch.Generator) -> bytes | None:
    """The state of a generator of the host; one of a device does not tell while a segment is captured."""
    return generator.get_state().numpy().tobytes() if generator.device.type == "cpu" else None


def generator_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Generator | None:
    """The generator among the operands of an operation."""
    found = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Generator)]
    return found[0] if found else None


def exchanged(
    args: tuple[Any, ...], kwargs: dict[str, Any], generator: torch.Generator, other: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Operands with something else in place of their generator."""
    kept = tuple([other if value is generator else value for value in args])
    return kept, {name: other if value is generator else value for name, value in kwargs.items()}
