"""What a traced call teaches: whether it was steady, and what becomes of its recording.

This runs after the callable has returned. Whatever it decides, the caller gets the result of one plain call.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy
import torch

from ...base import Site
from ...hazards import rules
from ...hazards.rules import Reason, reason
from ..arguments import APPENDED, CONTENTS, GRADIENT, STORED, Call, Spec, assign, leaves_of
from ..autograd import Backward, idle_results, take_over, tracked_results
from ..autograd.graph import GradientWalk, memory_below
from ..backends.protocol import Session
from ..capture import Observation, Plan, parameters_of
from ..conditions import Slot, reached, slots_in, tensors_by_memory
from ..numbers import ARRAY, FEW, NO_LINES, TELL_TIME, Computation, HostRandom
from ..program import (
    AGAIN,
    EAGER,
    EXTERNAL,
    EXTERNAL_SAME,
    EXTERNAL_VIEW,
    FOUND,
    GIVEN,
    INPUT_VIEW,
    PASSED,
    RECORDED,
    GradientEffect,
    GradientWatch,
    OutputLeaf,
    Template,
    describe_inputs,
    shared_groups,
    sharing_reasons,
    spend,
)
from ..program.operations import VIEWED
from ..pytorch import is_compiling
from ..reads.trace import Noted
from ..recording import (
    Accesses,
    Own,
    Recording,
    StateGuard,
    StaticInputs,
    input_view,
    put_together,
    reachable,
)
from ..replay import result_of
from ..state import LENGTH, Difference, Entry, Names, Reads, Snapshot, address_of, look_again
from . import steadiness
from .answer import Answer
from .choice import bind, places_of_written
from .shortage import estimate_of, keep, settle
from .states import LifeEvent, State
from .subject import Limits

if TYPE_CHECKING:
    from .specialization import Specialization

_HOST = torch.device("cpu")
MANY_OPERATIONS = 4
"""So many take as long as to place what a call carries and to hand it out, as a replay does."""
MAX_OBSERVED = 8
"""Recordings of a key that were observed but never recorded; the oldest is forgotten beyond that."""


class Settling:
    """Settles one traced call."""

    def __init__(
        self,
        key: Specialization,
        recording: Recording | None,
        call: Call,
        plan: Plan,
        observed: Observation,
        noted: Noted,
        site: Site,
    ) -> None:
        self._key = key
        self._recording = recording
        self._call = call
        self._plan = plan
        self._observed = observed
        self._site = site
        self._node = observed.node
        self._effects: list[GradientEffect] = []
        self._effects_key: Any = None
        self._results: list[torch.Tensor] = []
        self._backward: Backward | None = None
        self._refused: Reason | None = None
        self._noted = noted
        self._marked = observed.value is not observed.returned
        targets = observed.template.targets
        self._slots = {address_of(each.kind, each.container, each.key) for each in targets}
        filled = [each.container for each in targets if each.kind in (APPENDED, CONTENTS, STORED)]
        self._slots |= {address_of(LENGTH, each, None) for each in filled}
        self._slots |= steadiness.slots_of_sinks(targets, noted.reads)
        self._slots |= steadiness.slots_of_emptied(observed, noted.reads)
        self._made = steadiness.bound_containers(observed)
        self._read = noted.reads
        known = recording is not None and not plan.at_length
        self._guard = recording.guard.python if recording is not None and known else None
        self._after: Snapshot | None = None  # what was read as it is after the call, once it was looked at
        self._moved: list[Difference] = []  # what of it the call has changed
        self._shows_more = False  # than was followed
        self._computation: Computation | None = None  # what it computed from numbers that change

    def learn(self, watch: GradientWatch, dice: HostRandom, guards: list[Reason], *, held: bool) -> Answer:
        """Judge the call and return its result.

        Args:
            watch: The gradient slots before the call.
            dice: The host's random generators before the call.
            guards: Why no recording fitted.
            held: The guard of the recording held before the call, and looks at everything.
        """
        found = self._judge(watch, dice, held=held)
        difference = self._observed.difference or self._compare_result() or self._compare_places()
        self._results = tracked_results(self._observed.value, self._observed.template)
        kept = memory_below(idle_results(self._observed.value, self._observed.template))
        value = self._value(kept=not found and difference is None)
        self._observed = replace(self._observed, value=None, returned=None)  # whoever holds them keeps them
        if not found and difference is None:
            storages, results = self._observed.storages, self._results
            cached = steadiness.lost_in_caches(storages, self._noted, self._observed)
            found += steadiness.escape_reasons(
                storages, self._observed, self._effects, results, kept, self._call, cached
            )
            found += steadiness.cache_reasons(storages, self._noted, self._observed, self._site)
        self._results = []
        if self._observed.failed is not None:
            return self._capture_failed(value, self._observed.failed)
        known = self._key.changing.news
        self._note_changing(found)
        self._shows_more = self._key.changing.news > known
        self._key.earlier.follow(self._read, self._key.changing)
        found += self._judge_numbers(blocked=bool(found), difference=difference)
        if found and self._is_new_way:
            self._forget_way()
            return Answer(value, EAGER, found + guards)
        if found:
            return self._unsteady(value, found + guards)
        recording = self._remember(watch)
        if difference is not None:
            return self._differed(recording, value, [difference, *guards])
        return self._agreed(recording, value, guards)

    # ------------------------------------------------------------------ judging

    def _judge(self, watch: GradientWatch, dice: HostRandom, *, held: bool) -> list[Reason]:
        """Reasons against recording."""
        observed, site = self._observed, self._site
        changes = self._changes(held=held)
        if self._after is not None:
            watch.name(self._after.names_of_tensors(watch.met))
        self._effects, self._effects_key, gradients = steadiness.gradient_reasons(observed, watch, site)
        found = steadiness.random_reasons(
            dice, self._plan.numbers, self._noted, self._key.executed, observed, site
        )
        found = found or steadiness.state_reasons(changes, list(self._key.executed.globals), site)
        found = found or steadiness.effect_reasons(self._noted.effects, site)
        found += steadiness.told_reasons(observed, site, can_tell=self._key.subject.computes)
        found += steadiness.unknown_reasons(self._noted, site, recorded=self._plan.capture is not None)
        refrozen = observed.use.refrozen(observed.storages)
        if refrozen:
            found = steadiness.freezing_reasons(refrozen, self._look_again(), site) or found
        restored = self._restore_arguments(changed=bool(changes))
        found = found or restored
        found += steadiness.container_reasons(observed, self._read, site)
        found += steadiness.surroundings_reasons(self._key.executed, self._noted, observed, self._call, site)
        found += steadiness.argument_reasons(observed, self._call, self._noted.effects, site)
        found += steadiness.device_reasons(
            observed, self._plan.backend.device, site, can_move=self._key.can_move(_HOST)
        )
        found += observed.blockers
        found += gradients
        if found:
            return found
        found = self._judge_sharing()
        found += self._judge_externals(watch)
        if self._key.limits.ordered:
            found += steadiness.order_reasons(observed, self._call, site)
        found += steadiness.sharing_reasons_of_arrays(observed, self._call, site)
        if self._plan.numbers is not None:
            found += steadiness.outside_reasons(self._plan.numbers, observed, self._call, site)
        pointers = set(observed.arrays)
        if pointers and not (self._recording is not None and pointers <= self._recording.accesses.arrays):
            ranges = self._look_again().arrays
            found += steadiness.array_reasons(observed, ranges)
            found += steadiness.overlap_reasons(ranges, observed, self._call)
        return found

    @property
    def _is_check(self) -> bool:
        """Whether the call is to do what others have computed, without being followed."""
        return self._plan.numbers is not None and not self._plan.numbers.follows

    def _note_changing(self, found: list[Reason]) -> None:
        """What shows that numbers change: what the call leaves of them, and values that no call had read."""
        changing = self._key.changing
        lines = self._key.subject.selecting
        if lines.learn(self._observed.selecting, self._observed.selecting_else) and not found:
            changing.news += 1
            text = "what a mask selects here is written back through it, so the next calls need no size of it"
            found.append(reason(rules.NOT_YET, text, self._site))
        changing.leave([slot for each in self._noted.effects for slot in each.numbers])
        changing.wait([each.window for each in self._noted.effects if each.window is not None])
        counted = any([why.code == rules.OPTIMIZER_COUNT.code for why in found])
        if found and self._noted.draws is not None:
            changing.follow_draws()
        if self._noted.reads_arrays and not changing.follow_arrays():
            self._close_arrays()
        numbers = self._plan.numbers
        if numbers is not None:
            changing.leave(numbers.left)
            changing.excuse(numbers.falls_short)
        if self._observed.strayed and not (self._noted.late or self._noted.unseen):
            changing.stray(self._observed.strayed, followed=numbers is not None and numbers.arrays)
        if any([each.name in TELL_TIME.values() for each in self._noted.unseen]):
            changing.follow_clock()
        unseen = self._observed.unseen
        often = unseen is not None and (
            unseen.known >= FEW
            or (numbers is not None and unseen.is_float)
            or changing.reads(unseen.read.site)
        )
        # as long as a read of a number is a way for each value, or each call asks for what it has read itself
        missed = numbers is not None and (numbers.missed or changing.ways >= FEW)
        # what numpy computes of an array is a result: nothing can be said of that unless it is followed
        made = any([why.code == rules.OPAQUE_OUTPUT.code for why in found]) and not changing.whole.isdisjoint(
            self._observed.lines
        )
        if counted or often or missed or made:
            changing.read(self._observed.lines, numbers.reading if numbers is not None else NO_LINES)

    def _close_arrays(self) -> None:
        """What the call does with numbers of arrays is not followed: these are known by their identity."""
        openings = self._call.openings
        if openings is not None and openings.may_open(numpy.ndarray):
            openings.close(numpy.ndarray, "reads its numbers")

    def _judge_numbers(self, *, blocked: bool, difference: Reason | None) -> list[Reason]:
        """Numbers that change were followed: why a recording cannot compute what the call did with them."""
        numbers, changing = self._plan.numbers, self._key.changing
        if numbers is None:
            return []
        if numbers.strayed:
            changing.fix_lines(numbers.strayed)
        if self._is_check or (numbers.strayed and self._recording is not None):
            if (
                (difference is None and not numbers.strayed and not numbers.lacks_ends)
                or self._recording is None
                or self._recording.computation is None
            ):
                return []
            changing.fix(self._recording.computation.places)
            if difference is None and numbers.lacks_ends:
                text = "the call reads a list at another distance from its end than the one before"
                return [reason(rules.NOT_YET, text, self._site)]
            return [difference] if difference is not None else []
        noted = self._noted
        if noted.late or noted.unseen or (numbers.stopped is not None and self._shows_more):
            # It may have looked at numbers, which says nothing of the next call: that may follow it.
            text = "the call ran code that was not followed, so it is not known what becomes of numbers"
            return [] if blocked else [reason(rules.NOT_YET, text, self._site)]
        if blocked and (numbers.stopped is None or numbers.waits):
            return []
        if numbers.longer:  # the next call follows how long they are, beside what they are read at
            changing.add(numbers.longer)
            text = "a list that grows was read at a number, which may be as far from its end in each call"
            return [] if blocked else [reason(rules.NOT_YET, text, self._site)]
        numbers.settle_times()
        fixed = numbers.by_value()
        if numbers.stopped is None:
            changing.fix(fixed)
        elif self._recording is None or self._recording.computation is None:  # else others are answered by it
            changing.doubt(fixed)
        if ARRAY in [each.kind for each in fixed]:
            self._close_arrays()
        if not numbers.values and numbers.stopped is None:
            return []  # it has met none of them, and is a call like any other
        if fixed or numbers.stopped is not None or difference is not None:
            names = ", ".join([each.name for each in fixed[:3]])
            text = (
                f"the call depends on the value of {names}" if names else "the call is not as one before it"
            )
            return [] if blocked else [reason(rules.VALUE_CHANGED, text, self._site)]
        self._computation = numbers.finish()
        if self._recording is None:
            changing.understand(asks_alone=numbers.asks_alone)
        return []

    @property
    def _is_new_way(self) -> bool:
        """Whether the call went another way than those before it, behind a value that it has read.

        What it does there says nothing of the others, nor of what is followed on them. Where it leaves more
        than plain values outside, that may lie in memory which those go on writing to.
        """
        recording, plan = self._recording, self._plan
        if any([each.holds for each in self._noted.effects]):
            return False
        replays = recording is not None and recording.recorded and plan.follow and plan.capture is None
        return self._observed.unseen is not None and (replays or self._is_check)

    def _forget_way(self) -> None:
        """What the call did behind the value is none of the recording's: that answers the other ways."""
        for node, value in zip(self._observed.nodes, self._observed.path, strict=False):
            if node.edges[value].seen == 0:
                del node.edges[value]
                return

    def _judge_sharing(self) -> list[Reason]:
        """Why arguments and state that shares their memory cannot be told apart: the call writes one of them.

        Calls to come have both as they are.
        """
        observed, call = self._observed, self._call
        if self._plan.inputs is not None or not observed.stood:
            return []  # it was recorded apart, and answers no more calls in which they share memory
        outside = [observed.storages.externals[number] for number in observed.writes.externals]
        written = {tensor.untyped_storage()._cdata for tensor in outside}
        given = observed.writes.inputs.intersection(observed.stood)
        if given:
            state = tensors_by_memory(self._key.reach(call))
            given = given.intersection([members[0] for members in shared_groups(call, state)])
        given |= {index for index in observed.stood if call.leaves[index].untyped_storage()._cdata in written}
        self._key.choice.guesses.keep_together(given)
        return sharing_reasons(call, sorted(given), self._site)

    def _judge_externals(self, watch: GradientWatch) -> list[Reason]:
        """Why tensors made outside cannot be read in place: nobody would notice when they are replaced."""
        observed, trusted = self._observed, self._key.subject.trusted
        if self._after is None and self._guard is not None:
            known = self._guard.handles | trusted
            if not steadiness.unknown_externals(observed, known, watch, self._call):
                return []
        known = set(self._look_again().tensors) | trusted  # this path may read what no earlier one read
        known = known | self._noted.buckets
        unknown = steadiness.unknown_externals(observed, known, watch, self._call)
        if unknown and self._noted.scripts:
            known = known | steadiness.scripted_constants(observed, self._noted.scripts)
            unknown = steadiness.unknown_externals(observed, known, watch, self._call)
        return steadiness.external_reasons(observed, unknown)

    def _changes(self, *, held: bool) -> list[Difference]:
        """What the call changed of what it read."""
        if held and self._guard is not None:
            found = self._guard.changed(self._slots)
            if found:
                self._look_again()
                return found[: steadiness.SHOWN]
            if self._guard.covers(self._read):
                return []
        self._look_again()
        return self._moved[: steadiness.SHOWN]

    def _look_again(self) -> Snapshot:
        """What this call or an earlier one of the recording has read, as it is now; looked at once."""
        if self._after is None:
            lines = {effect.address: effect.site for effect in self._noted.effects}
            reads = self._read.joined(self._guard.reads if self._guard is not None else None)
            written = steadiness.written_arrays(self._observed)
            returned = self._observed.rebound
            again = look_again(reads, self._key.executed, lines, written, self._slots, returned)
            self._moved, self._after = again.changed, again.snapshot
        return self._after

    def _compare_result(self) -> Reason | None:
        node, template = self._node, self._observed.template
        was, node_effects = node.template, node.effects_key
        if was is None:
            return None
        template = template.at_times_of(was)
        if self._is_check:
            was = was.resolved()
        if self._plan.at_length and was.is_like(template):
            was = template
        if was.key != template.key:
            why = reason(rules.OUTPUT_DIFFERS, was.difference(template), self._site)
        elif node_effects != (self._effects_key or None):
            why = reason(rules.OUTPUT_DIFFERS, "other gradients were replaced than before", self._site)
        else:
            return None
        node.template, node.seen = None, 0
        node.unrecord()
        return why

    def _compare_places(self) -> Reason | None:
        """Whether a call recorded by what others do at other lengths touches what they touch."""
        recording, observed = self._recording, self._observed
        if recording is None or not self._plan.at_length:
            return None
        accesses, storages = recording.accesses, observed.storages
        read = {each.untyped_storage()._cdata for each in storages.externals if not each.is_meta}
        state = tensors_by_memory(self._key.reach(self._call))
        apart = not shared_groups(self._call, state)
        if observed.unseen is not None:
            return observed.unseen.reason()
        if apart and observed.writes.inputs == accesses.written and read <= accesses.externals.keys():
            return None
        return reason(rules.OPERATIONS_DIFFER, "the call touches other memory at this length", self._site)

    def _what_is_known(self) -> Noted | None:
        """What is known of another call that finds everything as this one did.

        Code that C calls is followed from the second call on. What is put into slots or made of arguments,
        what is written to streams and how generators are set differ from call to call, so such calls are
        noted each time. So are those in which the host reads values of tensors, which may lead elsewhere,
        those with collectives, whose methods notes tell, those that ask caches by tensors of their own,
        those that give memory to storages, those that return what lies outside, where notes have found it,
        those that make tensors of a class, and all calls once anything is under ``torch.compile``: notes
        choose what runs.
        """
        noted, template = self._noted, self._observed.template
        if self._plan.numbers is not None or any([node.acts for node in self._observed.nodes]):
            return None
        unclear = (
            noted.late or noted.missing or noted.unseen or noted.scripts or noted.output or noted.steered
        )
        unclear = (
            unclear
            or noted.gathers
            or noted.cached
            or self._marked
            or self._observed.settings
            or is_compiling()
        )
        unclear = unclear or len(self._observed.nodes) > 1 or template.targets or template.needs_given
        unclear = unclear or any([leaf.kind in (EXTERNAL_SAME, EXTERNAL_VIEW) for leaf in template.leaves])
        # Identities say nothing in a later call: what lay there may be gone, and a result in its place.
        return None if unclear else replace(noted, reads=Reads(noted.reads.slots))

    def _restore_arguments(self, *, changed: bool) -> list[Reason]:
        """Python state that got hold of a static input is given the caller's tensor instead."""
        call, inputs, noted = self._call, self._plan.inputs, self._noted
        originals = {id(each): call.leaves[member] for member, each in self._observed.stood.items()}
        if inputs is not None:
            originals.update({static: call.leaves[member] for static, member in inputs.members().items()})
            inputs.undress(call.leaves)
        if not originals or not (noted.effects or noted.unseen or noted.late or changed):
            return []  # what is bound anew is bound with the result
        names = next((read.names for read in noted.reads), Names())
        found: list[Reason] = []
        tables = [vars(leaf) for leaf in call.leaves if isinstance(leaf, torch.Tensor)]
        for holder in [*self._key.reach(call), *reached(tables)]:
            for slot in slots_in(holder):
                if id(slot.value) not in originals or self._has_put(slot):
                    continue  # what is bound anew is bound with the result
                assign(slot.kind, slot.container, slot.key, originals[id(slot.value)])
                text = f"{names.path(id(holder), slot.suffix)} keeps an argument of the call"
                found.append(reason(rules.STATE_CHANGES, text, self._site))
        return found

    # ------------------------------------------------------------------ the result

    def _value(self, *, kept: bool) -> Any:
        """The caller's result: from static memory it is copied, a consumed graph is replaced by a stub."""
        recording, plan, observed = self._recording, self._plan, self._observed
        own = Own(observed.returned)
        inputs = observed.inputs
        if inputs is not None:
            # Only what this call wrote goes back: an earlier one may have had a buffer it writes as argument.
            written = observed.writes.inputs | (inputs.written if plan.follow else set[int]())
            back = self._backward = self._take_over(recording, inputs)
            counted = self._node.counted
            stays = kept or self._is_new_way
            template = observed.template if stays else observed.template.released(leaves_of(observed.value))
            value = result_of(template, inputs.writing(written), self._call, back, counted, own)
            if recording is not None:
                recording.accesses.written.update(written)
            if self._backward is not None and not self._node.recorded:
                self._backward.release("its forward went a way that is not recorded")
            # If the way ends unrecorded, what it left in .grad gets memory of its own.
            if kept and not self._node.recorded:
                for effect in self._effects:
                    effect.hand_out(copy=True)
            return value
        if not any(leaf.spent or self._is_of_stood(leaf) for leaf in observed.template.leaves):
            return observed.returned
        branches = self._call.branches() if observed.template.needs_given else []
        fresh: list[Any] = []
        for part, leaf in zip(leaves_of(observed.value), observed.template.leaves, strict=False):
            if leaf.kind == GIVEN:
                fresh.append(branches[leaf.index])
            elif leaf.kind == FOUND:
                fresh.append(leaf.value())
            elif self._is_of_stood(leaf):
                given = self._call.leaves[leaf.index]
                view = leaf.kind == INPUT_VIEW
                fresh.append(input_view(leaf, given, given.storage_offset()) if view else given)
            else:
                made = spend(part, idle=leaf.idle) if leaf.spent else part
                fresh.append(fresh[leaf.index] if leaf.kind == AGAIN else made)
        return put_together(observed.template, fresh, branches, own)

    def _is_of_stood(self, leaf: OutputLeaf) -> bool:
        """Whether a part of the result is, or looks at, what stood for an argument."""
        return leaf.kind in (PASSED, INPUT_VIEW) and leaf.index in self._observed.stood

    def _take_over(self, recording: Recording | None, inputs: StaticInputs) -> Backward | None:
        """The call ran on static inputs: keep its graph for the backward of this call and of replays."""
        observed = self._observed
        if recording is None or not observed.template.tracked:
            return None
        key = self._key
        return take_over(
            observed.value, observed.template, inputs.members(), inputs.substitute(self._call.leaves),
            observed.storages, observed.use, self._call, recording.occupancy, recording.stand_ins, key,
            key.log,
            repeats=not (observed.writes.inputs or observed.template.gives)
            and all(node.pure for node in observed.nodes)
            and all(target.kind != GRADIENT for target in observed.template.targets),
            binds=bool(observed.template.targets),
        )  # fmt: skip

    # ------------------------------------------------------------------ verdicts

    def _remember(self, watch: GradientWatch) -> Recording:
        """Keep what the call touches, with a guard over the state as it is now if that was looked at."""
        recording = self._recording
        if recording is None:
            recording = self._recording = self._begin(self._look_again(), watch)
            self._key.recordings.insert(0, recording)
            self._key.choice.forget_old(MAX_OBSERVED)
        else:
            concerned, more = self._note_accesses(recording.accesses, watch)
            if more or (concerned and not recording.keeps_gradients):  # as no path before
                self._look_again()
            if self._after is not None:
                recording.protect(self._after, parameters_of(self._call), watch, concerned=concerned)
            if self._plan.at_length:
                for node, value in zip(self._observed.nodes, self._observed.path, strict=False):
                    node.edges = {value: node.edges[value]}  # its other ways are of other lengths
                self._key.recordings.insert(0, recording)
        if self._computation is not None:
            recording.compute(self._computation, new=self._observed.unseen is not None)
        elif self._is_check and self._observed.unseen is None:
            recording.check(self._observed.path)
        recording.persistent.update(places_of_written(recording.accesses, self._call))
        needed = estimate_of(self._observed.storages, self._call, self._plan.backend)
        recording.expect(needed)
        recording.note(self._noted)
        return recording

    def _begin(self, after: Snapshot, watch: GradientWatch) -> Recording:
        """The first call that found this state."""
        accesses, parameters = Accesses(), parameters_of(self._call)
        state = reachable(self._before_it_kept(after), parameters, watch)
        apart = self._plan.renamed
        guesses = self._key.choice.guesses
        bound = bind(accesses, self._call, self._observed, state, guesses, apart, self._site)
        concerned, _ = self._note_accesses(accesses, watch)
        guard = StateGuard.of(after, accesses, parameters, watch, concerned=concerned)
        recording = Recording(self._plan.root, guard, accesses, bound, apart=apart)
        recording.identify(self._call.leaves)
        self._keep_found(recording, watch)
        return recording

    def _keep_found(self, recording: Recording, watch: GradientWatch) -> None:
        """Gradients that calls read and replace lie elsewhere in each; those of the next come here."""
        if not self._key.recordings:  # nothing says so yet
            return
        replaced = {id(each.parameter()) for each in self._effects if each.static is not None}
        read = recording.accesses.externals
        found = [
            (parameter, gradient)
            for _, parameter, gradient in watch.gradients()
            if id(parameter) in replaced
            and gradient.untyped_storage()._cdata in read
            and not any([other.found.has(gradient) for other in self._key.recordings])
        ]
        recording.found.keep(found)
        for other in self._key.recordings if found else ():
            if not other.recorded:
                other.found.keep(())

    def _note_accesses(self, accesses: Accesses, watch: GradientWatch) -> tuple[bool, bool]:
        """Note what the call touches.

        Returns:
            Whether it reads or replaces gradient slots, and whether it looked at anything new.
        """
        observed = self._observed
        storages, use = observed.storages, observed.use
        storages.note_readers("the result", self._site)
        for number, tensor in enumerate(storages.externals):
            written = number in observed.writes.externals
            if number not in storages.host_memory and not tensor.is_meta:
                accesses.note_external(tensor, storages.external_sites[number][1], written=written)
            elif written and self._plan.capture is not None:
                accesses.written_arrays[tensor.data_ptr()] = tensor
        accesses.sharded.update(observed.sharded.written())
        accesses.apart.update(observed.writes.apart)
        accesses.note_rebound(observed.rebound)
        accesses.generators.update(observed.generators.outside)
        accesses.arrays.update(observed.arrays)
        more = len(accesses.filled)
        if self._plan.numbers is not None:
            accesses.filled.update(self._plan.numbers.filled)
        accesses.written.update(observed.writes.inputs)
        accesses.borrowed.update(self._call.key.borrowed)
        for (origin, number), site in observed.writes.sites.items():
            handle = storages.externals[number].untyped_storage()._cdata if origin == EXTERNAL else number
            accesses.sites.setdefault((origin, handle), site)
        walks = isinstance(self._key.function, GradientWalk)  # behind a walk autograd itself calls hooks
        passes = accesses.asked.note_slots(use.slots, {} if walks else use.passed)
        externals = accesses.externals
        concerned = bool(self._effects) or bool(accesses.asked.slots) or watch.is_read(storages, externals)
        looked, flags = use.looked_outside(storages), use.flags or use.engine is not None
        looks = accesses.asked.note_looks(looked, set(externals), flags=flags)
        return concerned, looks or passes or len(accesses.filled) > more

    def _before_it_kept(self, after: Snapshot) -> dict[int, torch.Tensor]:
        """The tensors of the state by storage handle, without those that the call itself has put there."""
        return {
            handle: tensor
            for handle, entries in after.tensors.items()
            for entry, tensor in entries
            if not self._has_put(entry)
        }

    def _has_put(self, entry: Entry | Slot) -> bool:
        """Whether the call binds a slot, or a container in which it is."""
        slot = (entry.kind, id(entry.container), entry.key)
        return slot in self._slots or id(entry.container) in self._made

    def _unsteady(self, value: Any, found: list[Reason]) -> Answer:
        self._discard()
        recordings = self._key.recordings
        if self._recording is not None and self._recording in recordings:
            recordings.remove(self._recording)
        self._key.differ()
        if any(why.code == rules.WRONG_BACKEND.code for why in found):
            devices = self._observed.devices
            self._key.move(next((found for found in devices if found.type == "cuda"), _HOST))
        wrapped = [why for why in found if why.code == rules.WRAPPED.code]
        if wrapped and self._key.calls > 1:  # by then it is initialised, and does the same in every call
            self._key.give_up(LifeEvent.LIMIT, wrapped[0])
        return Answer(value, EAGER, found)

    def _differed(self, recording: Recording, value: Any, found: list[Reason]) -> Answer:
        """The tree now holds what this call did; it counts as seen once."""
        self._discard()
        recording.know(None)
        for node in self._observed.nodes:
            node.seen = 1
        self._note_end(self._observed.template.bare())
        self._key.differ()
        return Answer(value, EAGER, found if not self._plan.at_length else [])

    def _capture_failed(self, value: Any, why: Reason) -> Answer:
        self._discard()
        self._key.give_up(LifeEvent.CAPTURE_FAILED, why)
        return Answer(value, EAGER, [why])

    def _agreed(self, recording: Recording, value: Any, guards: list[Reason]) -> Answer:
        key, plan, observed = self._key, self._plan, self._observed
        recording.know(self._what_is_known())
        for node in observed.nodes:
            node.seen += 1
        if plan.capture is None and key.earlier.compare(recording):
            for node in observed.nodes:  # an earlier process has seen as many
                node.seen = max(node.seen, key.limits.warmup)
        self._note_end(observed.template.prepared() if self._node.recorded else observed.template.bare())
        if observed.unseen is not None:
            guards = [*guards, observed.unseen.reason()]
        if self._is_idle:
            return Answer(value, EAGER, [key.end_idle(self._site)])
        settled = self._settle_session(recording)
        if self._refused is not None:
            return self._capture_failed(value, self._refused)
        if not settled:
            if key.life.state is State.OBSERVING and plan.root.seen >= plan.warmup:
                key.life.happen(LifeEvent.AGREED)
            result = Answer(value, EAGER, guards, recording)
        else:
            if key.life.state is State.OBSERVING:
                key.life.happen(LifeEvent.AGREED)
            key.life.happen(LifeEvent.RECORDED)
            if self._computation is not None:
                key.changing.succeed()
            recording.know(None)  # replays need it no more, and it holds what was read
            recording.written_out.update(dict.fromkeys(self._noted.output))
            if recording.gradients.copies:
                for effect in self._node.effects:
                    effect.hand_out(copy=True)
            result = Answer(value, RECORDED, guards, recording)
        surplus = drop_surplus(key, recording, self._site)
        in_vain = observed.unseen.in_vain() if observed.unseen is not None else next(iter(surplus), None)
        result = replace(result, reasons=[*result.reasons, *surplus], in_vain=in_vain)
        why = settle(recording, self._site) if result.how == RECORDED else None
        if why is not None:  # a limit does not hold even with all others evicted
            key.give_up(LifeEvent.LIMIT, why)
            return Answer(value, EAGER, [why])
        crowd = crowded(recording, key.limits, self._site)
        if crowd is not None:
            self._start_anew(recording, crowd)
            result = replace(result, reasons=[*result.reasons, crowd])
        return result

    def _start_anew(self, recording: Recording, crowd: Reason) -> None:
        """The recording has too many ways: what comes next is observed as if for the first time."""
        key = self._key
        if key.limits.keep:
            key.give_up(LifeEvent.LIMIT, crowd)
        elif recording in key.recordings:
            key.subject.ledger.add_dropped(recording.root.paths())
            key.choice.drop(recording)
            key.differ()

    @property
    def _is_idle(self) -> bool:
        """Whether the call does next to nothing but take from what it carries, whose length is in the key."""
        call = self._call
        if not call.carried or self._plan.capture is not None or self._key.limits.keep:
            return False
        found = sum(map(_leaves_in, call.spec.children[2:] if call.spec is not None else ()))
        if sum([len(leaves_of(place.now())) for place in call.carried]) >= found:
            return False
        ran = [each for node in self._observed.nodes for each in node.operations if each.kind != VIEWED]
        return len(ran) < MANY_OPERATIONS

    def _settle_session(self, recording: Recording) -> bool:
        """Keep what was captured; whether anything was."""
        capture = self._plan.capture
        if capture is None:
            return False
        memory = recording.memory
        if not self._observed.recorded or memory is None:
            capture.session.release()
            self._let_go(capture.session)
            return False
        self._refused = keep(memory.holding, capture.session, capture.make_room, self._site)
        if self._refused is not None:
            return False
        for effect in self._node.effects:
            effect.count_owners()
        if self._node.effects and len(self._observed.nodes) > 1 and not self._observed.left:
            recording.gradients.copy_from_now()
        recording.gradients.add(self._node.effects)
        accesses = recording.accesses
        recording.describe(describe_inputs(self._call, memory.inputs.spots, accesses.written, accesses.sites))
        return True

    def _note_end(self, template: Template) -> None:
        if not self._is_check or self._node.template is None:  # it has what is computed as numbers
            self._node.template = template
        self._node.effects_key = self._effects_key or None
        self._node.effects = self._effects if self._node.recorded else []
        self._node.backward = self._backward if self._node.recorded else None

    def _discard(self) -> None:
        """Nothing of this call's recording is kept; recorded results were copied already."""
        for node in self._observed.recorded:
            node.unrecord()
        if self._backward is not None:  # no node has it yet
            self._backward.release("its forward was not recorded after all")
        session = self._plan.session
        if session is not None:
            session.release()
        if self._recording is not None:
            self._recording.release()
        if session is not None:
            self._let_go(session)

    def _let_go(self, session: Session) -> None:
        """What the call has left outside lives on without a recording."""
        session.let_go(self._observed.storages.alive().values())


def _leaves_in(spec: Spec) -> int:
    return 1 if spec is None else sum(map(_leaves_in, spec.children))


def crowded(recording: Recording, limits: Limits, site: Site) -> Reason | None:
    """Whether a recording has more ways than it may have, and where."""
    paths = recording.root.paths()
    if paths <= limits.max_paths:
        return None
    widest = max(recording.root.walk(), key=lambda node: len(node.edges))
    where = widest.operations[-1].site if widest.operations else site
    return widest.excess or reason(rules.TOO_MANY_PATHS, f"{paths} ways were seen", where)


def drop_surplus(key: Specialization, recording: Recording, site: Site) -> list[Reason]:
    """Drop recordings that can never be valid again, and the oldest where there are too many; returns why."""
    for old in [other for other in key.recordings if other.gone and other is not recording]:
        key.choice.drop(old)
    most = key.limits.max_recordings
    surplus = [other for other in key.recordings if other.recorded][most:]
    for old in surplus:
        key.choice.drop(old)
    if not surplus:
        return []
    text, last = f"the oldest of more than {most} recordings was dropped", key.last_mismatch
    if last is None:
        return [reason(rules.TOO_MANY_RECORDINGS, text, site)]
    why = reason(rules.TOO_MANY_RECORDINGS, f"{text}; the last time {last.message}", site)
    if last.code in (rules.HYPERPARAMETER.code, rules.GRADIENT_MOVED.code):
        why = replace(why, where=last.where, remedy=last.remedy)
    return [why]
