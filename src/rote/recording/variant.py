"""One way a key's calls go: the tree, the guard over the Python state it depends on, and its memory."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.graph import increment_version

from ..base.location import Site
from ..memory.holding import Holding
from ..reads import Output
from ..signature.bound import Target
from ..signature.compat import plain_functions
from ..signature.guards import Guard
from ..signature.key import TENSOR, Call
from ..signature.leaves import has_branches
from ..signature.opened import address_of, parts_of
from ..signature.reads import Reads
from ..signature.slots import Difference
from ..signature.snapshot import Snapshot
from ..signature.words import Watched
from .accumulators import StandIns
from .arrays import lying_in, within
from .asked import Asked
from .backward import Backward
from .contest import FIRST, Contest
from .counted import Counted
from .generators import Reseed, Stands, are_one
from .gradient_words import note_gradients
from .gradients import GradientEffect, GradientSlot, GradientWatch, slot_of
from .inputs import StaticInputs
from .occupancy import Occupancy
from .placement import OTHER, InputFacts, Regulars, Seen, Spot
from .shortage import pause_after
from .tree import Island, Node

if TYPE_CHECKING:
    from .hot import HotPath
    from .run import Known

NOTES = 8
"""How often the gradient slots are noted anew; it takes longer than to ask them once."""


class Variant:
    """A tree with the state under which it is valid.

    Args:
        root: The tree.
    """

    def __init__(self, root: Node) -> None:
        self.root = root
        self.guard: Guard | None = None
        self.known: Known | None = None
        self.holding: Holding | None = None
        self.inputs: StaticInputs | None = None
        self.written: set[int] = set()
        self.externals: dict[int, weakref.ref[torch.Tensor]] = {}
        self.writes: dict[int, weakref.ref[torch.Tensor]] = {}
        self.arrays: set[int] = set()
        self.array_ranges: list[tuple[int, int]] = []
        self.written_arrays: dict[int, torch.Tensor] = {}
        self.readers: dict[int, Site] = {}
        self.occupancy = Occupancy()
        self.stand_ins = StandIns()
        self.generators: dict[int, torch.Generator] = {}
        self.stands: Stands | None = None
        self.written_out: dict[Output, None] = {}
        self.effects: list[GradientEffect] = []
        self.replays = 0
        self.due = FIRST  # replays at which the general path has to look at the contest
        self.contest: Contest | None = None
        self.estimate = 0
        self.evictions = 0
        self.evicted: str | None = None
        self.pause = 0
        self.copies_gradients = False
        self.keeps_graph = False
        self.bound: tuple[Spot, ...] = ()
        self.persistent: dict[int, Seen] = {}
        self.regulars = Regulars()
        self.sites: dict[tuple[str, int], Site] = {}
        self.facts: tuple[InputFacts, ...] = ()
        self.hot: HotPath | None = None
        self._gradient_words: Watched | None = None
        self._notes = 0
        self._versioned: tuple[Any, list[weakref.ref[torch.Tensor]]] = None, []
        self._shared: dict[int, weakref.ref[torch.Tensor]] = {}
        self._present: list[tuple[weakref.ref[torch.Tensor], GradientSlot]] = []
        self._leaves: list[tuple[str, weakref.ref[torch.Tensor]]] = []
        self.asked = Asked()

    def protect(
        self,
        snapshot: Snapshot,
        parameters: dict[int, tuple[str, torch.Tensor]],
        watch: GradientWatch,
        *,
        concerned: bool,
    ) -> None:
        """Guard the state as it is now.

        Args:
            snapshot: The Python state.
            parameters: Parameters among the arguments, by storage handle.
            watch: The gradient slots before the call.
            concerned: The call reads or replaces some of them.
        """
        reach = self.reach(snapshot.by_memory(), parameters, watch)
        self._shared = {handle: weakref.ref(tensor) for handle, tensor in reach.items()}
        externals = {
            handle: tensor for handle, ref in self.externals.items() if (tensor := ref()) is not None
        }
        arguments = {handle: parameters[handle] for handle in externals if handle in parameters}
        concerned = concerned or self.keeps_gradients  # another path through the call was
        gradients = watch.gradients() if concerned else []
        looked, flags = self.asked.looked(), self.asked.flags
        self.guard = Guard(
            snapshot, externals, arguments, gradients, self.readers, self.arrays, looked, flags=flags
        )
        self._present = list({**self.asked.slots, **watch.presence()}.values()) if concerned else []
        self._gradient_words = None
        self._leaves = watch.leaves()
        self.array_ranges = within(snapshot.arrays, self.arrays)

    @property
    def reads(self) -> Reads | None:
        """What the calls of this state have read, of the objects that lie there now."""
        return self.guard.reads if self.guard is not None else None

    @property
    def may_meet_gradients(self) -> bool:
        """Whether a way through the call that is still unseen may read a tensor that requires grad."""
        return bool(self.root.edges)

    def watch(self) -> GradientWatch:
        """Watch the gradient slots that were known when the guard was made."""
        return GradientWatch([(name, tensor) for name, ref in self._leaves if (tensor := ref()) is not None])

    def gradient_slots(self) -> list[tuple[str, weakref.ref[torch.Tensor]]]:
        """The parameters that may get a gradient, with their names."""
        return self._leaves

    @staticmethod
    def reach(
        tensors: Mapping[int, torch.Tensor],
        parameters: dict[int, tuple[str, torch.Tensor]],
        watch: GradientWatch,
    ) -> dict[int, torch.Tensor]:
        """The tensors that the callable can reach besides its tensor arguments, by storage handle."""
        found = {gradient.untyped_storage()._cdata: gradient for _, _, gradient in watch.gradients()}
        found.update({handle: tensor for handle, (_, tensor) in parameters.items()})
        found.update(tensors)
        return found

    def sibling(self, spots: Iterable[Spot]) -> Variant:
        """A variant with the same state and the same observations whose arguments may lie elsewhere.

        Args:
            spots: What lies where it lay.
        """
        other = Variant(self.root.bare())
        other.guard, other.arrays, other.readers = self.guard, set(self.arrays), dict(self.readers)
        other.array_ranges = list(self.array_ranges)
        other.written_out = dict(self.written_out)
        other.written_arrays = dict(self.written_arrays)
        other.written, other.sites = set(self.written), dict(self.sites)
        other.externals, other.writes = dict(self.externals), dict(self.writes)
        other.generators, other.copies_gradients = dict(self.generators), self.copies_gradients
        other.estimate = self.estimate
        other._shared, other._present, other._leaves = self._shared, self._present, self._leaves
        other.asked = self.asked.copy()
        other.bound = tuple(spot for spot in spots if spot in self.bound)
        other.persistent = {spot.members[0]: spot.seen for spot in spots if spot.kind is OTHER}
        return other

    @property
    def spots(self) -> tuple[Spot, ...]:
        """The arguments that are used in place, or must be."""
        return self.inputs.spots if self.inputs is not None else self.bound

    @property
    def recorded(self) -> bool:
        """Whether the start of the tree can be replayed."""
        return self.root.steps is not None

    @property
    def gone(self) -> bool:
        """Whether it is recorded, and can never be valid again: a tensor that it reads has died."""
        return self.recorded and not self.busy and self.guard is not None and self.guard.tensors.dead

    @property
    def ignores(self) -> bool:
        """Whether a call may change Python state that the guard does not look at."""
        return self.guard is not None and self.guard.ignores

    def holds(self) -> bool:
        """Whether the Python state and the gradient slots are as they were."""
        return self.gradients_hold() and self.guard is not None and self.guard.holds()

    def moves(self) -> bool:
        """Whether all holds for objects that lie in the place of others now; if so, it is about those."""
        guard = self.guard.moved() if self.guard is not None and self.gradients_hold() else None
        if guard is None:
            return False
        self.guard, self.known = guard, None
        if self.hot is not None:
            self.hot.drop()
            self.hot = None
        return True

    def gradients_hold(self) -> bool:
        """Whether the gradient slots are as they were."""
        if self.gradients_stand():
            return True
        for reference, slot in self._present:
            parameter = reference()
            if parameter is None or slot_of(parameter, parameter.grad) != slot:
                return False
        return True

    def gradients_stand(self) -> bool:
        """Whether the gradient slots are known to be as the last replay left them, and nobody's else."""
        words = self._gradient_words
        return words is not None and words.same()

    def withdraw_gradients(self) -> bool:
        """Before a replay: False if somebody still holds a gradient in memory that it is about to write."""
        self._gradient_words = None  # they are those of gradients that may be gone now
        ways = bool(self.root.edges)
        return self.copies_gradients or all([effect.withdraw(branches=ways) for effect in self.effects])

    def show_gradients(self, effects: list[GradientEffect]) -> None:
        """After a replay: fill the gradient slots, and note them so that the next one need not ask each."""
        for effect in effects:
            effect.hand_out(self.copies_gradients)
        self._gradient_words = None
        if not self._present or self.copies_gradients or self._notes >= NOTES:
            return
        if self.gradients_hold():
            self._notes += 1
            self._gradient_words = note_gradients(self._present, self.effects)

    @property
    def keeps_gradients(self) -> bool:
        """Whether it depends on gradient slots."""
        return bool(self._present)

    def handles(self) -> frozenset[int]:
        """Handles of storages of tensors that the callable can reach besides its arguments."""
        return frozenset({*self._shared, *self.externals})

    def reaches(self, handle: int) -> bool:
        """Whether a tensor that the callable can reach is on this storage, still."""
        for table in (self._shared, self.externals):
            reference = table.get(handle)
            tensor = reference() if reference is not None else None
            if tensor is not None:  # a gradient that died may have left its handle to somebody else
                with plain_functions():
                    if tensor.untyped_storage()._cdata == handle:
                        return True
        return False

    def explain(self) -> list[Difference]:
        """What differs from the state the variant is valid in."""
        return self.guard.explain() if self.guard is not None else []

    def collect_effects(self, fresh: list[GradientEffect]) -> None:
        """Note the gradient slots that a newly recorded path replaces."""
        self.effects = [*self.effects, *fresh]
        self._gradient_words = None

    def fits(self, call: Call) -> bool:
        """Whether the arguments lie where the variant needs them."""
        leaves = call.leaves
        in_place = all([spot.holds(leaves) for spot in self.spots])
        drawn = self.draws_from(call.generators().values())
        apart = not self.meets(call) and not self.lies_in_arrays(call.leaves)
        return in_place and not drawn and apart and not self.is_given_state(call)

    def take_generators(self, call: Call) -> None:
        """Before a replay: what stands for random generators among the arguments gets their states."""
        if self.stands is not None and self.stands.by_number:
            self.stands.take(call.generators().values())

    def give_generators(self, call: Call) -> None:
        """After it: they get theirs."""
        if self.stands is not None and self.stands.by_number:
            self.stands.give(call.generators().values())

    def draws_from(self, given: Iterable[torch.Generator]) -> bool:
        """Whether a random generator is one that the recording has from outside, or two of them are one."""
        several = self.stands is not None and self.stands.several_on_devices
        return any([address_of(each) in self.generators for each in given]) or (several and are_one(given))

    def is_given_state(self, call: Call) -> bool:
        """Whether an argument is a container that the callable reads or binds outside, where that matters.

        What is bound in one of the two lies in the other.
        """
        if not has_branches(call.spec) or not (self.root.edges or self.binds):
            return False
        state = self.guard.containers if self.guard is not None else frozenset[int]()
        state |= {id(target.container) for target in self.binds}
        return any([id(part) in state for branch in call.branches()[2:] for part in parts_of(branch)])

    @property
    def binds(self) -> list[Target]:
        """The slots that a way through the recording binds."""
        ends = [node.template for node in self.root.walk() if node.template is not None]
        return [target for template in ends for target in template.targets]

    def meets(self, call: Call) -> bool:
        """Whether an argument that would be copied shares memory with state, where a copy is not the same."""
        return (not self.recorded or self.depends_on_sharing) and bool(self.shared(call))

    def lies_in_arrays(self, leaves: Iterable[Any]) -> bool:
        """Whether an argument lies in the memory of an array of the state that becomes a tensor."""
        return bool(self.array_ranges) and lying_in(leaves, self.array_ranges) is not None

    @property
    def depends_on_sharing(self) -> bool:
        """Whether an argument that shares memory with state is another call than one that does not.

        It is if something is written, and may be while there are ways through the call still unseen.
        """
        return bool(self.writes or self.written or self.root.edges)

    def shared(self, call: Call) -> list[int]:
        """The arguments not in place that share memory with tensors the callable can reach."""
        in_place = {member for spot in self.spots for member in spot.members}
        return [
            index
            for index, (leaf, kind) in enumerate(zip(call.leaves, call.kinds, strict=True))
            if kind is TENSOR
            and index not in in_place
            and self.reaches(leaf.untyped_storage()._cdata)
            and leaf.numel()
        ]

    def note_writes(self, counted: Counted) -> None:
        """After a replay: autograd must see that external tensors were written."""
        if not self.writes:
            return
        key = len(self.writes), counted  # the writes only grow
        if self._versioned[0] != key:
            handles = counted.tensors
            refs = [
                ref
                for handle, ref in self.writes.items()
                if (handles is None or handle in handles) and _counts(ref())
            ]
            self._versioned = key, refs
        increment_version([tensor for ref in self._versioned[1] if (tensor := ref()) is not None])

    @property
    def busy(self) -> bool:
        """Whether a result that waits for its backward needs the memory as it is."""
        return self.occupancy.taken

    def backwards(self) -> list[Backward]:
        """The recorded graphs of its paths."""
        return [node.backward for node in self.root.walk() if node.backward is not None]

    def holdings(self) -> list[Holding]:
        """Its memory, and that of its backward."""
        own = [self.holding] if self.holding is not None else []
        return own + [holding for backward in self.backwards() for holding in backward.holdings()]

    def output(self) -> list[Output]:
        """What recorded calls wrote to the standard streams, those of its backward included."""
        return [*self.written_out, *(each for backward in self.backwards() for each in backward.output())]

    def islands(self) -> list[Island]:
        """All recorded islands."""
        return [step for node in self.root.walk() for step in node.steps or () if isinstance(step, Island)]

    def branches(self) -> list[Any]:
        """All recorded host reads."""
        nodes = [node for node in self.root.walk() if node.steps is not None]
        return [node.branch for node in nodes if node.branch is not None]

    def segments(self) -> int:
        """Number of recorded segments."""
        steps = [step for node in self.root.walk() for step in node.steps or ()]
        return sum(not isinstance(step, (Island, Reseed)) for step in steps)

    def operations(self) -> int:
        """Captured operations on all paths."""
        nodes = [node for node in self.root.walk() if node.steps is not None]
        return sum(getattr(step, "operations", 0) for node in nodes for step in node.steps or ())

    def recorded_paths(self) -> int:
        """Number of recorded ways from the start to an end."""
        return sum(1 for node in self.root.walk() if node.steps is not None and node.branch is None)

    # ------------------------------------------------------------------ what a budget asks

    def placed_bytes(self) -> int:
        """Bytes of the static inputs."""
        return self.inputs.nbytes() if self.inputs is not None else 0

    def evict(self, why: str) -> None:
        """Give the memory back, and be recorded again when asked for; at once the first time, later then."""
        self.release()
        self.evictions += 1
        self.evicted, self.pause = why, pause_after(self.evictions)

    def release(self) -> None:
        """Drop the recorded form and give its memory back; what was observed stays."""
        if self.hot is not None:
            self.hot.drop()
            self.hot = None
        self.root.unrecord()
        self.inputs = self.stands = None
        self.written_arrays.clear()
        self.effects = []
        self._gradient_words = None
        if self.holding is not None:
            self.holding.release()
            self.holding = None


def _counts(tensor: torch.Tensor | None) -> bool:
    """Whether autograd counts versions of a tensor that is alive."""
    with plain_functions():
        return tensor is not None and not tensor.is_inference()
