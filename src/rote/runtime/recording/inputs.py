"""Static inputs: memory of fixed address into which each call's tensor arguments are placed.

Arguments that share memory go on sharing it: they are placed as one span. Parameters among the arguments are
read where they lie (they are part of the key), and so are arguments that the recording uses in place
(:mod:`..program.placement`). Inputs that the callable writes are copied back to the caller afterwards;
autograd is told of writes to those in place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.autograd.graph import increment_version

from ..arguments import Call
from ..backends.protocol import Aliases
from ..memory import Holding
from ..program import (
    COUNTS_ALL,
    OTHER,
    Counted,
    Spot,
    Stands,
    base_offset,
    copy_all,
    copy_attributes,
    group_members,
    placeable,
    span_of,
    versions_kept,
)
from ..pytorch import negative_view


@dataclass
class InputGroup:
    """Arguments that lie in one storage.

    Attributes:
        static: The tensor at a fixed address for each member.
        span: The flat static tensor under all members; None for a single member.
    """

    members: list[int]
    static: list[torch.Tensor]
    span: torch.Tensor | None


@dataclass
class StaticInputs:
    """The arguments of a recording.

    Attributes:
        written: First members of the groups that the callable writes.
        spots: The arguments that are used in place.
        handed: The call goes on in place. Versions count what was written; what comes counts itself.
    """

    groups: list[InputGroup]
    written: set[int] = field(default_factory=set[int])
    spots: tuple[Spot, ...] = ()
    handed: bool = False

    def __post_init__(self) -> None:
        simple = [group for group in self.groups if _is_simple(group)]
        self._simple = [group.members[0] for group in simple]
        self._targets = [group.static[0] for group in simple]
        self._others = [group for group in self.groups if not _is_simple(group)]

    @classmethod
    def like(cls, call: Call, spots: tuple[Spot, ...], written: set[int]) -> StaticInputs:
        """Allocate memory for a call's tensor arguments, except those in place, and copy them there.

        The set of ``written`` groups is shared: it grows with the ways of the recording.
        """
        in_place = {spot.members for spot in spots}
        copied = [members for members in group_members(call) if tuple(members) not in in_place]
        inputs = cls([_make_group(members, call) for members in copied], written, spots)
        inputs.place(call.leaves)
        return inputs

    def release(self) -> None:
        """Give the memory of copies back. Nothing is placed here any more."""
        self.groups.clear()
        self._simple, self._targets, self._others = [], [], []

    def place(self, leaves: tuple[Any, ...]) -> None:
        """Copy the caller's tensors to the fixed addresses."""
        if self._simple:
            copy_all(self._targets, [leaves[member] for member in self._simple])
        for group in self._others:
            if group.span is not None:
                group.span.copy_(_span(leaves, group.members))
                continue
            pairs = zip(group.static, group.members, strict=True)
            for static, member in {id(static): (static, member) for static, member in pairs}.values():
                if static.device.type != "meta":
                    _copy(static, leaves[member])

    def pairs(self) -> list[tuple[int, torch.Tensor]] | None:
        """Leaf and static tensor of each argument, if copying these is all there is to do; else None."""
        return list(zip(self._simple, self._targets, strict=True)) if not self._others else None

    def copy_back(self, leaves: tuple[Any, ...], counted: Counted = COUNTS_ALL) -> None:
        """Give the caller's tensors what was written into the static ones; a new version where it counts."""
        counts = self.written if counted.inputs is None else self.written & counted.inputs
        if self.spots and not self.handed:
            members = [member for spot in self.spots if spot.members[0] in counts for member in spot.members]
            touched: list[torch.Tensor] = [leaves[member] for member in members]
            increment_version([tensor for tensor in touched if not tensor.is_inference()])
        for group in self.groups:
            if group.members[0] in counts:
                _give_back(group, leaves)
            elif group.members[0] in self.written:
                with versions_kept([leaves[group.members[0]]]):
                    _give_back(group, leaves)

    def copied_back(self, call: Call) -> list[int]:
        """First members of the groups that are written and copied although they could be used in place."""
        return [
            group.members[0]
            for group in self.groups
            if group.members[0] in self.written
            and placeable([call.leaves[member] for member in group.members])
        ]

    def substitute(self, leaves: tuple[Any, ...]) -> list[Any]:
        """The call's leaves with tensors replaced by the static ones; what was one object still is."""
        found = list(leaves)
        for group in self.groups:
            for member, static in zip(group.members, group.static, strict=True):
                found[member] = static
        first: dict[int, Any] = {}
        return [first.setdefault(id(leaf), static) for leaf, static in zip(leaves, found, strict=True)]

    def writing(self, written: set[int]) -> StaticInputs:
        """The same memory, where one call has written these."""
        return replace(self, written=written)

    def members(self) -> dict[int, int]:
        """Which argument each static input stands for, by identity."""
        return {
            id(static): member
            for group in self.groups
            for member, static in zip(group.members, group.static, strict=True)
        }

    def dress(self, leaves: tuple[Any, ...]) -> None:
        """Give the static tensors the attributes that users have added to the caller's."""
        for leaf, static in self._dressed(leaves):
            copy_attributes(leaf, static)

    def hand_back(self, leaves: tuple[Any, ...]) -> None:
        """The call is over: what it has set on static tensors is set on the caller's."""
        for leaf, static in self._dressed(leaves):
            copy_attributes(static, leaf)

    def undress(self, leaves: tuple[Any, ...]) -> None:
        """Nobody looks at what was set on static tensors any more."""
        for _, static in self._dressed(leaves):
            vars(static).clear()

    def _dressed(self, leaves: tuple[Any, ...]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The caller's tensors, with those that stand for them."""
        pairs = zip(leaves, self.substitute(leaves), strict=True)
        return [(leaf, static) for leaf, static in pairs if static is not leaf]

    def hand_over(self, leaves: tuple[Any, ...]) -> StaticInputs:
        """In the middle of a call: give the caller's tensors their values; the call goes on in place."""
        self.copy_back(leaves)
        copied = tuple(Spot.of(group.members, leaves, OTHER) for group in self.groups)
        return StaticInputs([], set(self.written), (*self.spots, *copied), handed=True)

    def aliases(self, leaves: tuple[Any, ...], counted: Iterable[torch.UntypedStorage] = ()) -> Aliases:
        """How a recording holds the caller's tensors.

        What it uses in place it does not keep alive. What others keep alive, and somebody counts the owners
        of, gets no more of them.
        """
        return Aliases([*[leaves[spot.members[0]].untyped_storage() for spot in self.spots], *counted])

    def starts(self, leaves: tuple[Any, ...]) -> dict[int, int]:
        """First element of each group in the caller's storage, by first member."""
        groups = [group.members for group in self.groups] + [list(spot.members) for spot in self.spots]
        return {members[0]: base_offset(leaves, members) for members in groups}

    def nbytes(self) -> int:
        """Bytes of the static memory."""
        return sum(group.static[0].untyped_storage().nbytes() for group in self.groups)


@dataclass(frozen=True)
class RecordingMemory:
    """Made before a recording is captured, and released with it.

    Attributes:
        stands: The generators that stand for those among the arguments.
    """

    inputs: StaticInputs
    stands: Stands
    holding: Holding


def _is_simple(group: InputGroup) -> bool:
    """Whether a group is one tensor, perhaps passed twice, that a copy of bytes fills.

    Nothing in it overlaps, it has real memory and no gradient, and is no lazy conjugate, which a copy of
    several tensors at once does not take.
    """
    static, *others = group.static
    sizes = zip(static.shape, static.stride(), strict=True)
    overlapping = any(stride == 0 and size > 1 for size, stride in sizes)
    one = group.span is None and all(_is_same(static, other) for other in others)
    lazy = static.is_conj() or static.is_neg()
    return one and not overlapping and not static.requires_grad and not static.is_meta and not lazy


def _is_same(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two members of a group are the same elements, which one copy fills."""
    places = [(each.data_ptr(), each.shape, each.stride(), each.dtype) for each in (tensor, other)]
    return places[0] == places[1]


def _make_group(members: list[int], call: Call) -> InputGroup:
    """Memory for arguments; in inference mode they may still be tensors that have a history."""
    if torch.is_inference_mode_enabled() and not call.leaves[members[0]].is_inference():
        with torch.inference_mode(False):
            return _make_group(members, call)
    tensors = [call.leaves[member] for member in members]
    same_type = len({tensor.dtype for tensor in tensors}) == 1
    if len(members) == 1 or not same_type or tensors[0].device.type == "meta":
        static = [_like(tensor) for tensor in tensors]
        return InputGroup(members, static, None)
    if all(_is_same(tensors[0], tensor) for tensor in tensors):
        one = _like(tensors[0])
        return InputGroup(
            members, [one if tensor is tensors[0] else one.detach() for tensor in tensors], None
        )
    source = _span(call.leaves, members)
    span = _seen_as(source, torch.empty_like(source))
    low = base_offset(call.leaves, members)
    static = [
        span.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset() - low) for tensor in tensors
    ]
    return InputGroup(members, static, span)


def _give_back(group: InputGroup, leaves: tuple[Any, ...]) -> None:
    if group.span is not None:
        _span(leaves, group.members).copy_(group.span)
    else:
        _copy(leaves[group.members[0]], group.static[0])


def _like(tensor: torch.Tensor) -> torch.Tensor:
    plain = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    static = _seen_as(tensor, plain)
    if tensor.requires_grad:
        static.requires_grad_()
    return static


def _seen_as(tensor: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
    """New memory, lazily conjugated or negated as a tensor is: programs can ask for that."""
    if tensor.is_conj() and not memory.is_conj():
        memory = memory.conj()
    return negative_view(memory) if tensor.is_neg() and not memory.is_neg() else memory


def _span(leaves: tuple[Any, ...], members: list[int]) -> torch.Tensor:
    tensors = [leaves[member].detach() for member in members]
    low = min(tensor.storage_offset() for tensor in tensors)
    high = max(tensor.storage_offset() + span_of(tensor) for tensor in tensors)
    return tensors[0].as_strided((high - low,), (1,), low)


def _copy(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copy between tensors of equal strides; dimensions of stride 0 are written once."""
    target, source = target.detach(), source.detach()
    for dimension, stride in enumerate(target.stride()):
        if stride == 0 and target.shape[dimension] > 1:
            target, source = target.narrow(dimension, 0, 1), source.narrow(dimension, 0, 1)
    target.copy_(source)
