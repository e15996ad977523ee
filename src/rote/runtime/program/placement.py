"""Where the arguments of a recording lie: copied to memory of its own, or used in place.

A tensor argument belongs to one of three classes. A tensor that is *not mutated* is copied at each call:
that is cheap, and right wherever the caller's tensor lies. A *parameter or buffer* stays where it is, so it
is used in place. *Another* tensor that is mutated is used in place if it is persistent (the observed call and
the recorded one had the same storage: a KV cache); otherwise its new values are copied back.

A recording that uses an argument in place holds the address. It fits a call only if a live tensor with the
same metadata, which is in the key, lies at the same address of a storage with the same extent: a comparison
of three numbers. Whose tensor it is makes no difference, since the recording reads and writes what the plain
operations would. If a call's argument lies elsewhere, the guess was wrong. The call gets a recording that
copies, and nothing more is guessed at this position, except for :data:`PLACES` more recordings for mutated
tensors that keep coming back (two caches in turn).

One placement is no guess. If an argument shares memory with state that the callable can reach, both must be
one memory wherever something is written, and the observed call depends on that. The recording is then *bound*
to the address from its first observation on. Where nothing is written and the argument lies elsewhere at the
next call, the two are told apart (:mod:`.other_names`), and the argument is copied.
"""

from __future__ import annotations

import weakref
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from ...base import Site
from ...hazards import rules
from ...hazards.rules import Reason, reason
from ..arguments import PARAMETER, TENSOR, Call

UNMUTATED, BUFFER, OTHER = "not mutated", "parameter or buffer", "another tensor"

PLACES = 4
"""Recordings in place that a key gets for mutated tensors which come back after a wrong guess."""

REGULAR = 2
"""Earlier calls at which an argument must have lain there before it gets a recording of its own."""


class SeenArgument(NamedTuple):
    """Where an argument lay at an earlier call, without keeping it alive."""

    storage: weakref.ref[torch.UntypedStorage]
    address: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> SeenArgument:
        """Where a tensor lies."""
        return cls(weakref.ref(tensor.untyped_storage()), tensor.data_ptr())

    def again(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies there, in the same storage."""
        return tensor.data_ptr() == self.address and self.storage() is tensor.untyped_storage()


@dataclass(frozen=True)
class Spot:
    """Arguments over common memory that a recording uses in place.

    Attributes:
        members: Indices of the leaves; the first one names the group.
        kind: BUFFER or OTHER.
        seen: Where the first member lies.
        base: Address of the storage.
    """

    members: tuple[int, ...]
    kind: str
    seen: SeenArgument
    base: int
    nbytes: int

    @classmethod
    def of(cls, members: list[int], leaves: tuple[Any, ...], kind: str) -> Spot:
        """Where a call's arguments lie."""
        first: torch.Tensor = leaves[members[0]]
        storage = first.untyped_storage()
        return cls(tuple(members), kind, SeenArgument.of(first), storage.data_ptr(), storage.nbytes())

    def holds(self, leaves: tuple[Any, ...]) -> bool:
        """Whether a call's arguments lie there. The key has said that their metadata and sharing agree."""
        first: torch.Tensor = leaves[self.members[0]]
        if first.data_ptr() != self.seen.address:
            return False
        storage = first.untyped_storage()
        return storage.data_ptr() == self.base and storage.nbytes() == self.nbytes


class InputFacts(NamedTuple):
    """What a recording does with one tensor argument, and the line that first wrote it, if any did."""

    name: str
    kind: str
    in_place: bool
    mutated: Site | None


@dataclass
class Guesses:
    """What a key knows about the places of its arguments.

    Attributes:
        enabled: Something may be guessed at all (not in strict mode, where a wrong guess would raise).
        staying: Arguments that are buffers, as the compiler of the callable says.
        missed: Groups, by first member, whose place was guessed wrongly.
        apart: Arguments that share memory with state in calls that write neither, and are copied.
        misses: Calls that lay elsewhere.
        extra: Recordings in place made after that.
    """

    enabled: bool = True
    staying: frozenset[int] = frozenset()
    missed: set[int] = field(default_factory=set[int])
    apart: set[int] = field(default_factory=set[int])
    _together: set[int] = field(default_factory=set[int])  # a call has written what is shared
    misses: int = 0
    extra: int = 0

    def miss(self, call: Call, spots: Iterable[Spot]) -> None:
        """Arguments lay elsewhere: copy them from now on, and after a second time all others, too."""
        self.misses += 1
        self.missed |= {spot.members[0] for spot in spots}
        if self.misses > 1:
            self.missed |= {members[0] for members in group_members(call)}

    def are_together(self, firsts: Iterable[int]) -> bool:
        """Whether a call has written what one of these arguments and state share."""
        return not self._together.isdisjoint(firsts)

    def tell_apart(self, firsts: Iterable[int]) -> None:
        """No call writes these arguments, or state that shares their memory, as far as is known."""
        self.apart.update(set(firsts) - self._together)

    def keep_together(self, firsts: Iterable[int]) -> None:
        """A call writes what these arguments and state share."""
        self._together |= set(firsts)
        self.apart -= self._together

    def trust(self, firsts: Iterable[int]) -> None:
        """These arguments have come back often enough."""
        self.extra += 1
        self.missed -= set(firsts)

    def spots(
        self, call: Call, bound: tuple[Spot, ...], written: set[int], persistent: dict[int, SeenArgument]
    ) -> tuple[Spot, ...]:
        """Choose what a recording that is about to be made uses in place.

        Args:
            written: First members of the groups that the callable was seen to write.
            persistent: Where an earlier call's arguments lay, by first member.
        """
        found = list(bound)
        taken = {spot.members[0] for spot in bound}
        for members in group_members(call) if self.enabled else ():
            first = members[0]
            if first in taken or first in self.missed:
                continue
            if not placeable([call.leaves[member] for member in members]):
                continue
            seen = persistent.get(first) if first in written else None
            if first in self.staying or isinstance(call.leaves[first], torch.nn.Buffer):
                found.append(Spot.of(members, call.leaves, BUFFER))
            elif seen is not None and seen.again(call.leaves[first]):
                found.append(Spot.of(members, call.leaves, OTHER))
        return tuple(found)


class Regulars:
    """Counts how often mutated arguments come back to a recording that copies them."""

    def __init__(self) -> None:
        self._seen: dict[int, list[tuple[SeenArgument, int]]] = {}

    def note(self, call: Call, firsts: list[int]) -> dict[int, SeenArgument]:
        """Count a call; returns those that are regulars by now, by first member."""
        found: dict[int, SeenArgument] = {}
        for first in firsts:
            known = self._seen.setdefault(first, [])
            for position, (seen, count) in enumerate(known):
                if seen.again(call.leaves[first]):
                    known[position] = (seen, count + 1)
                    if count >= REGULAR:
                        found[first] = seen
                    break
            else:
                known.insert(0, (SeenArgument.of(call.leaves[first]), 1))
                del known[PLACES:]
        return found


def group_members(call: Call) -> list[list[int]]:
    """Indices of the tensor leaves (no parameters), those that overlap together."""
    return call.groups()


def named_inputs(call: Call, leaves: tuple[Any, ...]) -> list[tuple[int, int]]:
    """The arguments that name the memory of inputs, each with the element from which offsets count."""
    found: list[tuple[int, int]] = []
    for members in group_members(call):
        handles = {leaves[member].untyped_storage()._cdata for member in members}
        apart = len(handles) > 1  # static inputs of one group whose types differ share no memory
        for group in [[member] for member in members] if apart else [members]:
            found.append((group[0], base_offset(leaves, group)))
    return found


def base_offset(leaves: tuple[Any, ...], members: list[int]) -> int:
    """First element that any member of a group covers."""
    return min(leaves[member].storage_offset() for member in members)


def span_of(tensor: torch.Tensor) -> int:
    """How many elements there are from the first one of a tensor to its last one."""
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum([(size - 1) * stride for size, stride in sizes])


def placeable(tensors: list[torch.Tensor]) -> bool:
    """Whether arguments over common memory can be used in place.

    Not with several dtypes (refused as a whole), nor without memory; nor where autograd looks at the
    argument, since the recorded graph would then be the caller's tensor's.
    """
    first = tensors[0]
    return (
        len({tensor.dtype for tensor in tensors}) == 1
        and first.numel() > 0
        and not first.is_meta
        and not any(tensor.is_conj() or tensor.is_neg() for tensor in tensors)
        and not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors))
    )


def shared_groups(call: Call, handles: Container[int]) -> list[list[int]]:
    """Groups of arguments that share memory with tensors on the given storages."""
    return [
        members
        for members in group_members(call)
        if call.leaves[members[0]].numel() and call.leaves[members[0]].untyped_storage()._cdata in handles
    ]


def moved_reasons(call: Call, lost: list[Spot], site: Site | None) -> list[Reason]:
    """Arguments that do not lie where a recording uses them."""
    names = call.names()
    found: list[Reason] = []
    for spot in lost[:3]:
        first = spot.members[0]
        now = call.leaves[first].data_ptr()
        text = f"{names[first]} was at {spot.seen.address:#x} and is at {now:#x}"
        found.append(reason(rules.INPUT_MOVED, text, call.line_of(first) or site))
    return found


def sharing_reasons(call: Call, indices: list[int], site: Site | None) -> list[Reason]:
    """Arguments that share memory with state: such a call is observed anew, or runs as it is."""
    names = call.names()
    found: list[Reason] = []
    for index in indices[:3]:
        usable = placeable([call.leaves[index]])
        text = f"{names[index]} shares memory with a tensor made outside the call"
        found.append(reason(rules.INPUT_IS_STATE if usable else rules.ALIASED_MUTATION, text, site))
    return found


def describe_inputs(
    call: Call, spots: tuple[Spot, ...], written: set[int], sites: dict[tuple[str, int], Site]
) -> tuple[InputFacts, ...]:
    """Class and placement of every tensor argument of a recording.

    Args:
        spots: What it uses in place.
        written: First members of the groups that it writes.
        sites: Where arguments (``("input", first member)``) and tensors made outside
            (``("external", storage handle)``) were written first.
    """
    groups = {member: members[0] for members in group_members(call) for member in members}
    kinds = {member: spot.kind for spot in spots for member in spot.members}
    found: list[InputFacts] = []
    for index, (name, leaf, kind) in enumerate(zip(call.names(), call.leaves, call.kinds, strict=True)):
        if kind == PARAMETER:
            site = sites.get(("external", leaf.untyped_storage()._cdata))
            found.append(InputFacts(name, BUFFER, True, site))
        elif kind == TENSOR:
            first = groups.get(index, index)
            plain = OTHER if first in written else UNMUTATED
            found.append(
                InputFacts(name, kinds.get(index, plain), index in kinds, sites.get(("input", first)))
            )
    return tuple(found)
