"""Which of a key's recordings answers a call, and what to do if only the arguments lie elsewhere.

A recording answers a call if its state is the present one and the arguments lie where it needs them. A
recording that uses arguments in place is asked before one that copies them. What the key knows about places
(:class:`~..program.placement.Guesses`) decides what the next recording uses in place.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter
from typing import Any

import torch

from ...base import Site, is_instance
from ...hazards import rules
from ...hazards.rules import Reason, reason
from ..arguments import Call
from ..autograd.graph import can_stand_in
from ..capture import Observation, parameters_of
from ..conditions import abandoned, held_by, is_watched
from ..program import (
    BUFFER,
    PLACES,
    Guesses,
    SeenArgument,
    Spot,
    group_members,
    moved_reasons,
    renamable,
    shared_groups,
    sharing_reasons,
)
from ..pytorch import plain_functions
from ..recording import Accesses, Recording, reachable
from .ledger import Ledger
from .subject import Limits


class Choice:
    """Chooses among the recordings of one key, whose list is in the order of last use."""

    def __init__(
        self, recordings: list[Recording], limits: Limits, staying: frozenset[int] = frozenset()
    ) -> None:
        self.guesses = Guesses(limits.guess, staying)
        self._recordings = recordings
        self._max_recordings = limits.max_recordings

    def find(self, call: Call) -> Recording | None:
        """The recording that answers a call, moved to the front.

        A replay has left gradients where it finds them. Where another one came between, they are moved first.
        """
        found = self._first(call)
        if found is None and any([recording.bring_back_gradients() for recording in self._recordings]):
            found = self._first(call)
        return found

    def _first(self, call: Call) -> Recording | None:
        for holds in (Recording.holds, Recording.moves):
            for in_place in (True, False):
                for position, recording in enumerate(self._recordings):
                    if bool(recording.spots) is not in_place or recording.busy:
                        continue
                    if not (recording.fits(call) and holds(recording) and recording.answers(call)):
                        continue
                    if holds is Recording.holds or recording.fits(call):  # other objects may be arguments
                        if position:
                            self._recordings.insert(0, self._recordings.pop(position))
                        return recording
        return None

    def elsewhere(self, call: Call, site: Site) -> tuple[Recording | None, list[Reason]]:
        """No recording answers: make one that can be recorded at once if only arguments lie elsewhere.

        Returns:
            That recording, if any, and why the call is not replayed. ``RT503`` among the reasons says that no
            recording can answer the call.
        """
        for recording in list(self._recordings):
            lost = [spot for spot in recording.spots if not spot.holds(call.leaves)]
            if not lost or (recording.bound and recording.depends_on_sharing) or not recording.holds():
                continue
            if self._tell_apart(recording, call, lost):
                return None, moved_reasons(call, lost, site)
            if self._stays_together(recording):
                continue
            self.guesses.miss(call, lost)
            other = recording.sibling([spot for spot in recording.spots if spot not in lost])
            if other.fits(call):
                self._recordings.insert(0, other)
                return other, moved_reasons(call, lost, site)
        return None, self._sharing(call, site)

    def _tell_apart(self, recording: Recording, call: Call, spots: Iterable[Spot]) -> bool:
        """Copy the arguments of a recording from now on that are bound to places; whether that is right.

        What it was observed to do with them and with state is one. So it goes, and others come.
        """
        firsts = {spot.members[0] for spot in spots if spot in recording.bound}
        outside = any([recording.guard.has_read(call.leaves[first]) for first in firsts])
        if not firsts or recording.busy or outside or not firsts <= renamable(call):
            return False
        if self.guesses.are_together(firsts):
            return False
        self.guesses.tell_apart(firsts)
        self.drop(recording)
        return True

    def _stays_together(self, recording: Recording) -> bool:
        """Whether a recording that is bound must not become one that copies."""
        firsts = [spot.members[0] for spot in recording.bound]
        together = recording.tells_tensors or self.guesses.are_together(firsts)
        return bool(firsts) and (together or bool(recording.root.edges))

    def against(self, call: Call) -> list[Reason]:
        """Why the recordings whose state is the present one do not answer a call."""
        found = self.moved(call, None)
        if found:
            return found
        return self.pending(None) or [reason(rules.NOT_YET, "no recording for this state yet")]

    def pending(self, site: Site | None) -> list[Reason]:
        """Why recordings cannot answer while results of theirs are alive, if any are."""
        pending = sum(recording.busy for recording in self._recordings)
        text = f"{pending} results of this key are alive and their backward has not run"
        return [reason(rules.BACKWARD_PENDING, text, site)] if pending else []

    def moved(self, call: Call, site: Site | None) -> list[Reason]:
        """The arguments that keep a recording of the present state from answering a call."""
        for recording in self._recordings:
            if recording.recorded and not recording.busy and recording.holds():
                lost = [spot for spot in recording.spots if not spot.holds(call.leaves)]
                found = moved_reasons(call, lost, site)
                found = found or sharing_reasons(call, recording.shared(call), site)
                if found:
                    return found
        return []

    def _sharing(self, call: Call, site: Site) -> list[Reason]:
        """Whether a recording would answer but for an argument that shares memory with state."""
        for recording in self._recordings:
            if recording.recorded and recording.meets(call) and recording.holds():
                return sharing_reasons(call, recording.shared(call), site)
        return []

    def better(self, recording: Recording, call: Call) -> Recording | None:
        """A recording that uses mutated arguments in place, where they keep coming from one place."""
        memory, guesses = recording.memory, self.guesses
        inputs = memory.inputs if memory is not None else None
        if inputs is None or not inputs.written or not guesses.enabled or guesses.extra >= PLACES:
            return None
        if recording.keeps_graph or sum(other.recorded for other in self._recordings) >= self._max_recordings:
            return None
        regular = recording.regulars.note(call, inputs.copied_back(call))
        if not regular:
            return None
        guesses.trust(regular)
        other = recording.sibling(inputs.spots)
        other.persistent.update(regular)
        self._recordings.insert(0, other)
        return other

    def spots(self, recording: Recording, call: Call, site: Site) -> tuple[Spot, ...] | Reason:
        """What a recording that is about to be made uses in place; or why nothing can be recorded.

        Where a result may require grad, the graph needs what it saved until its backward, which the memory of
        arguments does not promise; then all of them are copied.
        """
        recording.track(keeps_graph=may_track(recording, call))
        unseen = bool(recording.root.edges)  # a way still unseen may read a tensor that requires grad
        tracked = recording.keeps_graph or (torch.is_grad_enabled() and unseen)
        if tracked and recording.bound:
            if not recording.depends_on_sharing and self._tell_apart(recording, call, recording.bound):
                text = "an argument that shares memory with state is copied from now on"
                return reason(rules.NOT_YET, text, site)
            depends = recording.depends_on_sharing or self._stays_together(recording)
            if depends and (unseen or leaves_history(recording)):
                name = call.names()[recording.bound[0].members[0]]
                text = f"{name} shares memory with a tensor made outside the call, and a result requires grad"
                return reason(rules.ALIASED_MUTATION, text, site)
            if depends:
                recording.track(keeps_graph=False)  # a training step: its history ends with it
                return recording.bound
        if tracked:
            recording.unbind()
            return ()
        return self.guesses.spots(call, recording.bound, recording.accesses.written, recording.persistent)

    def forget_old(self, most: int) -> None:
        """Forget the oldest of too many recordings that were only observed.

        Bound recordings are counted apart: a caller may have one for each of its buffers.
        """
        observed = [other for other in self._recordings if not other.recorded]
        free = [other for other in observed if not other.bound]
        bound = [other for other in observed if other.bound]
        for old in (*free[most:], *bound[max(most, self._max_recordings) :]):
            self._recordings.remove(old)

    def idle(self) -> list[Recording]:
        """The recordings that no result needs."""
        return [recording for recording in self._recordings if not recording.busy]

    def drop(self, recording: Recording) -> None:
        """Release a recording and forget it."""
        recording.release()
        self._recordings.remove(recording)

    def drop_dead(self, recording: Recording) -> None:
        """Before a recording: release others made for tensors that have died since."""
        for other in list(self._recordings):
            dead = any(spot.seen.storage() is None for spot in other.spots)
            if dead and other is not recording and other.recorded and not other.busy:
                other.release()
                self._recordings.remove(other)


def drop_abandoned(choices: Iterable[Choice], ledger: Ledger) -> None:
    """Release recordings whose state cannot come back, since guards alone hold what was replaced in it.

    Where the ledger does not pay for finding that out, only the guards are asked what they hold.
    """
    others = [(choice, recording) for choice in choices for recording in choice.idle()]
    values, ends = list[Any](), list[int]()
    for _, recording in others:
        stands = recording.guard.python.holds() or recording.moves()
        values += recording.guard.python.replaced() if not stands else []
        ends.append(len(values))
    if not values:
        return
    free = _free(values, [recording for _, recording in others], ledger)
    values.clear()
    for (choice, recording), start, end in zip(others, [0, *ends], ends, strict=False):
        if any(free[start:end]):
            choice.drop(recording)


def _free(values: list[Any], recordings: list[Recording], ledger: Ledger) -> list[bool]:
    """Whether recordings alone hold each of some objects, as far as is known."""
    if not ledger.allows_search:
        # The death of other objects goes unnoticed. Tensors are watched by guards themselves.
        if not any([is_watched(value) and not is_instance(value, torch.Tensor) for value in values]):
            return [False] * len(values)
        guards = [recording.guard.python for recording in recordings]
        users = set[int]().union(*[guard.users() for guard in guards])
        forms = [form for guard in guards for form in guard.forms]
        results = [node.template for recording in recordings for node in recording.root.walk()]
        return held_by([*guards, *forms, *results], values, users)
    began, free = perf_counter(), abandoned(values)
    ledger.add_search(perf_counter() - began)
    return free


def may_track(recording: Recording, call: Call | None = None) -> bool:
    """Whether a way through the recording, known or not, may have results that require grad."""
    if not torch.is_grad_enabled():
        return is_tracked(recording)
    tensors = recording.accesses.alive().values()
    leaves = call.leaves if call is not None else ()
    arguments = [leaf for leaf in leaves if is_instance(leaf, torch.Tensor)]
    with plain_functions():  # to look at a tensor of the user's class is not to use it
        return any(tensor.requires_grad for tensor in (*tensors, *arguments))


def is_tracked(recording: Recording) -> bool:
    """Whether a known way through the recording has results that require grad."""
    return any(node.template is not None and node.template.tracked for node in recording.root.walk())


def stands_in(recording: Recording) -> bool:
    """Whether the recorded graph ends in leaves of its own instead of the parameters.

    Nodes that others hook have to be met. A call whose results require grad runs no backward inside, and a
    walk of its graph ends before those nodes.
    """
    return is_tracked(recording) if is_hooked() else torch.is_grad_enabled() or may_track(recording)


def shares_nodes(recording: Recording) -> bool:
    """Whether gradients are added up inside of the call by nodes of autograd that others may have made.

    A call whose results require grad leaves that to walks of its graph, which end before those nodes.
    Recordings of more than operations are not asked.
    """
    if recording.exceeds_operations or is_tracked(recording):
        return False
    if is_hooked():
        return True
    with plain_functions():  # to look at a tensor of the user's class is not to use it
        outside = recording.accesses.can_be_aliased()
        shared = [each for each in outside if each.requires_grad and each.is_leaf and not can_stand_in(each)]
    return bool(shared) and stands_in(recording)


def is_hooked() -> bool:
    """Whether others may hook the nodes that add up gradients, as in distributed training."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def leaves_history(recording: Recording) -> bool:
    """Whether a known way through the recording leaves a tensor that requires grad, or may."""
    ends = [node.template for node in recording.root.walk() if node.template is not None]
    return bool(recording.binds) or not ends or any([end.tracked for end in ends])


def keeps_values(recording: Recording) -> bool:
    """Whether values in the recording's memory outlive the call: gradients, or what a backward needs."""
    return recording.keeps_graph or any(node.effects_key for node in recording.root.walk())


def shared_with(recording: Recording, call: Call, tensors: dict[int, torch.Tensor]) -> list[int]:
    """The arguments that would be copied and share memory with tensors outside, as these are now.

    Args:
        recording: What is about to run on copies.
        tensors: Tensors outside, by the handle of their storage.
    """
    state = reachable(tensors, parameters_of(call), recording.guard.watch())
    in_place = {spot.members[0] for spot in recording.spots}
    return [members[0] for members in shared_groups(call, state) if members[0] not in in_place]


def bind(
    accesses: Accesses,
    call: Call,
    observed: Observation,
    state: dict[int, torch.Tensor],
    guesses: Guesses,
    apart: frozenset[int],
    site: Site,
) -> tuple[Spot, ...]:
    """The arguments that share memory with state, and have to lie there in a recording of this state.

    Args:
        accesses: What calls of this state touch; the shared tensors are added.
        call: The observed call, on the caller's own tensors.
        observed: What the call did.
        state: The tensors that the callable can reach, by storage handle.
        guesses: Where the call writes nothing, to use an argument in place is a guess.
        apart: The arguments that it has by another storage.
    """
    bound = list[Spot]()
    depends = bool(observed.writes.inputs or observed.writes.externals)
    for members in shared_groups(call, state):
        if members[0] in apart:
            continue
        if not depends and (not guesses.enabled or members[0] in guesses.missed):
            guesses.tell_apart(renamable(call).intersection(members))
            continue
        bound.append(Spot.of(members, call.leaves, BUFFER))
        handle = call.leaves[members[0]].untyped_storage()._cdata
        accesses.note_external(state[handle], site, written=members[0] in observed.writes.inputs)
    return tuple(bound)


def places_of_written(accesses: Accesses, call: Call) -> dict[int, SeenArgument]:
    """Where mutated arguments lay, to see whether they come again there."""
    firsts = [members[0] for members in group_members(call) if members[0] in accesses.written]
    return {first: SeenArgument.of(call.leaves[first]) for first in firsts if not call.leaves[first].is_meta}
