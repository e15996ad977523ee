"""What a traced call teaches: whether it was steady, and what becomes of its variant.

Runs after the callable has returned. Whatever it decides, the caller gets the result of one plain call.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from ..base.location import Site
from ..hazards import rules
from ..hazards.rules import Reason, reason
from ..reads import Noted
from ..signature.bound import assign
from ..signature.key import Call
from ..signature.leaves import flatten
from ..signature.reach import Slot, slots_in
from ..signature.reads import Names
from ..signature.slots import Difference, look_again
from ..signature.snapshot import Entry, Snapshot
from . import judge
from .backward import Backward
from .choice import bind, note_inputs
from .gradients import GradientEffect, GradientWatch
from .inputs import StaticInputs
from .outputs import Own, put_together
from .patience import MAX_OBSERVED, overdrawn
from .placement import describe_inputs
from .pupil import Pupil
from .replay import result_of
from .result import EAGER, RECORDED, Result
from .run import HostRandom, Known, Outcome, Plan, parameters_of
from .shortage import estimate_of, keep, settle
from .states import Event, State
from .template import AGAIN, GIVEN, Template, spend
from .tracked import take_over, tracked_results
from .variant import Variant

SHOWN = 3
"""Changes of the state that are given as reasons."""


class Lesson:
    """Settles one traced call.

    Args:
        pupil: The key.
        variant: The variant the call belonged to, if one was known.
        call: The arguments.
        plan: How the call ran.
        outcome: What it did.
        noted: What it read and wrote outside of itself.
        site: The caller's line.
    """

    def __init__(
        self,
        pupil: Pupil,
        variant: Variant | None,
        call: Call,
        plan: Plan,
        outcome: Outcome,
        noted: Noted,
        site: Site,
    ) -> None:
        self._pupil = pupil
        self._variant = variant
        self._call = call
        self._plan = plan
        self._outcome = outcome
        self._site = site
        self._node = outcome.tracer.node
        self._effects: list[GradientEffect] = []
        self._effects_key: Any = None
        self._results: list[torch.Tensor] = []
        self._backward: Backward | None = None
        self._refused: Reason | None = None
        self._first = False  # the first observation of a state
        self._strange = False  # one state more that was seen only once
        self._noted = noted
        self._marked = outcome.value is not outcome.returned
        self._strayed = False  # it did something else than it was known to do
        self._slots = {target.address for target in outcome.template.targets}
        self._made = judge.bound_containers(outcome)
        self._read = noted.reads
        self._moved: list[Difference] = []  # what is not as it was when the call read it

    def learn(self, watch: GradientWatch, dice: HostRandom, guards: list[Reason], *, held: bool) -> Result:
        """Judge the call and return its result.

        Args:
            watch: The gradient slots before the call.
            dice: The host's random generators before the call.
            guards: Why no recording fitted.
            held: The guard of the variant held before the call, and looks at everything.
        """
        found, after = self._judge(watch, dice, held=held)
        difference = self._outcome.tracer.difference or self._compare_result()
        if difference is None:
            self._look_astray()
        self._results = tracked_results(self._outcome.value, self._outcome.template)
        value = self._value()
        self._outcome.value = self._outcome.returned = None
        if not found and difference is None:
            ledger, results = self._outcome.ledger, self._results
            found += judge.escape_reasons(ledger, self._outcome, self._effects, results, self._call)
        self._results = []
        if self._outcome.failed is not None:
            return self._capture_failed(value, self._outcome.failed)
        if found:
            return self._unsteady(value, found + guards)
        self._remember(after, watch)
        if difference is not None:
            return self._differed(value, [difference, *guards])
        return self._agreed(value, guards)

    # ------------------------------------------------------------------ judging

    def _judge(
        self, watch: GradientWatch, dice: HostRandom, *, held: bool
    ) -> tuple[list[Reason], Snapshot | None]:
        """Reasons against recording, and what was read as it is after the call, if that was looked at."""
        outcome, site = self._outcome, self._site
        assert self._plan.backend is not None
        changes, after = self._changes(held=held)
        if after is not None:
            watch.name(after.names_of_tensors())
        self._effects, self._effects_key, gradients = judge.gradient_reasons(
            outcome, watch, list(self._pupil.executed.globals), site
        )
        found = judge.random_reasons(dice, self._noted, site)  # what is drawn from changes, too
        found = found or judge.state_reasons(changes, list(self._pupil.executed.globals), site)
        found = found or judge.effect_reasons(self._noted.effects, site)
        found += judge.unknown_reasons(self._noted, site, recorded=self._plan.session is not None)
        refrozen = outcome.use.refrozen(outcome.ledger)
        if refrozen:
            after = after if after is not None else self._look_again()
            found = judge.freezing_reasons(refrozen, after, site) or found
        restored = self._restore_arguments(changed=bool(changes))
        found = found or restored
        found += judge.container_reasons(outcome, self._read, site)
        found += judge.surroundings_reasons(self._pupil.executed, self._noted, outcome, self._call, site)
        found += judge.argument_reasons(outcome, self._call, self._noted.effects, site)
        found += judge.device_reasons(outcome, self._plan.backend.device, site)
        found += outcome.tracer.blockers
        found += gradients
        if found:
            return found, after
        found, after = self._judge_externals(watch, after)
        pointers = set(outcome.tracer.arrays)
        if pointers and not (self._variant is not None and pointers <= self._variant.arrays):
            after = after if after is not None else self._look_again()
            found += judge.array_reasons(outcome, after.arrays)
            found += judge.overlap_reasons(after.arrays, outcome, self._call)
        return found, after

    def _judge_externals(
        self, watch: GradientWatch, after: Snapshot | None
    ) -> tuple[list[Reason], Snapshot | None]:
        """Why tensors made outside cannot be read in place: nobody would notice when they are replaced."""
        outcome, trusted = self._outcome, self._pupil.trusted
        guard = self._variant.guard if self._variant is not None else None
        known = guard.handles if guard is not None and after is None else set[int]()
        known = known | trusted | (set(after.tensors) if after is not None else set())
        unknown = judge.unknown_externals(outcome, known, watch, self._call)
        if unknown and after is None:  # this path reads tensors that no earlier one read
            after = self._look_again()
            known = set(after.tensors) | trusted
            unknown = judge.unknown_externals(outcome, known, watch, self._call)
        if unknown and self._noted.scripts:
            known = known | judge.scripted_constants(outcome, self._noted.scripts)
            unknown = judge.unknown_externals(outcome, known, watch, self._call)
        return judge.external_reasons(outcome, unknown), after

    def _changes(self, *, held: bool) -> tuple[list[Difference], Snapshot | None]:
        """What of that which was read the call has changed, and all of it as it is now if that was needed."""
        guard = self._variant.guard if self._variant is not None else None
        if held and guard is not None:
            if not guard.holds():
                return guard.explain()[:SHOWN], self._look_again()
            if guard.covers(self._read):
                return [], None
        after = self._look_again()
        return self._moved[:SHOWN], after

    def _look_again(self) -> Snapshot:
        """What this call or an earlier one of the variant has read, as it is now."""
        lines = {effect.address: effect.site for effect in self._noted.effects}
        reads = self._read.joined(self._variant.reads if self._variant is not None else None)
        written = judge.written_arrays(self._outcome)
        again = look_again(reads, self._pupil.executed, lines, written)
        self._moved = again.changed
        return again.snapshot

    def _compare_result(self) -> Reason | None:
        node, template = self._node, self._outcome.template
        was, node_effects = node.template, node.effects_key
        if was is None:
            return None
        if was.key != template.key:
            why = reason(rules.OUTPUT_DIFFERS, was.difference(template), self._site)
        elif node_effects != (self._effects_key or None):
            why = reason(rules.OUTPUT_DIFFERS, "other gradients were replaced than before", self._site)
        else:
            return None
        node.template, node.seen = None, 0
        node.unrecord()
        return why

    def _look_astray(self) -> None:
        """A call of which nothing was noted went another way than the known one: it is not recorded."""
        known = self._plan.known
        self._strayed = known is not None and known.end is not self._node
        for node in self._outcome.recorded if self._strayed else ():
            node.unrecord()

    def _what_is_known(self) -> Known | None:
        """What is known of another call that finds everything as this one did.

        Code that C calls is followed from the second call on. What is put into slots or made of arguments,
        what is written for somebody to read, how generators are set: the notes of the call itself tell that.
        """
        noted, template = self._noted, self._outcome.template
        unclear = noted.late or noted.missing or noted.unseen or noted.scripts or noted.output
        unclear = unclear or self._marked or self._sets_generators()
        if self._strayed or unclear or template.targets or template.needs_given:
            return None
        return Known(noted, self._node)

    def _sets_generators(self) -> bool:
        """Whether the call sets generators from outside, or may do so where a value leads elsewhere."""
        tracer = self._outcome.tracer
        known = self._call.generators() or tracer.generators.outside
        return bool(self._plan.settings or (len(tracer.nodes) > 1 and known))

    def _restore_arguments(self, *, changed: bool) -> list[Reason]:
        """Python state that got hold of a static input is given the caller's tensor instead.

        Args:
            changed: Something that was read is not what it was.
        """
        call, inputs, noted = self._call, self._plan.inputs, self._noted
        if inputs is None or not (noted.effects or noted.unseen or noted.late or changed):
            return []  # what is bound anew is bound with the result
        originals: dict[int, torch.Tensor] = {
            id(static): call.leaves[member]
            for group in inputs.groups
            for member, static in zip(group.members, group.static, strict=True)
        }
        names = next((read.names for read in noted.reads), Names())
        found: list[Reason] = []
        for holder in list(self._pupil.reach(call)):
            for slot in slots_in(holder):
                if id(slot.value) not in originals or self._has_put(slot):
                    continue  # what is bound anew is bound with the result
                assign(slot.kind, slot.container, slot.key, originals[id(slot.value)])
                text = f"{names.path(id(holder), slot.suffix)} keeps an argument of the call"
                found.append(reason(rules.STATE_CHANGES, text, self._site))
        return found

    # ------------------------------------------------------------------ the result

    def _value(self) -> Any:
        """The caller's result: from static memory it is copied, a consumed graph is replaced by a stub."""
        variant, plan, outcome, own = self._variant, self._plan, self._outcome, Own(self._outcome.returned)
        if plan.inputs is not None:
            # Only what this call wrote goes back: an earlier one may have had a buffer it writes as argument.
            replayed = plan.inputs.written if plan.follow else set[int]()
            plan.inputs.written = outcome.tracer.written_inputs | replayed
            back = self._backward = self._take_over(variant, plan.inputs)
            counted = self._node.counted
            value = result_of(outcome.template, plan.inputs, self._call, back, counted, own)
            if variant is not None:
                variant.written |= plan.inputs.written
                plan.inputs.written = variant.written
            if self._backward is not None and not self._node.recorded:
                self._backward.release("its forward went a way that is not recorded")
            # If the way ends unrecorded, what it left in .grad gets memory of its own.
            if not self._node.recorded:
                for effect in self._effects:
                    effect.hand_out(copy=True)
            return value
        if not any(leaf.spent for leaf in outcome.template.leaves):
            return outcome.returned
        branches = self._call.branches() if outcome.template.needs_given else []
        leaves: list[Any] = []
        flatten(outcome.value, leaves)
        fresh: list[Any] = []
        for part, leaf in zip(leaves, outcome.template.leaves, strict=False):
            if leaf.kind == GIVEN:
                fresh.append(branches[leaf.index])
            else:
                fresh.append(fresh[leaf.index] if leaf.kind == AGAIN else spend(part) if leaf.spent else part)
        return put_together(outcome.template, fresh, branches, own)

    def _take_over(self, variant: Variant | None, inputs: StaticInputs) -> Backward | None:
        """The call ran on static inputs: keep its graph for the backward of this call and of replays."""
        outcome = self._outcome
        if variant is None or not outcome.template.tracked:
            return None
        tracer, pupil = outcome.tracer, self._pupil
        return take_over(
            outcome.value, outcome.template, inputs, outcome.ledger, outcome.use,
            self._call, variant.occupancy, variant.stand_ins, pupil, pupil.log,
            repeats=not (tracer.written_inputs or outcome.template.gives or outcome.template.appends)
            and all(node.pure for node in tracer.nodes),
        )  # fmt: skip

    # ------------------------------------------------------------------ verdicts

    def _remember(self, after: Snapshot | None, watch: GradientWatch) -> None:
        """Keep the variant, with a guard over the state as it is now if that was looked at."""
        outcome, variant = self._outcome, self._variant
        if variant is None:
            variant, self._first = Variant(self._plan.root), True
            self._variant = variant
            self._pupil.variants.insert(0, variant)
            if after is not None:
                state = variant.reach(self._before_it_kept(after), parameters_of(self._call), watch)
                bind(variant, self._call, outcome, state, self._pupil.choice.guesses, self._site)
            self._strange = self._pupil.choice.forget_old(MAX_OBSERVED)
        ledger = outcome.ledger
        variant.estimate = max(variant.estimate, estimate_of(ledger, self._call, self._plan.backend))
        ledger.note_readers("the result", self._site)
        for number, tensor in enumerate(ledger.externals):
            if number not in ledger.host_memory and not tensor.is_meta:
                handle = tensor.untyped_storage()._cdata
                variant.externals[handle] = weakref.ref(tensor)
                if number in outcome.tracer.written_externals:
                    variant.writes[handle] = weakref.ref(tensor)
                variant.readers[handle] = ledger.external_sites[number][1]
            elif number in outcome.tracer.written_externals and self._plan.session is not None:
                variant.written_arrays[tensor.data_ptr()] = tensor
        variant.generators.update(outcome.tracer.generators.outside)
        variant.arrays |= set(outcome.tracer.arrays)
        variant.written |= outcome.tracer.written_inputs
        note_inputs(variant, self._call, outcome)
        asked, use = variant.asked, outcome.use
        asked.note_slots(use.slots)
        concerned = bool(self._effects) or bool(asked.slots) or watch.is_read(ledger, variant.externals)
        more = asked.note_looks(use.looked_outside(ledger), set(variant.externals), flags=use.flags)
        if after is None and (more or (concerned and not variant.keeps_gradients)):  # as no path before
            after = self._look_again()
        if after is not None:
            variant.protect(after, parameters_of(self._call), watch, concerned=concerned)

    def _before_it_kept(self, after: Snapshot) -> dict[int, torch.Tensor]:
        """The tensors of the state, but for those that the call itself has put there, by storage handle."""
        return {
            handle: tensor
            for handle, entries in after.tensors.items()
            for entry, tensor in entries
            if not self._has_put(entry)
        }

    def _has_put(self, entry: Entry | Slot) -> bool:
        """Whether a slot is one that the call binds, or in a container that it binds."""
        slot = (entry.kind, id(entry.container), entry.key)
        return slot in self._slots or id(entry.container) in self._made

    def _unsteady(self, value: Any, found: list[Reason]) -> Result:
        self._discard()
        variants = self._pupil.variants
        if self._variant is not None and self._variant in variants:
            variants.remove(self._variant)
        self._pupil.rest(found)
        if any(why.code == rules.WRONG_BACKEND.code for why in found):
            self._pupil.move(next(found for found in self._outcome.tracer.devices if found.type == "cuda"))
        if self._pupil.calls == 1:  # the first training step leaves gradients where there were none
            found = [why for why in found if why.code != rules.GRADIENT_LEAVES.code]
        return Result(value, EAGER, found)

    def _differed(self, value: Any, found: list[Reason]) -> Result:
        """The tree now holds what this call did; it counts as seen once."""
        self._discard()
        if self._variant is not None:
            self._variant.known = None
        for node in self._outcome.tracer.nodes:
            node.seen = 1
        self._note_end(self._outcome.template.bare())
        self._pupil.rest(found)
        return Result(value, EAGER, found)

    def _capture_failed(self, value: Any, why: Reason) -> Result:
        self._discard()
        self._pupil.give_up(Event.CAPTURE_FAILED, why)
        return Result(value, EAGER, [why])

    def _agreed(self, value: Any, guards: list[Reason]) -> Result:
        pupil, plan, outcome, variant = self._pupil, self._plan, self._outcome, self._variant
        assert variant is not None
        variant.known = self._what_is_known()
        for node in outcome.tracer.nodes:
            node.seen += 1
        self._note_end(outcome.template.prepared() if self._node.recorded else outcome.template.bare())
        strange, unseen = self._strange and bool(guards), outcome.tracer.unseen
        fruitless = (strange or unseen is not None) and not pupil.patience.paid()
        if fruitless and strange:
            pupil.rest(guards)  # the state is another one at every call, too many of them in a row
            return Result(value, EAGER, guards)
        if unseen is not None:
            guards = [*guards, unseen.reason()]
        if not self._first and not fruitless:  # or it agreed with nothing yet
            pupil.life.steady()
        if self._strayed:
            self._discard()
        settled = not self._strayed and self._settle_session(variant)
        if self._refused is not None:
            return self._capture_failed(value, self._refused)
        if not settled:
            if pupil.life.state is State.OBSERVING and plan.root.seen >= plan.warmup:
                pupil.life.happen(Event.AGREED)
            result = Result(value, EAGER, guards or [], variant)
        else:
            pupil.life.happen(Event.AGREED) if pupil.life.state is State.OBSERVING else None
            pupil.life.happen(Event.RECORDED)
            variant.known = None  # replays need it no more, and it holds what was read
            variant.written_out.update(dict.fromkeys(self._noted.output))
            if variant.copies_gradients:
                for effect in self._node.effects:
                    effect.hand_out(copy=True)
            result = Result(value, RECORDED, guards, variant)
        excess = overdrawn(pupil, variant, self._site)
        if excess is not None:
            pupil.give_up(*excess)
        why = settle(variant, self._site) if result.how == RECORDED else None
        if why is not None:  # a limit does not hold even with all others evicted
            pupil.give_up(Event.LIMIT, why)
            return Result(value, EAGER, [why])
        if fruitless and unseen is not None and excess is None:
            pupil.tire(unseen)
        return result

    def _settle_session(self, variant: Variant) -> bool:
        """Keep what was captured; whether anything was."""
        session = self._plan.session
        if session is None:
            return False
        if not self._outcome.recorded or variant.holding is None:
            session.release()
            return False
        self._refused = keep(variant.holding, session, self._plan.make_room, self._site)
        if self._refused is not None:
            return False
        for effect in self._node.effects:
            effect.count_owners()
        if self._node.effects and len(self._outcome.tracer.nodes) > 1 and not self._outcome.tracer.left:
            variant.copies_gradients = True
        variant.collect_effects(self._node.effects)
        if variant.inputs is not None:
            spots = variant.inputs.spots
            variant.facts = describe_inputs(self._call, spots, variant.written, variant.sites)
        return True

    def _note_end(self, template: Template) -> None:
        self._node.template = template
        self._node.effects_key = self._effects_key or None
        self._node.effects = self._effects if self._node.recorded else []
        self._node.backward = self._backward if self._node.recorded else None

    def _discard(self) -> None:
        """Nothing of this call's recording is kept; recorded results were copied already."""
        for node in self._outcome.recorded:
            node.unrecord()
        if self._plan.session is not None:
            self._plan.session.release()
        if self._variant is not None:
            self._variant.release()
