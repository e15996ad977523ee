"""A key and everything known about it: its life, its recordings, its limits.

Recordings differ in the Python state in which they are valid: the parameters bound to the callable, a flag on
a module, whether gradients exist. They are tried in order of last use.
"""

from __future__ import annotations

import logging
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from time import perf_counter
from types import FrameType, FunctionType
from typing import Any

import torch

from ...base import COLLECTOR, InternalError, Site, user_site
from ...hazards import rules
from ...hazards.rules import Reason, reason
from ..arguments import OPAQUE, Call, GivenTarget, Spec, Target, describe_key, device_of
from ..autograd import Backward, BackwardOrder
from ..autograd.graph import GradientWalk
from ..backends.protocol import Backend, Lock, ResultSizeError, unwaited
from ..capture import Observation, Plan, TracedCall, TraceHooks
from ..conditions import ChangingNumbers, named_in, reached, tensors_by_memory
from ..memory import Holding
from ..numbers import HostRandom, TrackedNumbers
from ..operators import TOLD_SIZES
from ..optimize import Before, Bounds, improve
from ..program import (
    EAGER,
    PLAINLY,
    RECORDED,
    REPLAYED,
    GradientWatch,
    Result,
    renamable,
    saving_is_hooked,
    sharing_reasons,
)
from ..pytorch import DEPARTURE, plain_functions
from ..reads import WATCH
from ..reads.trace import Noted, Output, Trace, is_shown
from ..recording import FIRST_TIER, Node, Numerics, Recording, RecordingMemory
from ..replay import (
    Counting,
    HotPath,
    KeyCounts,
    Replayed,
    ReplayWriter,
    raised,
    range_of,
    replay,
    result_of,
    takes_back,
)
from ..state import look_again
from .answer import Answer
from .choice import (
    Choice,
    drop_abandoned,
    keeps_values,
    places_of_written,
    shared_with,
    shares_nodes,
    stands_in,
)
from .facts import EarlierFacts
from .guard_reasons import guard_reasons, strict_reasons
from .ledger import Misses
from .opening import Refused, extend, prepare
from .other_lengths import OtherLengths
from .settling import Settling
from .shortage import all_short, was_evicted
from .states import Life, LifeEvent, State
from .steadiness import SHOWN
from .subject import Subject
from .walked import Walked

_log = logging.getLogger("rote")

OFTEN = 2
"""Calls that bind a slot to something else until it is bound in all of them."""
LOOK_S, MOST_IDLE = 0.02, 4096
"""Seconds between two looks at kernels that are being compiled, and the replays that may be at most. A look
takes a replay the general way."""
MAX_PENDING = 8
"""Recordings of one state whose results may wait for their backward at once; further calls run eagerly."""


class Specialization:
    """One key of a graphed callable, from its first call on."""

    def __init__(self, subject: Subject, call: Call, lengths: OtherLengths | None = None) -> None:
        self.description = describe_key(call)
        self.key = call.key
        self.life = Life()
        self.recordings: list[Recording] = []
        self.counts = KeyCounts()
        self.settled = self.is_idle = False  # it was recorded; its calls do next to nothing
        self._told = False  # that it runs eagerly
        self._asked = 0  # replays when it was asked last what only recordings hold; -1 after a traced call
        self._judged = False  # the store has it that nothing comes of it, and what that costs
        self.last_mismatch: Reason | None = None
        self.subject = subject
        self.name = subject.name
        self.executed = subject.executed
        self.limits = subject.limits
        self._range = range_of(self.limits.ranges, self.name)
        self.log = subject.log
        self.function = subject.function
        self._pick = subject.pick
        self._backend: Backend | None = None
        self._ledger = subject.ledger
        self._misses = Misses(subject.ledger)
        self.changing = ChangingNumbers()
        self.earlier = EarlierFacts(subject.store, call)
        self.choice = Choice(self.recordings, self.limits, subject.staying)
        # of the inputs of compiled code, in the last call that was looked at
        self.places: tuple[int, ...] = ()
        self.eager_reasons: list[Reason] = []  # why the key runs eagerly for good
        self._last_reasons: list[Reason] = []  # of the last traced call
        self._other_lengths = lengths or OtherLengths()
        self._ahead: Recording | None = None  # it was recorded in the first call, and not replayed yet
        self._generated: dict[Recording, HotPath] = {}
        self._order = BackwardOrder()
        self._bound: Counter[tuple[str, int, Any]] = Counter()
        self._anchors = [self._anchor(leaf) for leaf, kind in zip(call.leaves, call.kinds, strict=True)
                         if kind == OPAQUE or isinstance(leaf, torch.nn.Parameter)]  # fmt: skip

    def _anchor(self, leaf: Any) -> Any:
        """Keep the identity of an argument meaningful: notice its death, or keep it alive."""
        counts = self.counts  # not the key itself: its anchors would keep it alive

        def died(_: Any) -> None:
            counts.dead = True

        try:
            return weakref.ref(leaf, died)
        except TypeError:
            return leaf

    @property
    def calls(self) -> int:
        """Calls of the key."""
        return self.counts.calls

    @property
    def dead(self) -> bool:
        """Whether nothing has this key any more."""
        return self.counts.dead

    # ------------------------------------------------------------------ a call

    def prepare(self, call: Call) -> Backend:
        """The backend of the device of the arguments, else of the tensors that the key can reach."""
        if self._backend is None:
            self._backend = self._pick(device_of(call, self.reach(call)))
        return self._backend

    def move(self, device: torch.device) -> None:
        """The callable works on another device than its arguments and its state showed."""
        self._backend = self._pick(device)

    def can_move(self, device: torch.device) -> bool:
        """Whether another backend than the one of now would be chosen for a device."""
        return self._pick(device) is not self._backend

    def shares_device(self, other: Specialization) -> bool:
        """Whether two keys run on one device, whose lock is held then."""
        return self._backend is other._backend

    def would_replay(self, call: Call) -> tuple[Recording | None, list[Reason]]:
        """What would replay this call wholly from graphs, for strict mode; or reasons against."""
        if self.life.state is State.EAGER:
            return None, self.eager_reasons
        recording = self.choice.find(call)
        if recording is None:
            return None, self._guard_reasons() or self.choice.against(call)
        if not recording.recorded:
            waiting = [reason(rules.NOT_YET, "the key is still being observed")]
            return None, self.eager_reasons or was_evicted(recording, user_site()) or waiting
        return recording, strict_reasons(recording, self.limits)

    def run(self, call: Call, caller: FrameType) -> Answer:
        """Make one call: replay it, run it once while learning from it, or leave it to the caller."""
        self.counts.calls += 1
        self.places = call.addresses()
        for recording in self.recordings:
            if recording.occupancy.ended is not None:
                self.refuse(recording.occupancy.ended)
                break
        if self.life.state is State.EAGER:
            return Answer(PLAINLY, EAGER, self.eager_reasons)
        if torch.is_grad_enabled() and saving_is_hooked():
            text = "saved-tensor hooks are in force around the call"
            return Answer(PLAINLY, EAGER, [reason(rules.SAVED_HOOKS, text, user_site(caller))])
        recording, found = self.choice.find(call), list[Reason]()
        if recording is not None and recording.recorded:
            better = self.choice.better(recording, call) if self._ledger.allows() else None
            if better is None and recording.strays_often and not self._ledger.allows():
                return self._left_alone()
            if better is None:
                return self.replay(recording, call, caller)
            recording = better
        elif recording is None and sum(other.busy for other in self.recordings) >= MAX_PENDING:
            text = f"{MAX_PENDING} results of this key are alive and their backward has not run"
            return Answer(PLAINLY, EAGER, [reason(rules.BACKWARD_PENDING, text, user_site(caller))])
        elif recording is None and self.changing.waits():
            return Answer(PLAINLY, EAGER, self._last_reasons)
        elif not (  # the dearer question comes last
            self._ledger.allows(completes=self._is_observed(recording)) or self._is_ahead(recording, call)
        ) or self.earlier.spare(self._ledger.pays):
            return self._left_alone()
        elif recording is None and not self._misses.admit():
            return Answer(
                PLAINLY, EAGER, [*self._last_reasons, reason(rules.TRACING_COSTS, str(self._misses))]
            )
        elif recording is None:
            recording, found = self.choice.elsewhere(call, user_site(caller))
            if any(why.code == rules.ALIASED_MUTATION.code for why in found):
                return Answer(PLAINLY, EAGER, found)
        return self._trace(recording, call, user_site(caller), found)

    @property
    def is_observed(self) -> bool:
        """Whether the next call like one that was observed would be recorded."""
        return self.life.state is not State.EAGER and any(map(self._is_observed, self.recordings))

    def _is_observed(self, recording: Recording | None) -> bool:
        """Whether a call that a recording answers would be recorded now."""
        return recording is not None and not recording.recorded and recording.root.seen >= self.limits.warmup

    def _is_ahead(self, recording: Recording | None, call: Call) -> bool:
        """Whether a call was admitted to be recorded ahead."""
        return recording is None and self.calls == 1 and self._model(call) is not None

    def _model(self, call: Call) -> Recording | None:
        """What the first call of the key may be recorded by: what calls at other lengths do."""
        unlike = bool(self.recordings or call.changing) or self.limits.warmup > 1
        model = self._other_lengths.model(call) if not unlike else None
        return model if model is not None and not self._reached(model, call) else None

    def _left_alone(self) -> Answer:
        """The call would be traced, but the ledger cannot pay for it; what was replaced dies all the same."""
        replays = sum([each.replays for each in self.recordings])
        if replays != self._asked:
            self._asked = replays
            drop_abandoned([self.choice], self._ledger)
        why = self._last_reasons or self.earlier.reasons
        if why:
            self._tell(why[0])
        if self._last_reasons and not (self.settled or self._judged):
            self._judged = self._ledger.is_priced
            self.earlier.end(why[0], self._ledger.price, self.recordings, self.calls, self.executed.globals)
        return Answer(PLAINLY, EAGER, [*why, reason(rules.TRACING_COSTS, str(self._ledger))])

    # ------------------------------------------------------------------ replay

    def replay(self, recording: Recording, call: Call, caller: FrameType) -> Answer:
        """Replay a recording that fits; where it reaches a value that is not recorded, go on from there."""
        backend, memory = self.prepare(call), recording.memory
        if memory is None:
            raise InternalError(f"{self.name}: a recording without memory was to be replayed")
        inputs = memory.inputs
        backend.enter_call()
        untouched = recording.gradients.stand()
        if not untouched and not recording.withdraw_gradients():
            return self._stop_sharing_gradients(recording, call, user_site(caller))
        recording.take_generators(call)
        inputs.place(call.leaves)
        recording.put_draws_back()  # a shorter way that was left here may have drawn
        if not recording.take_numbers(call):
            raise InternalError(f"{self.name}: numbers have changed while a call began")
        due = recording.replays >= recording.tiers.due  # so the call came by the ledger
        wanted = due and recording.tiers.wants(recording.root)
        improves = wanted and (self.earlier.exact or self._ledger.allows_work)
        before = Before.of(recording, call) if improves else None
        if improves and recording.acts:
            recording.note_received(wanted=True)
        try:
            with self._range() if self._range is not None else nullcontext():
                done = replay(recording.root)
        except BaseException as error:
            undone = takes_back(recording, error)
            if not undone:  # what was written before stays written, as in eager
                inputs.copy_back(call.leaves)
                recording.give_generators(call)
            recording.put_draws_back()
            recording.end_flights()
            try:
                why = raised(recording, backend, error, user_site(caller), undone=undone)
            finally:
                if isinstance(error, ResultSizeError):  # a recording by sizes comes in its place
                    TOLD_SIZES.broken.add(error.operator)
                    self.choice.drop(recording)
            return Answer(PLAINLY, EAGER, [why])
        if done.template is None:
            return self._go_on(recording, memory, call, done, user_site(caller))
        recording.give_generators(call)
        node = done.node
        # Before the result is made: it notes the versions of what its backward needs.
        recording.accesses.count_writes(node.counted)
        value = result_of(done.template, inputs, call, node.backward, node.counted)
        if not (untouched and recording.gradients.stand()):
            recording.show_gradients(node.effects)
        backend.leave_call()
        recording.count_replay()
        if recording is self._ahead:
            self._ahead = None
            self._ledger.add_use()
        if improves:
            self._improve(recording, call, done.path, before)
        elif wanted:
            recording.improve_at(recording.replays + self._ledger.replays_for_work(unknown=FIRST_TIER))
        elif due and not recording.tiers.open:
            self.look_again(recording)
        return Answer(value, REPLAYED, [], recording)

    def _improve(self, recording: Recording, call: Call, path: list[Any], before: Before | None) -> None:
        """Optimise the way that was just replayed, and have the umpire time it."""
        began, nodes = perf_counter(), [recording.root]
        for value in path:
            nodes.append(nodes[-1].edges[value])
        bounds = Bounds(self.limits.numerics, timed=not self.limits.keep)
        improve(recording, nodes, call, before, bounds)
        if recording.acts:
            recording.note_received(wanted=False)
        # Nothing is measured; or it was, and what is made of the kernels is measured again.
        if self.limits.keep or (self.earlier.exact and recording.tiers.is_on_the_way):
            self.settle_tiers(recording)
        self._ledger.add_work(perf_counter() - began)
        self.look_again(recording, nodes)

    def look_again(self, recording: Recording, way: Sequence[Node] = ()) -> None:
        """Have the tiers of a recording looked at again: at once, after some replays, or never.

        Args:
            way: The stretches that were replayed, if it was looked at what is to be done for them.
        """
        tiers, pause = recording.tiers, self._ledger.replays_in(LOOK_S, most=MOST_IDLE)
        recording.improve_at(tiers.following(recording.replays, recording.root, pause, way))

    def settle_tiers(self, recording: Recording) -> None:
        """What was optimised last stays."""
        if recording.tiers.open:
            recording.settle_tiers()
            self.earlier.keep(self.recordings, self.calls, self.executed.globals)

    def _stop_sharing_gradients(self, recording: Recording, call: Call, site: Site) -> Answer:
        """Somebody holds an earlier gradient: leave them that memory, and copy from now on."""
        recording.gradients.restore()
        recording.release()
        recording.gradients.copy_from_now()
        return self._trace(recording, call, site, [])

    def _go_on(
        self, recording: Recording, memory: RecordingMemory, call: Call, done: Replayed, site: Site
    ) -> Answer:
        """The host read a value that leads nowhere recorded: run Python from there."""
        recording.stray(self._ledger.replays_for_trace)
        recording.put_draws_back()
        recording.gradients.put_back()
        if recording.has_only_read(done.path) and not self._ledger.allows():
            return self._left_alone()
        self.counts.lessons += 1
        child, inputs, capture = done.node.edges.get(done.unseen), memory.inputs, None
        known = child is not None and child.seen >= self.limits.warmup and child.complete
        checked = recording.is_checked((*done.path, done.unseen))
        checks = known and not checked and recording.checks_next
        numbers, careful = self._numbers_of(recording, follows=not checks), self._reached(recording, call)
        if known and checked and not self._read_of(recording, call, careful):
            capture = extend(memory, recording, call)
        elif careful or _may_go_on_in_place(recording):
            inputs = inputs.hand_over(call.leaves)
        plan = Plan(
            recording.root, self.limits.warmup, self.prepare(call), inputs, memory.stands, capture,
            follow=True, path=done.path, careful=bool(careful) or _may_go_on_in_place(recording),
            renamed=self._renamed(call, careful), numbers=numbers,
        )  # fmt: skip
        run = self._check if checks else self._execute
        return run(recording, call, plan, site, [])

    def _numbers_of(self, recording: Recording, *, follows: bool) -> TrackedNumbers | None:
        """The numbers that change, in one more call of a recording."""
        return recording.follow_numbers(follows=follows, changing=self.changing.slots)

    def _check(self, recording: Recording, call: Call, plan: Plan, site: Site, found: list[Reason]) -> Answer:
        """Make a call whose numbers are not followed, to see that it does what is computed for its way.

        Where such calls go other ways again and again, the numbers are conditions from now on.
        """
        edges = [(node, dict(node.edges)) for node in recording.root.walk()]
        recording.begin_check()
        try:
            return self._execute(recording, call, plan, site, found)
        finally:
            for node, known in edges:
                node.edges = known
            if recording in self.recordings and recording.checks_in_vain:
                self.changing.fix(recording.places())
                self.choice.drop(recording)

    # ------------------------------------------------------------------ observe, record

    def _trace(self, recording: Recording | None, call: Call, site: Site, found: list[Reason]) -> Answer:
        self.counts.lessons += 1
        backend, warmup = self.prepare(call), self.limits.warmup
        if recording is not None and not recording.is_checked():
            follows = recording.root.seen < warmup or not recording.checks_next
            numbers = self._numbers_of(recording, follows=follows)
            renamed = self._renamed(call, recording.apart | call.apart)
            plan = Plan(recording.root, warmup, backend, numbers=numbers, renamed=renamed)
            run = self._execute if follows else self._check
            return run(recording, call, plan, site, found)
        if recording is not None and recording.root.seen >= warmup:
            careful = self._reached(recording, call)
            shared = self._read_of(recording, call, careful)
            if not shared:
                numbers = self._numbers_of(recording, follows=True)
                plan = Plan(
                    recording.root, warmup, backend, numbers=numbers,
                    careful=bool(careful) or _may_go_on_in_place(recording),
                    renamed=self._renamed(call, careful),
                )  # fmt: skip
                return self._record(recording, plan, call, site, found)
            recording, found = None, [*found, *sharing_reasons(call, shared, site)]
        model = self._model(call) if recording is None and not found else None
        if model is not None:
            return self._record_ahead(model, call, site)
        root = recording.root if recording is not None else Node()
        apart = recording.apart if recording is not None else self.choice.guesses.apart
        numbers = self._changing_numbers(backend, call) if recording is None else None
        if call.changing and numbers is None:
            text = "what calls do with a number among the arguments is not known"
            return Answer(PLAINLY, EAGER, [reason(rules.NOT_YET, text, site)])
        plan = Plan(root, warmup, backend, numbers=numbers, renamed=self._renamed(call, apart | call.apart))
        return self._execute(recording, call, plan, site, found)

    def _record_ahead(self, model: Recording, call: Call, site: Site) -> Answer:
        """Record the first call by what calls at other lengths do."""
        recording = model.at_another_length()
        in_place = {spot.members[0] for spot in model.spots}
        written = places_of_written(recording.accesses, call)
        recording.persistent.update({first: seen for first, seen in written.items() if first in in_place})
        backend, careful = self.prepare(call), _may_go_on_in_place(recording)
        plan = Plan(recording.root, self.limits.warmup, backend, careful=careful, at_length=True)
        return self._record(recording, plan, call, site, [])

    def _changing_numbers(self, backend: Backend, call: Call) -> TrackedNumbers | None:
        """No recording fits: which numbers are to be followed, since they change from call to call."""
        if not self.subject.computes:
            self.changing.fixed_leaves.update(call.changing)
            return None
        for other in self.recordings:
            self.changing.note(other.guard.python)
        return self.changing.follow(call.changing)

    def _record(
        self, recording: Recording, plan: Plan, call: Call, site: Site, found: list[Reason]
    ) -> Answer:
        pointless = all_short(recording, self.limits.min_segment, site)
        if pointless is not None:
            self.give_up(LifeEvent.LIMIT, pointless)
            return Answer(PLAINLY, EAGER, [pointless])
        spots = self.choice.spots(recording, call, site)
        if isinstance(spots, Reason):
            return Answer(PLAINLY, EAGER, [spots])
        self.choice.drop_dead(recording)
        opened = prepare(recording, call, spots, plan, self.limits.account, keeps_values(recording), site)
        if isinstance(opened, Refused):
            if opened.event is not None:
                self.give_up(opened.event, opened.why)
            return Answer(PLAINLY, EAGER, [opened.why])
        evicted = was_evicted(recording, site)
        recording.evictions.why = None
        answer = self._execute(recording, call, opened, site, found)
        return replace(answer, reasons=[*evicted, *answer.reasons])

    def _execute(
        self, recording: Recording | None, call: Call, plan: Plan, site: Site, found: list[Reason]
    ) -> Answer:
        guards, self._asked = found, -1
        if recording is None and not found:
            guards = self._guard_reasons(site) or self.choice.moved(call, site)
        if guards:
            self.last_mismatch = guards[0]
            drop_abandoned([self.choice], self._ledger)
        if guards and self.life.state in (State.REPLAYING, State.RECORDING):
            self.life.happen(LifeEvent.GUARD_FAILED)
            _log.info("%s records again: %s", self.name, guards[0])
        # A collection may destroy graphs, which spoils a capture; and what a trace has made and does not keep
        # is gone when the collector looks.
        asked = "get_threshold" in self.executed.mentioned()  # where calls are not followed any more
        began, known = perf_counter(), self.changing.news
        tree = recording.root if recording is not None else Node()
        seen, nodes = tree.seen, len(tree.walk())
        try:
            with nullcontext() if asked else COLLECTOR.rests():
                answer = self._learn(recording, call, plan, site, guards)
        except BaseException:
            self._ledger.add_trace(perf_counter() - began, recorded=False)
            raise
        if answer.how == EAGER and not answer.reasons:
            answer = replace(answer, reasons=self._still_learning(recording, plan, site))
        again = tree.seen > seen and len(tree.walk()) == nodes
        learned = again or self.changing.news > known
        wholly = answer.how == RECORDED and answer.in_vain is None  # no value came that leads nowhere yet
        self._ledger.add_trace(
            perf_counter() - began, recorded=wholly, learned=learned, ahead=plan.at_length,
            closed=self._other_lengths.is_closed,
        )  # fmt: skip
        if plan.at_length:
            self._other_lengths.compare(like=answer.how == RECORDED)
            self._ahead = answer.recording if answer.how == RECORDED else None
        if answer.how == RECORDED:
            self._misses.forget()
        elif recording is None:
            self._misses.add_vain()
        if self.changing.news > known and self.subject.computes and recording in self.recordings:
            self.choice.drop(recording)  # the next call is followed
        made = answer.recording if answer.how == RECORDED else None
        if answer.recording is not None and (made is not None or recording is None):
            self._other_lengths.add(answer.recording, self.key)
        if made is not None and made.acts:
            DEPARTURE.add(self, captured=made.captures_collectives)
        improves = made is not None and not made.captures_collectives
        if made is not None and self.limits.numerics > Numerics.PLAIN and improves:
            made.improve_at(made.replays + (0 if self.earlier.exact else FIRST_TIER))
        self._last_reasons = [answer.in_vain] if answer.in_vain is not None else answer.reasons[:SHOWN]
        self.earlier.meet(self._last_reasons)
        if made is not None:
            self.earlier.keep(self.recordings, self.calls, self.executed.globals)
        return answer

    def _still_learning(self, recording: Recording | None, plan: Plan, site: Site) -> list[Reason]:
        """Why a call was traced of which nothing was new; none for the first calls of a state."""
        if recording is None:  # others wait for a backward, or the last call was not as those before it
            return self.choice.pending(site) or (self._last_reasons if self.settled else [])
        text = "this way through the call is not recorded yet"
        return [reason(rules.NOT_YET, text, site)] if plan.follow else []

    def _learn(
        self, recording: Recording | None, call: Call, plan: Plan, site: Site, guards: list[Reason]
    ) -> Answer:
        # A known recording's guard has just said that nothing changed, unless it ignores something.
        known = recording is not None and not plan.follow and not plan.at_length
        held = recording is not None and known and not recording.ignores
        watch = recording.guard.watch() if recording is not None else GradientWatch()
        random = HostRandom.read()
        noted = recording.known if held and recording is not None else None
        plan = replace(
            plan,
            min_segment=self.limits.min_segment,
            split=self.limits.split | self.executed.hiding,
            captures_collectives=self.limits.collectives,
            whole=self.changing.whole,
            selecting=self.subject.selecting.back,
            watch=weakref.ref(watch),
            meet=watch.teller(),
            generators=recording.accesses.generators.values() if recording is not None else (),
            binds=recording.binds if recording is not None and plan.capture is not None else (),
            known=noted if noted is not None and not noted.turns else None,
            operations_alone=plan.capture is not None
            and recording is not None
            and not isinstance(self.function, GradientWalk)
            and shares_nodes(recording),
            threads=self._order.as_plainly and plan.backend.device.type != "cpu",
            hooks_saving=lambda: self.executed.hooks,
        )
        traced = TracedCall(self.function, call, plan, site)
        try:
            seen = self._follow(call, traced, recording, plan)
            observed, _ = seen[0]
            self._order.learn(nested=observed.nested, differed=observed.difference is not None)
            del observed  # whoever holds it keeps its results
            with plain_functions():  # to look at a tensor of the user's class is not to use it
                lesson = Settling(self, recording, call, plan, *seen.pop(), site)
                return lesson.learn(watch, random, guards, held=held)
        except BaseException as error:
            traced.copy_back()
            if traced.lost:
                watch.put_back()
            self._abandon(recording, plan)
            traced.let_go()
            if isinstance(error, Exception):
                self.differ()
                text = f"the call raised {type(error).__name__}"
                self._last_reasons = [reason(rules.OPERATION_RAISES, text, site)]
            raise

    def _follow(
        self, call: Call, traced: TracedCall, recording: Recording | None, plan: Plan
    ) -> list[tuple[Observation, Noted]]:
        """Run the callable, and note what it reads and writes outside of itself, unless that is known.

        Returns:
            One pair, in a list from which it is taken: whoever holds an observation keeps its results alive.
        """
        if plan.known is not None:
            with self.executed, unwaited(plan.backend):
                return [(self._run_traced(traced, recording, plan), plan.known)]
        trace = self.executed.followed = self.subject.follow(
            call, plan.meet, traced.aside, plan.numbers, traced, keeps=plan.capture is not None
        )
        try:
            with self.executed, unwaited(plan.backend):
                seen = [self._run_traced(traced, recording, plan, self._hooks(trace, recording))]
            self._bound.update([target.address for target in seen[0].template.targets])
        finally:
            self.executed.followed = None
            noted = WATCH.end(trace)
            self.executed.note_apart(noted.late)
        return [(seen.pop(), noted)]

    def _run_traced(
        self, traced: TracedCall, recording: Recording | None, plan: Plan, hooks: TraceHooks | None = None
    ) -> Observation:
        """Run the callable; a recorded graph ends in leaves of its own instead of the parameters."""
        if plan.capture is None or recording is None or not stands_in(recording):
            return traced.run(hooks)
        with recording.stand_ins.placed(recording.accesses.can_be_aliased()):
            return traced.run(hooks)

    def _hooks(self, trace: Trace, recording: Recording | None) -> TraceHooks:
        """What the notes of a call and its tracer tell each other."""
        often = {address for address, times in self._bound.items() if times >= OFTEN}
        # a number may be as it was, this time
        if recording is not None and recording.computation is not None:
            often.update([target.address for target in recording.binds])
        bound = partial(trace.bound, often=often, by_value=self.changing.by_value)
        shown = partial(is_shown, trace)
        return TraceHooks(
            bound,
            trace.take,
            trace.take_back,
            shown,
            trace.outside.has_made,
            trace.has_filled,
            trace.settings,
            trace.take_collective,
            trace.outside.lend,
            trace.reducers.leads,
            trace.outside.knows_spread,
            trace.outside.ask_sharding,
            trace.outside.holds,
            trace.left_forwards,
        )

    def _abandon(self, recording: Recording | None, plan: Plan) -> None:
        """The callable raised, or what it did could not be kept: nothing of a recording is left."""
        if plan.session is not None:
            plan.session.release()
            if recording is not None:
                recording.release()
                self.recordings[:] = [other for other in self.recordings if other is not recording]

    # ------------------------------------------------------------------ generated functions

    def generate(
        self,
        recording: Recording,
        call: Call,
        lock: Lock | None,
        counts: Counting,
        finish: Callable[[Specialization, Result], Any],
        *,
        sorts: bool,
    ) -> HotPath | None:
        """The function that answers the next calls like this one, which was replayed; None if there is none.

        The arguments are those of :class:`~..replay.ReplayWriter`; ``lock`` is the wrapper's, None if the
        device's is enough.
        """
        path = self._generated.get(recording)
        if path is not None and path.serves(self.counts, recording):
            return path
        guesses = self.choice.guesses.enabled
        if not HotPath.possible(recording, call, self.recordings, guesses=guesses):
            return None
        writer = ReplayWriter(
            self.counts, recording, call, self.prepare(call), self.replay, counts, partial(finish, self),
            sorts=sorts, named=self._range,
        )  # fmt: skip
        path = HotPath(self.counts, recording, writer.write(lock))
        self._generated[recording] = path
        recording.when_released(partial(self._forget, recording))
        return path

    def _forget(self, recording: Recording) -> None:
        self._generated.pop(recording, None)

    def generated(self, recording: Recording) -> HotPath | None:
        """The function that was generated for a recording, if there is one."""
        return self._generated.get(recording)

    # ------------------------------------------------------------------ state around a call

    def reach(self, call: Call) -> Iterator[Any]:
        """All that the callable can reach besides its tensor arguments, and more."""
        if self.subject.inputs is not None:
            return iter(())
        leaves = zip(call.leaves, call.kinds, strict=True)
        opaque = [leaf for leaf, kind in leaves if kind == OPAQUE or isinstance(leaf, (FunctionType, type))]
        return reached([*self._outside(), *opaque])

    def _reached(self, recording: Recording, call: Call) -> list[int]:
        """The arguments whose memory Python may come to, if it goes where no call has been."""
        found = shared_with(recording, call, tensors_by_memory(self.reach(call)))
        return sorted({*found, *call.apart})

    def writes(self, leaves: Collection[int]) -> bool:
        """Whether a known call writes one of some arguments."""
        return any([not each.accesses.written.isdisjoint(leaves) for each in self.recordings])

    def _renamed(self, call: Call, members: Collection[int]) -> frozenset[int]:
        """Those of some arguments that can be renamed; which tensor one from outside is may be asked."""
        found = renamable(call).intersection(members) if members else frozenset[int]()
        outside = {id(each) for each in self.reach(call)} if found else set[int]()
        return frozenset([index for index in found if id(call.leaves[index]) not in outside])

    def _read_of(self, recording: Recording, call: Call, reached: list[int]) -> list[int]:
        """Those on whose memory lies what known calls read outside, as it is now, where any write it."""
        if not reached or not recording.depends_on_sharing:
            return []
        now = look_again(recording.reads, self.executed, {}).snapshot
        return shared_with(recording, call, now.by_memory())

    def _outside(self) -> list[Any]:
        ran = list(self.executed.globals.items())
        named = [each for code, namespace in ran for each in named_in(code, namespace)]
        return [*[root for _, root in self.subject.roots], *named]

    def _guard_reasons(self, site: Site | None = None) -> list[Reason]:
        """Why none of the recordings there are fits, or why this call is not the one observed last."""
        lines = {each.name: each.site or site for each in self.subject.inputs or ()}
        return guard_reasons(self.recordings, self.executed.globals, site, lines)

    # ------------------------------------------------------------------ limits

    def differ(self) -> None:
        """A call was not like those before it."""
        if self.life.state is not State.OBSERVING:
            self.life.happen(LifeEvent.DIFFERED)

    def give_up(self, event: LifeEvent, why: Reason) -> None:
        """Run this key eagerly from now on, release its recordings and say so once."""
        self.eager_reasons = [why]
        self.earlier.end(why, self._ledger.price, self.recordings, self.calls, self.executed.globals)
        self.release()
        self.life.happen(event)
        self._tell(why, logging.INFO if event is LifeEvent.LOST else logging.WARNING)  # nothing to be done

    def end_idle(self, site: Site) -> Reason:
        """Calls of the key do next to nothing: leave them alone for good; returns why."""
        self.is_idle = True
        text = "the call moves what lies in a container, and does next to nothing else"
        why = reason(rules.SLOWER, text, site)
        self.give_up(LifeEvent.LOST, why)
        return why

    def _tell(self, why: Reason, level: int = logging.WARNING) -> None:
        """The key is left alone, for a while or for good; say so once."""
        if not self._told:
            self._told = True
            _log.log(level, "%s runs eagerly for %s: %s", self.name, self.description, why)

    # ------------------------------------------------------------------ backward

    def open_walk(self, walk: GradientWalk, call: Call) -> Walked:
        """A key for walking a recorded graph back."""
        return Walked(Specialization(self.subject.walking(walk), call))

    def reaches(self, container: Any) -> bool:
        """Whether state of the callable, other than arguments, leads to an object."""
        return any(each is container for each in reached(self._outside()))

    def refuse(self, why: Reason) -> None:
        """Run eagerly from now on, for this reason; a result of an earlier call may have said so before."""
        if self.life.state is not State.EAGER:
            self.give_up(LifeEvent.LIMIT, why)

    def bindings_of(self, backward: Backward) -> tuple[list[Target], Spec] | None:
        """The slots outside that calls bind, and the structure of what the one of a recorded graph leaves.

        None if no recording of it is left.
        """
        nodes = [node for recording in self.recordings for node in recording.root.walk()]
        found = next((node.template for node in nodes if node.backward is backward), None)
        targets = [target for recording in self.recordings for target in recording.binds]
        outside = [target for target in targets if not isinstance(target, GivenTarget)]
        return (outside, found.spec) if found is not None else None

    def holdings(self) -> list[Holding]:
        """The memory of all recordings of the key."""
        return [holding for recording in self.recordings for holding in recording.holdings()]

    def output(self) -> list[Output]:
        """What recorded calls of the key wrote to the standard streams."""
        return [each for recording in self.recordings for each in recording.output()]

    def release(self) -> None:
        """Free everything."""
        for recording in self.recordings:
            recording.release()
        self.recordings.clear()


def _may_go_on_in_place(recording: Recording) -> bool:
    """Whether code that has not run yet may run on the caller's own tensors, behind what a replay has done.

    Not where output would come twice, nor with gradients: graphs of earlier results count what is written.
    """
    return not recording.prints and not torch.is_grad_enabled()
