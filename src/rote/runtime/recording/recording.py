"""A recording: the program of the calls that find one state, its guard, and the memory that it holds.

It begins as what one observed call did. Each further call that finds the same state adds to it: ways through
the tree, memory that is touched, and at last segments that replay them. Its parts are objects of their own,
and change at different times: the tree and the accesses grow, the guard is made anew when a call reads more,
the memory comes with a capture and goes with an eviction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from ...base import identity
from ..arguments import TENSOR, Call, Target, address_of, has_branches, parts_of
from ..autograd import Backward, Occupancy
from ..autograd.graph import ParameterAliases
from ..backends.protocol import Segment, Session
from ..memory import Holding
from ..numbers import Computation, NumberSource, Path, TrackedNumbers
from ..program import (
    OTHER,
    GradientEffect,
    GradientWatch,
    InputFacts,
    Regulars,
    SeenArgument,
    Spot,
    are_one,
    lying_in,
    renamable,
)
from ..pytorch import plain_functions
from ..reads.trace import Noted, Output
from ..state import Address, Difference, Reads, Snapshot
from .accesses import Accesses
from .contest import FIRST_ROUND, Contest
from .gradients import FoundGradients, ShownGradients, hooks_hold
from .guard import Parameters, StateGuard
from .inputs import RecordingMemory
from .tiers import FIRST_TIER, Tiers
from .tree import ON_HOST, Branch, Island, Node

LONGEST_PAUSE = 32
"""Calls that a recording evicted again and again waits before it is made once more."""


@dataclass
class Evictions:
    """The evictions of one recording."""

    count: int = 0
    why: str | None = None
    pause: int = 0

    def add(self, why: str) -> None:
        """The recording was evicted. It is made again at once the first time, and later each further time."""
        self.count += 1
        self.why = why
        self.pause = min(2 ** (self.count - 1), LONGEST_PAUSE) - 1

    def waits(self) -> bool:
        """Whether the call that would record it again runs eagerly instead."""
        self.pause -= 1
        return self.pause >= 0


STRAY, MOST_STRAYS = 2, 8
"""For how many replays one counts that met a value which leads nowhere recorded, and how many may be left."""
MOST_CHECKS = 3
"""Calls to be checked that go another way, until the numbers of a recording are conditions again."""
MOST_FOLLOWED = 3
"""Calls that are followed after the first such call, one fewer after each other: ways may take turns."""
_WORTH_TIERS = 16
"""Operations of a recording from which on its tiers may turn a contest that it has lost."""


class Recording:
    """What answers the calls of a key that find one state.

    Attributes:
        root: The tree of what was observed.
        accesses: What the calls touch.
        bound: Arguments that have to be used in place, since they share memory with state.
        apart: Arguments that may do so and are copied; observed calls had them by another storage.
        persistent: Arguments that came from one place and were written, by leaf.
        gradients: The gradient slots that replays fill.
        found: Gradients that it finds in slots, and replaces.
        estimate: Bytes that it is expected to need.
        known: What a call reads and writes that finds all as the last one did; None where that is not clear.
        memory: What it holds; None while nothing is captured.
        due: Replays at which the general path has to look at the contest or the tiers.
        compared: Replays at which it has to look at the contest.
        contest: Its rounds against plain calls.
        tiers: What stands in the place of recorded stretches.
        evictions: How often a budget took its memory.
        occupancy: Whether a result that waits for its backward needs the memory as it is.
        stand_ins: What its graph has instead of parameters.
        regulars: Written arguments that keep coming from the same place.
        written_out: What recorded calls wrote to the standard streams.
        prints: Calls write there, so that none begins anew.
        facts: What the report says of its arguments.
        keeps_graph: A way through it may have results that require grad.
        trusts: Its calls ran code of which it is only said what it does.
        tells_tensors: They asked whether an argument is another tensor.
        exceeds_operations: They launch or allocate past the dispatcher: by TorchScript, or for storages.
        computation: What it computes from numbers that change; None if it depends on none.
    """

    def __init__(
        self,
        root: Node,
        guard: StateGuard,
        accesses: Accesses,
        bound: tuple[Spot, ...] = (),
        persistent: dict[int, SeenArgument] | None = None,
        gradients: ShownGradients | None = None,
        estimate: int = 0,
        apart: frozenset[int] = frozenset(),
    ) -> None:
        self.root = root
        self.guard = guard
        self.accesses = accesses
        self.bound, self.apart = bound, apart
        self.persistent = persistent if persistent is not None else {}
        self.gradients = gradients if gradients is not None else ShownGradients()
        self.found = FoundGradients()
        self.estimate = estimate
        self.known: Noted | None = None
        self.memory: RecordingMemory | None = None
        self.contest = Contest()
        self.replays = 0
        self._strays = 0  # of its last replays, each counted as a few
        self.due = self.compared = FIRST_ROUND
        self.tiers = Tiers()
        self.evictions = Evictions()
        self.occupancy = Occupancy()
        self.stand_ins = ParameterAliases()
        self.regulars = Regulars()
        self.written_out: dict[Output, None] = {}
        self.prints = False
        self.facts: tuple[InputFacts, ...] = ()
        self.keeps_graph = self.trusts = self.tells_tensors = self.exceeds_operations = False
        self.computation: Computation | None = None
        self._vain_checks = self._to_follow = 0
        self._identities: dict[int, int] = {}
        self._released: list[Callable[[], None]] = []

    def sibling(self, spots: Iterable[Spot]) -> Recording:
        """A recording of the same state and observations; of its arguments only these lie where they lay."""
        spots = tuple(spots)
        other = Recording(
            self.root.bare(),
            self.guard,
            self.accesses.copy(),
            tuple(spot for spot in spots if spot in self.bound),
            {spot.members[0]: spot.seen for spot in spots if spot.kind is OTHER},
            ShownGradients(copies=self.gradients.copies),
            self.estimate,
            self.apart,
        )
        other.written_out.update(self.written_out)
        other.prints, other.exceeds_operations = self.prints, self.exceeds_operations
        other._identities = self._identities
        other.trusts, other.tells_tensors, other.computation = (
            self.trusts, self.tells_tensors, self.computation,
        )  # fmt: skip
        return other

    @property
    def serves_as_model(self) -> bool:
        """Whether the first call at another length may be recorded by what its calls do."""
        bound = bool(self.bound or self.apart or self.tells_tensors)
        return self.computation is None and not bound and not self.acts

    def at_another_length(self) -> Recording:
        """A recording for calls that do the same at another length, before the first of them is made."""
        return Recording(
            self.root.bare(),
            self.guard,
            self.accesses.copy(),
            gradients=ShownGradients(copies=self.gradients.copies),
            estimate=0,  # it says nothing of another length
        )

    # ------------------------------------------------------------------ what calls teach

    def protect(
        self, snapshot: Snapshot, parameters: Parameters, watch: GradientWatch, *, concerned: bool
    ) -> None:
        """Guard the state as it is now; the arguments are those of :meth:`.StateGuard.of`."""
        concerned = concerned or self.keeps_gradients  # another path through the call was
        self.guard = StateGuard.of(snapshot, self.accesses, parameters, watch, concerned=concerned)
        self.gradients.forget()

    def expect(self, nbytes: int) -> None:
        """A call needed so many bytes."""
        self.estimate = max(self.estimate, nbytes)

    def know(self, known: Noted | None) -> None:
        """A call that finds all as the last one did does what that did; None: nobody knows what it does."""
        self.known = known

    def describe(self, facts: tuple[InputFacts, ...]) -> None:
        """The report says this of the arguments."""
        self.facts = facts

    def unbind(self) -> None:
        """No argument has to be used where it lies."""
        self.bound = ()

    def compute(self, computation: Computation, *, new: bool) -> None:
        """Calls find numbers that change; replays compute from them what the last call did."""
        self.computation = computation
        self._vain_checks *= not new
        self._to_follow = 0 if new else max(self._to_follow - 1, 0)

    @property
    def captures_collectives(self) -> bool:
        """Whether its segments have collectives: nothing may replay them but a call."""
        return any([flight.captured for node in self.root.walk() for flight in node.flights.values()])

    def places(self) -> tuple[NumberSource, ...]:
        """Where its calls find numbers that change."""
        return self.computation.places if self.computation is not None else ()

    def is_checked(self, path: Path = ()) -> bool:
        """Whether calls that begin so do what is computed, if anything is: one that was not followed did."""
        return self.computation is None or self.computation.is_checked(path)

    def check(self, path: Path) -> None:
        """A call that was not followed went a way, and did what the computation says."""
        if self.computation is not None:
            self.computation.check(path)
        self._vain_checks = self._to_follow = 0

    @property
    def checks_next(self) -> bool:
        """Whether the next call is not to be followed. Some are after one that went a new way."""
        return not self._to_follow

    def begin_check(self) -> None:
        """A call is not followed."""
        self._vain_checks += 1
        self._to_follow = max(MOST_FOLLOWED + 1 - self._vain_checks, 1)

    @property
    def checks_in_vain(self) -> bool:
        """Whether too many calls that were to be checked went new ways, although no others do."""
        return self._vain_checks > MOST_CHECKS

    def follow_numbers(
        self, *, follows: bool, changing: frozenset[Address] = frozenset()
    ) -> TrackedNumbers | None:
        """The numbers that change, in another call.

        Args:
            changing: Slots that are known to change: a new way may lead to some of which no other one knows.
        """
        computation, places = self.computation, self.places()
        slots = frozenset([each.address for each in places if each.kind and each.lines is None])
        if follows and changing:
            slots |= changing - {read.address for read in self.guard.python.reads}  # those are conditions
        if computation is None:
            return TrackedNumbers(slots, frozenset()) if slots else None
        leaves = frozenset([each.key for each in places if not each.kind])
        return TrackedNumbers(
            slots, leaves, computation.reading, computation, follows=follows, draws=bool(computation.draws),
            clock=computation.reads_clock, arrays=computation.reads_arrays,
        )  # fmt: skip

    def answers(self, call: Call) -> bool:
        """Whether it answers a call with its numbers. What is drawn for that is drawn again."""
        found = self.take_numbers(call)
        if found:
            self.put_draws_back()
        return found

    def put_draws_back(self) -> None:
        """The call that has just begun draws its numbers itself."""
        if self.computation is not None:
            self.computation.put_back()

    def take_numbers(self, call: Call) -> bool:
        """Compute what a call needs of its numbers; whether it answers a call with those."""
        return self.computation is None or self.computation.take(call.leaves)

    def note(self, noted: Noted) -> None:
        """A call wrote output, ran code of which it is only said what it does, or told tensors apart."""
        self.trusts = self.trusts or noted.trusts
        self.prints = self.prints or bool(noted.output)
        self.tells_tensors = self.tells_tensors or noted.tells_tensors
        self.exceeds_operations = self.exceeds_operations or bool(noted.scripts) or noted.gathers
        if noted.scripts:
            self.accesses.note_scripts(noted.reads)

    def track(self, *, keeps_graph: bool) -> None:
        """Before a recording: whether a way through it may have results that require grad."""
        self.keeps_graph = keeps_graph

    # ------------------------------------------------------------------ its life

    def hold(self, memory: RecordingMemory | None) -> None:
        """A capture begins, into this memory; None while there is none yet."""
        self.memory = memory

    def join(self, contest: Contest) -> None:
        """Its replays are timed with those of other recordings."""
        self.contest = contest

    def hurry(self, replays: int) -> None:
        """Have the first comparison with plain calls after so many replays."""
        if self.compared == FIRST_ROUND and self.replays < FIRST_ROUND:
            self.compare_at(max(replays, self.replays))

    def compare_at(self, replays: int) -> None:
        """After so many replays the general path looks at the contest."""
        self.compared = replays
        self.due = min(replays, self.tiers.due)

    def improve_at(self, replays: int) -> None:
        """After so many replays the general path looks at the tiers."""
        self.tiers.due = replays
        self.due = min(replays, self.compared)

    def waits_for_tiers(self) -> bool:
        """Whether plain calls were faster, but a tier that is not there yet may not be; asked once.

        Then the tiers are made at the next replay, and the contest begins anew when they have had the time.
        """
        tiers = self.tiers
        if tiers.awaited or tiers.final or self.operations() < _WORTH_TIERS:
            return False
        tiers.awaited, self.contest = True, Contest()
        if not (tiers.open or tiers.waiting):
            self.improve_at(self.replays)
        self.compare_at(self.replays + FIRST_TIER)
        return True

    def settle_tiers(self) -> None:
        """What was optimised last stays."""
        self._give_up(self.tiers.decide())

    def drop_tiers(self, why: str) -> None:
        """What was optimised last goes."""
        self._give_up(self.tiers.drop(why))

    def _give_up(self, sessions: Iterable[Session]) -> None:
        for session in sessions:
            if self.memory is not None:
                self.memory.holding.give_up(session)

    def count_replay(self) -> None:
        """It was replayed."""
        self.replays += 1
        self._strays = max(self._strays - 1, 0)

    def stray(self, price: int) -> None:
        """A replay met a value that leads nowhere recorded.

        Args:
            price: Replays that pay for tracing what comes then.
        """
        self._strays += STRAY if self.has_only_read() else price

    @property
    def strays_often(self) -> bool:
        """Whether one replay in three has met a value that leads nowhere recorded.

        If it has written, what comes then has to be traced: whether others have not paid for that since.
        """
        return self._strays > (MOST_STRAYS if self.has_only_read() else 0)

    def has_only_read(self, path: Iterable[Any] = ()) -> bool:
        """Whether a replay that has come so far has changed nothing, so the call can be made plainly."""
        nodes = [self.root]
        for value in path:
            nodes.append(nodes[-1].edges[value])
        return not self.acts and all([node.pure for node in nodes])

    def when_released(self, act: Callable[[], None]) -> None:
        """Do something once, when the recorded form is dropped or its guard moves to other objects."""
        self._released.append(act)

    def _let_go(self) -> None:
        waiting, self._released = self._released, []
        for act in waiting:
            act()

    def evict(self, why: str) -> None:
        """Give the memory back; the recording may be made again (:class:`.Evictions` says when)."""
        self.release()
        self.found.keep(())
        self.evictions.add(why)

    def release(self) -> None:
        """Drop the recorded form and give its memory back; what was observed stays."""
        self._let_go()
        self.root.unrecord()
        self.tiers.clear()
        self.compare_at(self.compared)
        memory, self.memory = self.memory, None
        self.accesses.written_arrays.clear()
        self.gradients.release()
        if memory is not None:
            memory.holding.release()

    @property
    def recorded(self) -> bool:
        """Whether the start of the tree can be replayed."""
        return self.root.steps is not None

    @property
    def busy(self) -> bool:
        """Whether a result that waits for its backward needs the memory as it is."""
        return self.occupancy.taken

    @property
    def gone(self) -> bool:
        """Whether it is recorded but can never be valid again: a tensor that it reads has died."""
        return self.recorded and not self.busy and self.guard.python.tensors.dead

    # ------------------------------------------------------------------ the state

    @property
    def reads(self) -> Reads:
        """What the calls of this state have read, of the objects that lie there now."""
        return self.guard.python.reads

    @property
    def ignores(self) -> bool:
        """Whether a call may change Python state that the guard does not look at."""
        return self.guard.python.ignores

    def holds(self) -> bool:
        """Whether the Python state and the gradient slots are as they were."""
        return self._slots_hold() and self.guard.python.holds()

    def moves(self) -> bool:
        """Whether all holds for objects that lie in the place of others now; then its guard moves to them."""
        if self.computation is not None:  # it finds numbers in the objects that lay there
            return False
        guard = self.guard.moved() if self._slots_hold() else None
        if guard is None:
            return False
        self.guard, self.known = guard, None
        self._let_go()
        return True

    def _slots_hold(self) -> bool:
        return self.gradients_hold() and self.hooks_hold() and self.accesses.are_alone()

    def explain(self, bound: Collection[Address] | None = None) -> list[Difference]:
        """What differs from the state that it is valid in; not in slots that it has ``bound``, if told."""
        found = self.guard.python.explain(bound)
        if not found and not self.hooks_hold():
            return [Difference("the hooks of a tensor that autograd comes by", "as many as before", "others")]
        if not found and not self.accesses.are_alone():
            name = "the memory of a tensor to which the call gives other memory"
            return [Difference(name, "held by nobody else", "held by others, too")]
        return found

    @property
    def keeps_gradients(self) -> bool:
        """Whether it depends on gradient slots."""
        return bool(self.guard.present)

    @property
    def passes_hooks(self) -> bool:
        """Whether it depends on the hooks of tensors, and on no more of their gradient slots."""
        return bool(self.guard.passed)

    def hooks_hold(self) -> bool:
        """Whether these are as many as they were."""
        return hooks_hold(self.guard.passed)

    def gradients_hold(self) -> bool:
        """Whether the gradient slots are as they were."""
        return self.gradients.hold(self.guard.present)

    def bring_back_gradients(self) -> bool:
        """Move what lies in gradient slots to where it was, if nobody can tell; whether any was."""
        return self.found.bring_back(self.gradients.effects)

    def withdraw_gradients(self) -> bool:
        """Before a replay: False if somebody still holds a gradient in memory that it is about to write."""
        return self.gradients.withdraw(self.guard.present)

    def show_gradients(self, effects: list[GradientEffect]) -> None:
        """After a replay: fill the gradient slots."""
        self.gradients.show(effects, self.guard.present)
        self.bring_back_gradients()  # so that the next call is a short way

    def lent_storages(self) -> list[torch.UntypedStorage]:
        """The memory that it does not own: of gradients, whose owners are counted, and of state.

        Before each replay the tensors of the state are asked for.
        """
        left = [each.storage for each in self.gradients.effects if each.storage is not None]
        with plain_functions():
            read = [each.untyped_storage() for each in self.accesses.alive().values()]
            found = [gradient.untyped_storage() for _, _, gradient in self.guard.watch().gradients()]
            return [*left, *read, *found]

    def handles(self) -> frozenset[int]:
        """Handles of storages of tensors that the callable can reach besides its arguments."""
        return frozenset({*self.guard.shared, *self.accesses.externals})

    def reaches(self, handle: int) -> bool:
        """Whether a tensor that the callable can reach is on this storage, still."""
        return self.guard.reaches(handle, self.accesses.externals)

    # ------------------------------------------------------------------ the arguments

    @property
    def spots(self) -> tuple[Spot, ...]:
        """The arguments that are used in place, or must be."""
        return self.memory.inputs.spots if self.memory is not None else self.bound

    def fits(self, call: Call) -> bool:
        """Whether the arguments lie where it needs them."""
        leaves = call.leaves
        in_place = all([spot.holds(leaves) for spot in self.spots])
        drawn = self.draws_from(call.generators().values())
        apart = not self.meets(call) and not self.lies_in_arrays(call.leaves)
        given = self.is_given_state(call) or self.is_given_another(leaves)
        return in_place and not drawn and apart and not given

    def identify(self, leaves: tuple[Any, ...]) -> None:
        """Note which of the arguments that are used in place are tensors that the callable has read."""
        members = [member for spot in self.bound for member in spot.members]
        self._identities = {member: self._identity(leaves[member]) for member in members}

    def is_given_another(self, leaves: tuple[Any, ...]) -> bool:
        """Whether one of them is another object over the same memory: it is no longer what state holds."""
        known = self._identities
        return any(
            [
                known.get(member, 0) != self._identity(leaves[member])
                for spot in self.bound
                for member in spot.members
            ]
        )

    def _identity(self, leaf: torch.Tensor) -> int:
        return identity(leaf) if self.guard.has_read(leaf) else 0

    def meets(self, call: Call) -> bool:
        """Whether an argument that would be copied shares memory with state, and a copy is not the same."""
        depends, strays = self.depends_on_sharing, self.root.edges or not self.recorded
        shared = self.shared(call) if depends or strays or self.tells_tensors else []
        if not shared or depends or any([self.guard.has_read(call.leaves[index]) for index in shared]):
            return bool(shared)
        return bool(strays) and not (renamable(call) if self.recorded else self.apart).issuperset(shared)

    @property
    def depends_on_sharing(self) -> bool:
        """Whether it makes a difference that an argument shares memory with state.

        It does if something is written. Ways still unseen are gone on the caller's own tensors.
        """
        return bool(self.accesses.writes or self.accesses.written)

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

    def lies_in_arrays(self, leaves: Iterable[Any]) -> bool:
        """Whether an argument lies in the memory of an array of the state that becomes a tensor."""
        ranges = self.guard.array_ranges
        return bool(ranges) and lying_in(leaves, ranges) is not None

    def is_given_state(self, call: Call) -> bool:
        """Whether an argument is a container that the callable reads or binds outside, where that matters.

        What the call binds in one of the two lies in the other.
        """
        if not has_branches(call.spec) or not (self.root.edges or self.binds):
            return False
        state = self.guard.python.containers | {id(target.container) for target in self.binds}
        return any([id(part) in state for branch in call.branches()[2:] for part in parts_of(branch)])

    # ------------------------------------------------------------------ random generators

    def take_generators(self, call: Call) -> None:
        """Before a replay: what stands for random generators among the arguments gets their states."""
        if self.memory is not None and self.memory.stands.by_number:
            self.memory.stands.take(call.generators().values())

    def give_generators(self, call: Call) -> None:
        """After it: they get theirs."""
        if self.memory is not None and self.memory.stands.by_number:
            self.memory.stands.give(call.generators().values())

    def draws_from(self, given: Iterable[torch.Generator]) -> bool:
        """Whether a given random generator is one that the recording has from outside, or two are one."""
        given = list(given)
        several = self.memory is not None and self.memory.stands.several_on_devices
        outside = self.accesses.generators
        return any([address_of(each) in outside for each in given]) or (several and are_one(given))

    # ------------------------------------------------------------------ its parts

    @property
    def binds(self) -> list[Target]:
        """The slots that a way through the recording binds."""
        ends = [node.template for node in self.root.walk() if node.template is not None]
        return [target for template in ends for target in template.targets]

    def backwards(self) -> list[Backward]:
        """The recorded graphs of its paths."""
        return [node.backward for node in self.root.walk() if node.backward is not None]

    def holdings(self) -> list[Holding]:
        """Its memory, and the memory of its backward."""
        own = [self.memory.holding] if self.memory is not None else []
        return own + [holding for backward in self.backwards() for holding in backward.holdings()]

    def output(self) -> list[Output]:
        """What recorded calls wrote to the standard streams, those of its backward included."""
        return [*self.written_out, *(each for backward in self.backwards() for each in backward.output())]

    @property
    def acts(self) -> bool:
        """Whether it has collectives: other processes wait for each of them, once for each call."""
        return any([node.acts for node in self.root.walk()])

    @property
    def shards(self) -> bool:
        """Whether it writes tensors of which each process has a part, or leaves gradients that are such."""
        spread = [each.spread for each in self.gradients.effects]
        return bool(self.accesses.sharded) or any([each is not None for each in spread])

    def note_received(self, *, wanted: bool) -> None:
        """Have replays note what they receive from other processes, or forget it."""
        for island in self.islands():
            island.noted = [] if wanted and island.receives else None

    def end_flights(self) -> None:
        """A replay has raised: nobody waits for the collectives that it has begun."""
        self.note_received(wanted=False)
        for node in self.root.walk():
            for flight in node.flights.values():
                flight.end()

    def islands(self) -> list[Island]:
        """All recorded islands."""
        return [step for node in self.root.walk() for step in node.steps or () if isinstance(step, Island)]

    def branches(self) -> list[Branch]:
        """All recorded host reads."""
        nodes = [node for node in self.root.walk() if node.steps is not None]
        return [node.branch for node in nodes if node.branch is not None]

    def segments(self) -> list[Segment]:
        """All recorded segments."""
        steps = [step for node in self.root.walk() for step in node.steps or ()]
        return [step for step in steps if not isinstance(step, ON_HOST)]

    def operations(self) -> int:
        """Captured operations on all paths."""
        return sum(segment.operations for segment in self.segments())

    def recorded_paths(self) -> int:
        """Number of recorded ways from the start to an end."""
        return sum(1 for node in self.root.walk() if node.steps is not None and node.branch is None)

    def placed_bytes(self) -> int:
        """Bytes of the static inputs, and of gradients that wait for others to come in their place."""
        return self.found.nbytes() + (self.memory.inputs.nbytes() if self.memory is not None else 0)
