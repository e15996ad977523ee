"""Random generators that a call hands to its operations.

One that lives outside is known by its identity: replays draw from it. One that the call makes itself
(``torch.Generator().manual_seed(3)``) is another object in every call; it is known by the state in which it
is drawn from first, or first after it was seeded. For each such state the recording has a generator of its
own, which it sets to that before it draws.

Which of both a generator is shows when the call has ended: one that somebody else still has then lives
outside. References are counted, because not all versions of PyTorch can refer to generators weakly.

One that is an argument and may be another one in each call (:mod:`..arguments.opened`) is known by which
argument it is. The recording has one in its place, which gets the state of the caller's before a replay, and
whose state the caller's gets after it. Such a one may be seeded by the call, too, before it is drawn from.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from ...base import Site
from ...hazards import rules
from ...hazards.rules import Reason, reason
from ..arguments import Call, address_of, is_default
from ..reads.trace import Setting
from .operations import Drawn
from .storages import StorageTable


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


class Stands:
    """The generators of a recording in the places of those that are arguments.

    Args:
        call: The call that is recorded.
    """

    def __init__(self, call: Call) -> None:
        given = call.generators()
        self.by_number = {n: torch.Generator(each.device) for n, each in given.items()}
        self.take(given.values())

    def take(self, given: Iterable[torch.Generator]) -> None:
        """Before a replay: they get the states of a call's generators."""
        for stand, generator in zip(self.by_number.values(), given, strict=True):
            stand.set_state(generator.get_state())

    @property
    def several_on_devices(self) -> bool:
        """Whether two may have one state, which those of a device can."""
        return sum(not is_of_host(each) for each in self.by_number.values()) > 1

    def give(self, given: Iterable[torch.Generator]) -> None:
        """After it: the call's get theirs."""
        for stand, generator in zip(self.by_number.values(), given, strict=True):
            generator.set_state(stand.get_state())


def are_one(generators: Iterable[torch.Generator]) -> bool:
    """Whether two generators of a device have one state (``graphsafe_get_state``), which nothing says."""
    known: dict[tuple[torch.device, bytes], list[torch.Generator]] = {}
    for each in generators:
        if not is_of_host(each):
            alike = known.setdefault((each.device, each.get_state().numpy().tobytes()), [])
            if any([_moves_with(each, other) for other in alike]):
                return True
            alike.append(each)
    return False


def _moves_with(one: torch.Generator, other: torch.Generator) -> bool:
    """Whether a generator moves where another one is moved, which is undone."""
    offset = one.get_offset()
    one.set_offset(offset + 4)
    try:
        return other.get_offset() != offset
    finally:
        one.set_offset(offset)


class _Owner:
    """A generator of Python's, and the only reference to it that the generators of a call have."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def references(self) -> int:
        """How many there are."""
        return sys.getrefcount(self.generator)


_SET_OUTSIDE = "the call sets the state of a generator that was made outside"

_ALONE = _Owner(torch.Generator()).references()
"""References to a generator that nobody else has."""


class _Met:
    """A generator of the call: what it was when it was drawn from last, and how operations have it."""

    def __init__(self, owner: _Owner | None, *, known: bool = False, number: int | None = None) -> None:
        self.owner, self.number = owner, number
        self.order, self.known = 0, known
        self.state = _state_of(owner.generator) if known and owner is not None else None
        self.begun = owner.generator.get_state() if self.state is not None and owner is not None else None
        self.drawn: list[Drawn] = []
        self.was_set: list[bool] = []
        self.device, self.of_host = "", True
        self.site: Site | None = None
        self.ahead: torch.Generator | None = None  # the recording's, which has drawn in its place


class Generators:
    """The generators of one call.

    Below the dispatcher an operation is given another Python object over the same generator than the call
    has. So what the call has is noted above it.

    Args:
        known: Those that lived outside at earlier calls.
        ran: The states that draws of the call have left, by their number; the call may begin again.
        given: Those that are arguments and may be others in each call, by which argument they are.
        stands: The recording's in their places, if there is a recording.
        settings: Where the call has set one that was made outside, in order; it grows.

    Attributes:
        outside: Those that live outside, by address; known when the call has ended.
    """

    def __init__(
        self,
        known: Iterable[torch.Generator] = (),
        ran: dict[int, torch.Tensor] | None = None,
        given: Mapping[int, torch.Generator] | None = None,
        stands: Mapping[int, torch.Generator] | None = None,
        settings: Sequence[Setting] = (),
    ) -> None:
        self._ran = {} if ran is None else ran
        self._settings, self._looked = settings, len(settings)
        self._unread: dict[int, Site] = {}
        self._in_place = stands or {}
        self._all: list[_Met] = []
        self._number = 0
        self._count = 0
        self._met: dict[int, _Met] = {}
        self._owners = {address_of(each): _Owner(each) for each in known}
        self._known = {address: _Met(owner, known=True) for address, owner in self._owners.items()}
        for number, each in (given or {}).items():
            owner = self._owners[address_of(each)] = _Owner(each)
            self._known[address_of(each)] = _Met(owner, known=True, number=number)
        self._shared = len(given or {}) > 1 and are_one((given or {}).values())
        self._stands: dict[int, torch.Generator] = {}
        self._reseeded: Reason | None = None
        self.outside: dict[int, torch.Generator] = {}

    def meet(self, generator: torch.Generator) -> None:
        """Python hands a generator to a function of PyTorch."""
        address = address_of(generator)
        owner = self._owners.get(address)
        if owner is None or (address not in self._known and owner.generator is not generator):
            self._owners[address] = _Owner(generator)

    def drawn(self, generator: torch.Generator, site: Site) -> Drawn:
        """How an operation has a generator that it is about to draw from."""
        address = address_of(generator)
        self._number += 1
        owner = self._owners.get(address)
        met = self._met.get(address)
        if met is None or met.owner is not owner:
            met = self._known.get(address)
            if met is None or met.owner is not owner:
                met = _Met(owner)
            self._met[address] = met
            self._all.append(met)
        state, was_set = _state_of(generator), self._was_set(address)
        if state == met.state and not was_set and (met.drawn or met.known):
            state = None
        elif not met.known:
            met.order, self._count = self._count, self._count + 1
        elif (state is None or not was_set or is_default(generator)) and self._reseeded is None:
            self._reseeded = reason(rules.RANDOM_STATE_SET, _SET_OUTSIDE, site)
        met.was_set.append(was_set)
        met.device, met.site, met.of_host = str(generator.device), site, is_of_host(generator)
        identity = address if met.known and met.number is None else None
        drawn = Drawn(met.order, generator.initial_seed(), state, identity, met.number)
        met.drawn.append(drawn)
        return drawn

    def _was_set(self, address: int) -> bool:
        """Whether the call has set a generator that was made outside since it was drawn from last."""
        for setting in self._settings[self._looked :]:
            if setting.outside:
                self._unread[setting.address] = setting.site
        self._looked = len(self._settings)
        return self._unread.pop(address, None) is not None

    def follow(self, generator: torch.Generator, stands: dict[int, torch.Generator]) -> None:
        """The draw has run: give the call's generator the state that it left.

        That is the one of the recording's generator. A call that begins again has noted it at the draw.

        Args:
            generator: The call's.
            stands: The recording's where the call is, by the number of the state.
        """
        self._stands.update(stands)
        met = self._met[address_of(generator)]
        stand, left = self._stands.get(met.order), self._ran.get(self._number)
        if met.number is not None:
            stand = self._in_place.get(met.number)
            met.ahead = None
        if left is not None:
            generator.set_state(left)
        elif (not met.known or met.number is not None) and stand is not None:
            generator.set_state(stand.get_state())
        elif met.begun is not None:  # the call may have set it anew, as the replay before had done
            generator.set_state(met.begun)
        met.state = _state_of(generator)

    def note(self, generator: torch.Generator) -> None:
        """An operation has drawn from a generator."""
        met = self._met[address_of(generator)]
        met.state = _state_of(generator)
        stand = self._in_place.get(met.number) if met.number is not None else None
        if stand is not None and met.ahead is None:
            stand.set_state(generator.get_state())
        if is_of_host(generator):
            self._ran[self._number] = generator.get_state()

    def stand_in(
        self, generator: torch.Generator, drawn: Drawn, stands: dict[int, torch.Generator]
    ) -> tuple[torch.Generator, Reseed | None]:
        """What a recording draws from instead of the call's generator, and what it has to do before.

        Args:
            generator: The call's.
            drawn: How the operation has it.
            stands: The recording's where the call is, to which the generator is added.
        """
        if drawn.number is not None:
            return self._stand_in_place(generator, drawn)
        if not is_of_host(generator):
            return generator, None
        if drawn.identity is not None:
            return generator, Reseed(generator) if drawn.state is not None else None
        stand = self._stands.get(drawn.order) if drawn.state is None else None
        if stand is None:
            stand = self._stands[drawn.order] = torch.Generator(generator.device)
        stands[drawn.order] = stand
        stand.set_state(generator.get_state())
        return stand, Reseed(stand) if drawn.state is not None else None

    def _stand_in_place(
        self, generator: torch.Generator, drawn: Drawn
    ) -> tuple[torch.Generator, Reseed | None]:
        """What stands for an argument; it has had its state since it was drawn from last."""
        assert drawn.number is not None
        stand = self._in_place[drawn.number]
        if not is_of_host(generator):
            self._met[address_of(generator)].ahead = stand
            return stand, None
        stand.set_state(generator.get_state())  # the call may have set it
        return stand, Reseed(stand) if drawn.state is not None else None

    def catch_up(self) -> None:
        """What is captured has run: arguments on a device get the states of what stood for them."""
        for met in self._all:
            if met.ahead is not None and met.owner is not None:
                met.owner.generator.set_state(met.ahead.get_state())
            met.ahead = None

    def settle(self) -> list[Reason]:
        """The call has ended: note which generators live outside.

        Returns:
            Why the call cannot be recorded.
        """
        self.catch_up()
        self._was_set(0)
        found = [self._reseeded] if self._reseeded is not None else []
        if self._shared:
            text = "two generators among the arguments, or outside, have one state"
            found.append(reason(rules.RANDOM_STATE_SET, text, self._all[0].site if self._all else None))
        for site in list(self._unread.values())[: not found]:
            found.append(reason(rules.RANDOM_STATE_SET, _SET_OUTSIDE, site))
        for met in self._all:
            if met.number is not None:
                continue
            if met.owner is not None and met.owner.references() > _ALONE:
                address = address_of(met.owner.generator)
                self.outside[address] = met.owner.generator
                for each, was_set in zip(met.drawn, met.was_set, strict=True):
                    each.identity, each.state = address, each.state if was_set else None
                if any(met.was_set) and not met.of_host and not found:
                    found.append(reason(rules.RANDOM_STATE_SET, _SET_OUTSIDE, met.site))
            elif met.owner is None or not met.of_host:
                text = f"the call draws from a generator on {met.device} that it makes itself"
                found.append(reason(rules.GENERATOR_INSIDE, text, met.site))
        return found


def unknown_states(settings: Iterable[Setting], storages: StorageTable) -> list[Reason]:
    """Why a call cannot be recorded that sets generators to states which it computes, or is given.

    What it does not meet in an operation it has from a generator.
    """
    text = "the call sets the state of a generator to what a tensor holds"
    known = [each for each in settings if each.state is not None and storages.origin(each.state) is not None]
    return [reason(rules.RANDOM_STATE_SET, text, each.site) for each in known[:1]]


def _state_of(generator: torch.Generator) -> bytes | None:
    """The state of a generator of the host; one of a device does not tell while a segment is captured."""
    return generator.get_state().numpy().tobytes() if is_of_host(generator) else None


def is_of_host(generator: torch.Generator) -> bool:
    """Whether it draws on the host, where no capture keeps its state from being read and set."""
    return generator.device.type == "cpu"


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
