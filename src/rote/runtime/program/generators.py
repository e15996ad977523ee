"""Random generators that a call hands to its operations.

A generator that lives outside is known by its identity, and replays draw from it. A generator that the call
makes (``torch.Generator().manual_seed(3)``) is another object in every call. It is known by its state at its
first draw, or at the first draw after it was seeded. For each such state the recording has a generator of its
own, which it sets to the state before it draws.

Which of the two a generator is shows when the call has ended: a generator that somebody else still holds
lives outside. References are counted, because not all versions of PyTorch can refer to generators weakly.

A generator that is an argument and may be another one in each call (:mod:`..arguments.opened`) is known by
its argument. The recording has a generator in its place. A replay gives it the state of the caller's before,
and gives the caller's its state afterwards. The call may seed such a generator before it draws from it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from ...base import Site
from ...hazards import rules
from ...hazards.rules import Reason, reason
from ..arguments import Call, address_of, is_default, is_default_at
from ..reads.trace import Setting
from .operations import Drawn
from .storages import StorageTable


class Reseed:
    """A step that sets a generator of the recording as the call set its own."""

    def __init__(self, generator: torch.Generator) -> None:
        self._generator, self._state = generator, generator.get_state()

    def replay(self) -> None:
        """Set it."""
        self._generator.set_state(self._state)


class Stands:
    """The generators of a recording that stand in for arguments of the recorded call."""

    def __init__(self, call: Call) -> None:
        given = call.generators()
        self.by_number = {n: torch.Generator(each.device) for n, each in given.items()}
        self.take(given.values())

    def take(self, given: Iterable[torch.Generator]) -> None:
        """Before a replay: take the states of the call's generators."""
        for stand, generator in zip(self.by_number.values(), given, strict=True):
            stand.set_state(generator.get_state())

    @property
    def several_on_devices(self) -> bool:
        """Whether two may share one state, as generators of a device can."""
        return sum(not is_of_host(each) for each in self.by_number.values()) > 1

    def give(self, given: Iterable[torch.Generator]) -> None:
        """After a replay: give the call's generators the states."""
        for stand, generator in zip(self.by_number.values(), given, strict=True):
            generator.set_state(stand.get_state())


def are_one(generators: Iterable[torch.Generator]) -> bool:
    """Whether two generators of a device share one state (``graphsafe_get_state``); PyTorch does not say."""
    known: dict[tuple[torch.device, bytes], list[torch.Generator]] = {}
    for each in generators:
        if not is_of_host(each):
            alike = known.setdefault((each.device, each.get_state().numpy().tobytes()), [])
            if any([_moves_with(each, other) for other in alike]):
                return True
            alike.append(each)
    return False


def _moves_with(one: torch.Generator, other: torch.Generator) -> bool:
    """Whether a generator moves when the other one is moved; the move is undone."""
    offset = one.get_offset()
    one.set_offset(offset + 4)
    try:
        return other.get_offset() != offset
    finally:
        one.set_offset(offset)


class _Owner:
    """A generator of Python's, and the only reference to it from here."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def references(self) -> int:
        """How many there are."""
        return sys.getrefcount(self.generator)


_SET_OUTSIDE = "the call sets the state of a generator that was made outside"

_ALONE = _Owner(torch.Generator()).references()
"""References to a generator that nobody else has."""


class _Met:
    """A generator of the call: its state at the last draw, and how it is an operand."""

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

    Below the dispatcher an operation gets another Python object over the same generator than the call has.
    So the call's object is noted above it.

    Args:
        known: Generators that lived outside at earlier calls.
        ran: The states after draws of the call, by the number of the draw; the call may begin again.
        given: Generators that are arguments and may be others in each call, by the argument.
        stands: The recording's in their places, if there is a recording.
        settings: Where the call has set a generator that was made outside, in order; it grows.

    Attributes:
        outside: Generators that live outside, by address; known when the call has ended.
    """

    def __init__(
        self,
        known: Iterable[torch.Generator],
        ran: dict[int, torch.Tensor],
        given: Mapping[int, torch.Generator],
        stands: Mapping[int, torch.Generator],
        settings: Sequence[Setting],
    ) -> None:
        self._ran = ran
        self._settings, self._looked = settings, len(settings)
        self._unread: dict[int, Site] = {}
        self._in_place = stands
        self._all: list[_Met] = []
        self._number = 0
        self._count = 0
        self._met: dict[int, _Met] = {}
        self._owners = {address_of(each): _Owner(each) for each in known}
        self._known = {address: _Met(owner, known=True) for address, owner in self._owners.items()}
        for number, each in given.items():
            owner = self._owners[address_of(each)] = _Owner(each)
            self._known[address_of(each)] = _Met(owner, known=True, number=number)
        self._shared = len(given) > 1 and are_one(given.values())
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
        """Describe a generator as an operand that is about to be drawn from."""
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
        """The draw has run: give the call's generator the state after it.

        The recording's generator has that state. A call that begins again has noted it at the draw.
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
        """Note that an operation has drawn from a generator."""
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
        """What a recording draws from instead of the call's generator, and what it does before."""
        was_set = drawn.state is not None
        if not is_of_host(generator):
            if drawn.number is None:
                return generator, None
            stand = self._met[address_of(generator)].ahead = self._in_place[drawn.number]
            return stand, None
        if drawn.identity is not None:
            return generator, Reseed(generator) if was_set else None
        if drawn.number is not None:
            stand = self._in_place[drawn.number]
        else:
            known = None if was_set else self._stands.get(drawn.order)
            stand = known if known is not None else torch.Generator(generator.device)
            stands[drawn.order] = self._stands[drawn.order] = stand
        stand.set_state(generator.get_state())  # the call may have set it
        return stand, Reseed(stand) if was_set else None

    def catch_up(self) -> None:
        """What is captured has run: arguments on a device get the states of their stand-ins."""
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
        unread = [site for address, site in self._unread.items() if not is_default_at(address)]
        for site in unread[: not found]:
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

    A state that no operation has met comes from a generator, and is allowed.
    """
    text = "the call sets the state of a generator to what a tensor holds"
    known = [each for each in settings if each.state is not None and storages.origin(each.state) is not None]
    return [reason(rules.RANDOM_STATE_SET, text, each.site) for each in known[:1]]


def _state_of(generator: torch.Generator) -> bytes | None:
    """The state of a generator of the host; one of a device does not tell while a segment is captured."""
    return generator.get_state().numpy().tobytes() if is_of_host(generator) else None


def is_of_host(generator: torch.Generator) -> bool:
    """Whether it draws on the host, where its state can be read and set during a capture."""
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
