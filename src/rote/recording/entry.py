"""A key and everything known about it: its life, its variants, its limits.

Variants differ in the Python state they are valid in: the parameters bound to the callable, a flag on a
module, whether gradients exist. They are tried in order of last use.
"""

from __future__ import annotations

import logging
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from types import FrameType, FunctionType
from typing import Any

import torch

from ..backends.base import Backend
from ..base.collector import COLLECTOR
from ..base.location import Site, user_site
from ..hazards import rules
from ..hazards.rules import Reason, reason
from ..memory.holding import Holding
from ..reads import WATCH, Noted, Output, Trace, is_shown
from ..signature.compat import plain_functions
from ..signature.key import OPAQUE, Call, describe_key
from ..signature.reach import named_in, reached
from .autograd import GradientWalk
from .choice import Choice, drop_abandoned, keeps_values, may_track, shares_state
from .compat import saving_is_hooked
from .device import device_of
from .gradients import GradientWatch
from .guard_reasons import guard_reasons, strict_reasons
from .lesson import Lesson
from .opening import extend, prepare
from .patience import Patience
from .replay import Replayed, raised, replay, result_of
from .result import EAGER, PLAINLY, REPLAYED, Result
from .run import HostRandom, Outcome, Plan, TracedCall
from .shortage import was_evicted
from .states import Event, Life, State
from .subject import Subject
from .surroundings import unwaited
from .tree import Node
from .unseen import Unseen
from .variant import Variant
from .walked import Walked

_log = logging.getLogger("rote")

OFTEN = 2
"""Calls that bind a slot to something else, from which on it is bound in all of them."""
MAX_PENDING = 8
"""Recordings of one state whose results may wait for their backward at once; further calls run eagerly."""


class Entry:
    """One key of a graphed callable.

    Args:
        subject: The callable.
        call: The first call with this key.
    """

    def __init__(self, subject: Subject, call: Call) -> None:
        self.description = describe_key(call)
        self.key = call.key
        self.life = Life()
        self.variants: list[Variant] = []
        self.calls = 0
        self.lessons = 0  # calls that were more than a replay, or were to be
        self.dead = self.settled = self.proven = False  # it was recorded; a call of it was replayed
        self._told = False  # that it runs eagerly
        self.last_mismatch: Reason | None = None
        self.subject = subject
        self.name = subject.name
        self.executed = subject.executed
        self.limits = subject.limits
        self.trusted = subject.trusted
        self.log = subject.log
        self.function = subject.function
        self._pick = subject.pick
        self._backend: Backend | None = None
        self.evictions = 0
        self.patience = Patience(self.life, self.limits, self.variants)
        self.choice = Choice(self.variants, self.limits)
        self._eager_reasons: list[Reason] = []
        self._bound: Counter[tuple[str, int, Any]] = Counter()
        self._anchors = [self._anchor(leaf) for leaf, kind in zip(call.leaves, call.kinds, strict=True)
                         if kind == OPAQUE or isinstance(leaf, torch.nn.Parameter)]  # fmt: skip

    def _anchor(self, leaf: Any) -> Any:
        """Keep the identity of an argument meaningful: notice its death, or keep it alive."""
        entry = weakref.ref(self)

        def died(_: Any) -> None:
            alive = entry()
            if alive is not None:
                alive.dead = True

        try:
            return weakref.ref(leaf, died)
        except TypeError:
            return leaf

    # ------------------------------------------------------------------ a call

    def prepare(self, call: Call) -> Backend:
        """The device the key runs on: that of its arguments, else of the tensors it can reach."""
        if self._backend is None:
            self._backend = self._pick(device_of(call, self.reach(call)))
        return self._backend

    def move(self, device: torch.device) -> None:
        """The callable works on another device than its arguments and its state showed."""
        self._backend = self._pick(device)

    def shares_device(self, other: Entry) -> bool:
        """Whether two keys run on one device, whose lock is held then."""
        return self._backend is other._backend

    def would_replay(self, call: Call) -> tuple[Variant | None, list[Reason]]:
        """For strict mode: the variant that would replay this call wholly from graphs, or reasons against."""
        if self.life.state is State.EAGER:
            return None, self._eager_reasons
        variant = self.choice.find(call)
        if variant is None:
            return None, self._guard_reasons() or self.choice.against(call)
        if not variant.recorded:
            waiting = [reason(rules.NOT_YET, "the key is still being observed")]
            return None, self._eager_reasons or was_evicted(variant, user_site()) or waiting
        return variant, strict_reasons(variant, self.limits)

    def run(self, call: Call, caller: FrameType) -> Result:
        """Make one call: replay it, run it once while learning from it, or leave it to the caller."""
        self.calls += 1
        for variant in self.variants:
            if variant.occupancy.ended is not None:
                self.refuse(variant.occupancy.ended)
                break
        if self.life.state is State.EAGER and self.life.rest():
            return Result(PLAINLY, EAGER, self._eager_reasons)
        if torch.is_grad_enabled() and saving_is_hooked():
            text = "saved-tensor hooks are in force around the call"
            return Result(PLAINLY, EAGER, [reason(rules.SAVED_HOOKS, text, user_site(caller))])
        variant, found = self.choice.find(call), list[Reason]()
        if variant is not None and variant.recorded:
            better = self.choice.better(variant, call)
            if better is None:
                return self.replay_variant(variant, call, caller)
            variant = better
        elif variant is None and sum(other.busy for other in self.variants) >= MAX_PENDING:
            text = f"{MAX_PENDING} results of this key are alive and their backward has not run"
            return Result(PLAINLY, EAGER, [reason(rules.BACKWARD_PENDING, text, user_site(caller))])
        elif variant is None:
            variant, found = self.choice.elsewhere(call, user_site(caller))
            if any(why.code == rules.ALIASED_MUTATION.code for why in found):
                return Result(PLAINLY, EAGER, found)
        return self._trace(variant, call, user_site(caller), found)

    # ------------------------------------------------------------------ replay

    def replay_variant(self, variant: Variant, call: Call, caller: FrameType) -> Result:
        """Replay a recording that fits; where that leads to what is not recorded, go on from there."""
        backend, inputs = self._backend, variant.inputs
        assert backend is not None and inputs is not None
        backend.enter_call()
        untouched = variant.gradients_stand()
        if not untouched and not variant.withdraw_gradients():
            return self._stop_sharing_gradients(variant, call, user_site(caller))
        variant.take_generators(call)
        inputs.place(call.leaves)
        try:
            done = replay(variant.root)
        except BaseException as error:  # what was written before stays written, as in eager
            inputs.copy_back(call.leaves)
            variant.give_generators(call)
            return Result(PLAINLY, EAGER, [raised(variant, backend, error, user_site(caller))])
        if not done.finished:
            return self._go_on(variant, call, done, user_site(caller))
        variant.give_generators(call)
        node = done.node
        assert node.template is not None
        variant.note_writes(node.counted)  # the result notes the versions of what its backward needs
        value = result_of(node.template, inputs, call, node.backward, node.counted)
        if not (untouched and variant.gradients_stand()):
            variant.show_gradients(node.effects)
        backend.leave_call()
        variant.replays += 1
        return Result(value, REPLAYED, [], variant)

    def _stop_sharing_gradients(self, variant: Variant, call: Call, site: Site) -> Result:
        """Somebody holds an earlier gradient: leave them that memory, and copy from now on."""
        for effect in variant.effects:
            effect.restore()
        variant.release()
        variant.copies_gradients = True
        return self._trace(variant, call, site, [])

    def _go_on(self, variant: Variant, call: Call, done: Replayed, site: Site) -> Result:
        """The host read a value that leads nowhere recorded: run Python from there."""
        self.lessons += 1
        warmup, inputs = self.limits.warmup, variant.inputs
        for effect in variant.effects:
            effect.put_back()
        plan = Plan(variant.root, warmup, self._backend, inputs=inputs, follow=True, path=done.path)
        plan.stands = variant.stands
        child = done.node.edges.get(done.unseen)
        if inputs is not None and shares_state(variant, call, self.reach(call)):
            plan.inputs = inputs.hand_over(call.leaves)
        elif child is not None and child.seen >= self.limits.warmup and child.complete:
            extend(variant, call, plan, self.limits.account)
        return self._execute(variant, call, plan, site, [])

    # ------------------------------------------------------------------ observe, record

    def _trace(self, variant: Variant | None, call: Call, site: Site, found: list[Reason]) -> Result:
        self.lessons += 1
        backend, warmup = self._backend, self.limits.warmup
        if variant is not None and backend is not None and variant.root.seen >= warmup:
            if not (variant.depends_on_sharing and shares_state(variant, call, self.reach(call))):
                return self._record(variant, backend, call, site, found)
            variant = None
        root = variant.root if variant is not None else Node()
        return self._execute(variant, call, Plan(root, warmup, backend), site, found)

    def _record(
        self, variant: Variant, backend: Backend, call: Call, site: Site, found: list[Reason]
    ) -> Result:
        spots = self.choice.spots(variant, call, site)
        if isinstance(spots, Reason):
            return Result(PLAINLY, EAGER, [spots])
        self.choice.drop_dead(variant)
        plan = Plan(variant.root, self.limits.warmup, backend)
        refused = prepare(variant, call, spots, plan, self.limits.account, keeps_values(variant), site)
        if refused is not None:
            event, why = refused
            if event is not None:
                self.give_up(event, why)
            return Result(PLAINLY, EAGER, [why])
        evicted, variant.evicted = was_evicted(variant, site), None
        result = self._execute(variant, call, plan, site, found)
        return result._replace(reasons=[*evicted, *result.reasons])

    def _execute(
        self, variant: Variant | None, call: Call, plan: Plan, site: Site, found: list[Reason]
    ) -> Result:
        guards = found or (self._guard_reasons(site) if variant is None else [])
        if guards:
            self.last_mismatch = guards[0]
            drop_abandoned([self.choice])
        if guards and self.life.state in (State.REPLAYING, State.RECORDING):
            self.life.happen(Event.GUARD_FAILED)
            _log.info("%s records again: %s", self.name, guards[0])
        # A collection may destroy graphs, which spoils a capture; and what a trace has made and does not keep
        # is gone when the collector looks.
        asked = "get_threshold" in self.executed.mentioned()
        with nullcontext() if asked else COLLECTOR.rests():
            return self._learn(variant, call, plan, site, guards)

    def _learn(
        self, variant: Variant | None, call: Call, plan: Plan, site: Site, guards: list[Reason]
    ) -> Result:
        # A known variant's guard has just said that nothing changed, unless it ignores something.
        held = variant is not None and not plan.follow and not variant.ignores
        plan.backend, plan.split = self.prepare(call), self.limits.split | self.executed.hiding
        watch = variant.watch() if variant is not None else GradientWatch()
        plan.watch, plan.meet, dice = weakref.ref(watch), watch.teller(), HostRandom.read()
        plan.generators = variant.generators.values() if variant is not None else ()
        plan.known = variant.known if held and variant is not None else None
        traced = TracedCall(self.function, call, plan, site)
        try:
            noted, outcome = self._follow(call, traced, variant, plan)
            with plain_functions():  # to look at a tensor of the user's class is not to use it
                lesson = Lesson(self, variant, call, plan, outcome, noted, site)
                return lesson.learn(watch, dice, guards, held=held)
        except BaseException as error:
            traced.copy_back()
            if traced.lost:
                watch.put_back()
            self._abandon(variant, plan)
            if isinstance(error, Exception) and not self.patience.paid():
                self.rest([reason(rules.OPERATION_RAISES, f"the call raised {type(error).__name__}", site)])
            raise

    def _follow(
        self, call: Call, traced: TracedCall, variant: Variant | None, plan: Plan
    ) -> tuple[Noted, Outcome]:
        """Run the callable, and note what it reads and writes outside of itself, unless that is known."""
        assert plan.backend is not None
        if plan.known is not None:
            with self.executed, unwaited(plan.backend):
                return plan.known.noted, self._run_traced(traced, variant, plan)
        trace = self.executed.followed = self.subject.follow(call, plan.meet)
        plan.has_made = trace.has_made
        noted: Noted | None = None
        plan.settings = trace.settings
        try:
            with self.executed, unwaited(plan.backend):
                outcome = self._run_traced(traced, variant, plan, trace)
            self._bound.update([target.address for target in outcome.template.targets])
        finally:
            self.executed.followed = None
            noted = WATCH.end(trace)
            self.executed.note_apart(noted.late)
        return noted, outcome

    def _run_traced(
        self, traced: TracedCall, variant: Variant | None, plan: Plan, trace: Trace | None = None
    ) -> Outcome:
        """Run the callable; what is recorded has leaves of its own instead of the parameters."""
        run = traced.run
        if trace is not None:
            run = partial(run, self._binding(trace), trace.take, partial(is_shown, trace))
        grad = torch.is_grad_enabled() or (variant is not None and may_track(variant))
        if plan.session is None or variant is None or not grad:
            return run()
        parameters = [tensor for ref in variant.externals.values() if (tensor := ref()) is not None]
        with variant.stand_ins.placed(parameters):
            return run()

    def _binding(self, trace: Trace) -> Callable[[Any], Any]:
        """What adds to a result what the call has left outside."""
        if self.limits.pads:
            return trace.unbound
        often = {address for address, times in self._bound.items() if times >= OFTEN}
        return partial(trace.bound, often=often)

    def _abandon(self, variant: Variant | None, plan: Plan) -> None:
        """The callable raised, or what it did could not be kept: nothing of a recording is left."""
        if plan.session is not None:
            plan.session.release()
            if variant is not None:
                variant.release()
                self.variants[:] = [other for other in self.variants if other is not variant]

    # ------------------------------------------------------------------ state around a call

    def reach(self, call: Call) -> Iterator[Any]:
        """All that the callable can reach besides its tensor arguments, and more."""
        leaves = zip(call.leaves, call.kinds, strict=True)
        opaque = [leaf for leaf, kind in leaves if kind == OPAQUE or isinstance(leaf, (FunctionType, type))]
        return reached([*self._outside(), *opaque])

    def _outside(self) -> list[Any]:
        ran = list(self.executed.globals.items())
        named = [each for code, namespace in ran for each in named_in(code, namespace)]
        return [*[root for _, root in self.subject.roots], *named]

    def _guard_reasons(self, site: Site | None = None) -> list[Reason]:
        """Why none of the recordings there are fits, or why this call is not the one observed last."""
        return guard_reasons(self.variants, self.executed.globals, site)

    @property
    def eager_reasons(self) -> list[Reason]:
        """Why the key runs eagerly, if it does."""
        return self._eager_reasons

    # ------------------------------------------------------------------ limits

    def rest(self, reasons: list[Reason]) -> None:
        """A call was not steady; after too many the key runs eagerly for a while, for these reasons."""
        if self.patience.settled():
            self.life.settle()
        self.life.unsteady()
        if self.life.state is State.EAGER:
            self._eager_reasons = reasons
            self.release()
            self._tell(reasons[0])

    def tire(self, unseen: Unseen) -> None:
        """A call read a value that none before had; after too many in a row the key runs eagerly for a while.

        What was observed is kept: values that come in turn are known when the key is looked at again.
        """
        why = self.patience.spend(unseen)
        if why is not None:
            self._eager_reasons = [why]
            for variant in self.variants:
                variant.release()
            self._tell(why)

    def give_up(self, event: Event, why: Reason) -> None:
        """Run this key eagerly from now on, or for long, release its recordings and say so once."""
        self._eager_reasons = [why]
        self.release()
        self.life.happen(event)
        self._tell(why, logging.INFO if event is Event.LOST else logging.WARNING)  # lost: nothing to be done

    def _tell(self, why: Reason, level: int = logging.WARNING) -> None:
        """The key is not tried any more, for a while or for good; that is said once."""
        if not self._told:
            self._told = True
            _log.log(level, "%s runs eagerly for %s: %s", self.name, self.description, why)

    # ------------------------------------------------------------------ backward

    def open_walk(self, walk: GradientWalk, call: Call) -> Walked:
        """A key for walking a recorded graph back."""
        return Walked(Entry(self.subject.walking(walk), call))

    def reaches(self, container: Any) -> bool:
        """Whether state of the callable, other than arguments, leads to an object."""
        return any(each is container for each in reached(self._outside()))

    def refuse(self, why: Reason) -> None:
        """Run eagerly from now on, for this reason; a result of an earlier call may have said so before."""
        if self.life.state is not State.EAGER:
            self.give_up(Event.LIMIT, why)

    def holdings(self) -> list[Holding]:
        """The memory of all recordings of the key."""
        return [holding for variant in self.variants for holding in variant.holdings()]

    def output(self) -> list[Output]:
        """What recorded calls of the key wrote to the standard streams."""
        return [each for variant in self.variants for each in variant.output()]

    def release(self) -> None:
        """Free everything."""
        for variant in self.variants:
            variant.release()
        self.variants.clear()
