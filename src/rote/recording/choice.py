"""Which of a key's variants answers a call, and what to do if only the arguments lie elsewhere.

A variant answers a call if its state is the present one and the arguments lie where it needs them. One that
uses arguments in place is asked before one that copies them. What the key knows about places
(:class:`~rote.recording.placement.Guesses`) decides what the next recording uses in place.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch

from ..base.location import Site
from ..hazards import rules
from ..hazards.rules import Reason, reason
from ..signature.abandoned import abandoned
from ..signature.compat import plain_functions
from ..signature.key import Call
from ..signature.reach import tensors_by_memory
from .ledger import EXTERNAL
from .placement import (
    BUFFER,
    PLACES,
    Guesses,
    Seen,
    Spot,
    group_members,
    moved_reasons,
    shared_groups,
    sharing_reasons,
)
from .result import Limits
from .run import Outcome, parameters_of
from .variant import Variant


class Choice:
    """Chooses among the variants of one key.

    Args:
        variants: The key's list; the order is that of last use.
        limits: Bounds.
    """

    def __init__(self, variants: list[Variant], limits: Limits) -> None:
        self.guesses = Guesses(limits.guess)
        self._variants = variants
        self._max_recordings = limits.max_recordings

    def find(self, call: Call) -> Variant | None:
        """The variant that answers a call, moved to the front."""
        for holds in (Variant.holds, Variant.moves):
            for in_place in (True, False):
                for position, variant in enumerate(self._variants):
                    if bool(variant.spots) is not in_place or variant.busy:
                        continue
                    if not (variant.fits(call) and holds(variant)):
                        continue
                    if holds is Variant.holds or variant.fits(call):  # other objects may be arguments
                        if position:
                            self._variants.insert(0, self._variants.pop(position))
                        return variant
        return None

    def elsewhere(self, call: Call, site: Site) -> tuple[Variant | None, list[Reason]]:
        """No variant answers: make one that can be recorded at once if only arguments lie elsewhere.

        Returns:
            The variant, if there is one, and why the call is not replayed. ``RT503`` among the reasons says
            that no recording can answer the call.
        """
        for variant in list(self._variants):
            lost = [spot for spot in variant.spots if not spot.holds(call.leaves)]
            if not lost or (variant.bound and variant.depends_on_sharing) or not variant.holds():
                continue
            self.guesses.miss(call, lost)
            other = variant.sibling([spot for spot in variant.spots if spot not in lost])
            if other.fits(call):
                self._variants.insert(0, other)
                return other, moved_reasons(call, lost, site)
        return None, self._sharing(call, site)

    def against(self, call: Call) -> list[Reason]:
        """Why the recordings whose state is the present one do not answer a call."""
        for variant in self._variants:
            if variant.recorded and not variant.busy and variant.holds():
                lost = [spot for spot in variant.spots if not spot.holds(call.leaves)]
                found = moved_reasons(call, lost, None) or sharing_reasons(call, variant.shared(call), None)
                if found:
                    return found
        pending = sum(variant.busy for variant in self._variants)
        if not pending:
            return [reason(rules.NOT_YET, "no recording for this state yet")]
        text = f"{pending} results of this key are alive and their backward has not run"
        return [reason(rules.BACKWARD_PENDING, text)]

    def _sharing(self, call: Call, site: Site) -> list[Reason]:
        """A recording would answer but for an argument that shares memory with state."""
        for variant in self._variants:
            if variant.recorded and variant.meets(call) and variant.holds():
                return sharing_reasons(call, variant.shared(call), site)
        return []

    def better(self, variant: Variant, call: Call) -> Variant | None:
        """A variant to record for mutated arguments that are copied and keep coming from the same place."""
        inputs, guesses = variant.inputs, self.guesses
        if inputs is None or not inputs.written or not guesses.enabled or guesses.extra >= PLACES:
            return None
        if variant.keeps_graph or sum(other.recorded for other in self._variants) >= self._max_recordings:
            return None
        regular = variant.regulars.note(call, inputs.copied_back(call))
        if not regular:
            return None
        guesses.trust(regular)
        other = variant.sibling(inputs.spots)
        other.persistent.update(regular)
        self._variants.insert(0, other)
        return other

    def spots(self, variant: Variant, call: Call, site: Site) -> tuple[Spot, ...] | Reason:
        """What a recording that is about to be made uses in place.

        Where a result may require grad, the graph needs what it saved until its backward, which the memory of
        arguments does not promise; then all of them are copied.

        Args:
            variant: What is recorded.
            call: The call that is recorded.
            site: The caller's line.

        Returns:
            The spots; or why nothing can be recorded.
        """
        variant.keeps_graph = may_track(variant, call)
        tracked = variant.keeps_graph or (torch.is_grad_enabled() and variant.may_meet_gradients)
        if tracked and variant.bound and variant.depends_on_sharing:
            name = call.names()[variant.bound[0].members[0]]
            text = f"{name} shares memory with a tensor made outside the call, and a result requires grad"
            return reason(rules.ALIASED_MUTATION, text, site)
        if tracked:
            variant.bound = ()
            return ()
        return self.guesses.spots(call, variant.bound, variant.written, variant.persistent)

    def forget_old(self, most: int) -> bool:
        """Forget variants that were only observed, the oldest first; whether there were too many.

        Bound variants are counted apart: a caller may have one for each of its buffers.
        """
        observed = [other for other in self._variants if not other.recorded]
        free = [other for other in observed if not other.bound]
        bound = [other for other in observed if other.bound]
        for old in (*free[most:], *bound[max(most, self._max_recordings) :]):
            self._variants.remove(old)
        return len(free) > most

    def idle(self) -> list[Variant]:
        """The variants that no result needs."""
        return [variant for variant in self._variants if not variant.busy]

    def drop(self, variant: Variant) -> None:
        """Release a variant and forget it."""
        variant.release()
        self._variants.remove(variant)

    def drop_dead(self, variant: Variant) -> None:
        """Before a recording: release others that were made for tensors which have died since."""
        for other in list(self._variants):
            dead = any(spot.seen.storage() is None for spot in other.spots)
            if dead and other is not variant and other.recorded and not other.busy:
                other.release()
                self._variants.remove(other)


def drop_abandoned(choices: Iterable[Choice]) -> None:
    """Release variants whose state cannot come back, since guards alone hold what was replaced in it."""
    others = [(choice, variant) for choice in choices for variant in choice.idle()]
    values, ends = list[Any](), list[int]()
    for _, variant in others:
        guard = variant.guard
        stands = guard is None or guard.holds() or variant.moves()
        values += guard.replaced() if guard is not None and not stands else []
        ends.append(len(values))
    free = abandoned(values) if values else []
    values.clear()
    for (choice, variant), start, end in zip(others, [0, *ends], ends, strict=False):
        if any(free[start:end]):
            choice.drop(variant)


def may_track(variant: Variant, call: Call | None = None) -> bool:
    """Whether a way through the recording, known or not, may have results that require grad."""
    if not torch.is_grad_enabled():
        return any(node.template is not None and node.template.tracked for node in variant.root.walk())
    tensors = [tensor for ref in variant.externals.values() if (tensor := ref()) is not None]
    leaves = call.leaves if call is not None else ()
    arguments = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    with plain_functions():  # to look at a tensor of the user's class is not to use it
        return any(tensor.requires_grad for tensor in (*tensors, *arguments))


def keeps_values(variant: Variant) -> bool:
    """Whether values in the recording's memory outlive the call: gradients, or what a backward needs."""
    return variant.keeps_graph or any(node.effects_key for node in variant.root.walk())


def shares_state(variant: Variant, call: Call, reached: Iterable[Any]) -> bool:
    """Whether an argument that would be copied shares memory with state, as it is now.

    What :meth:`.Variant.fits` knows was true when the guard was made. A tensor that the recording does not
    touch may have been rebound to other memory since (``.data = ...``), which no guard watches; that matters
    where Python is about to run on copies of the arguments.

    Args:
        variant: The recording.
        call: The arguments.
        reached: What the callable can reach besides.
    """
    state = variant.reach(tensors_by_memory(reached), parameters_of(call), variant.watch())
    in_place = {spot.members[0] for spot in variant.spots}
    return any(members[0] not in in_place for members in shared_groups(call, state))


def bind(
    variant: Variant,
    call: Call,
    outcome: Outcome,
    state: dict[int, torch.Tensor],
    guesses: Guesses,
    site: Site,
) -> None:
    """After its first observation: arguments that share memory with state lie there in this variant.

    Args:
        variant: What was observed.
        call: The observed call, on the caller's own tensors.
        outcome: What it did.
        state: The tensors the callable can reach, by storage handle.
        guesses: Unless it writes, whether to use the argument in place is a guess.
        site: The caller's line.
    """
    tracer, bound = outcome.tracer, list[Spot]()
    depends = bool(tracer.written_inputs or tracer.written_externals or len(tracer.nodes) > 1)
    for members in shared_groups(call, state):
        if not depends and (not guesses.enabled or members[0] in guesses.missed):
            continue
        bound.append(Spot.of(members, call.leaves, BUFFER))
        handle = call.leaves[members[0]].untyped_storage()._cdata
        variant.externals[handle] = weakref.ref(state[handle])
        variant.readers[handle] = site
        if members[0] in tracer.written_inputs:
            variant.writes[handle] = variant.externals[handle]
    variant.bound = tuple(bound)


def note_inputs(variant: Variant, call: Call, outcome: Outcome) -> None:
    """Remember where mutated arguments lay, to see whether they come again, and which lines write them."""
    for members in group_members(call):
        leaf: torch.Tensor = call.leaves[members[0]]
        if members[0] in variant.written and not leaf.is_meta:
            variant.persistent[members[0]] = Seen.of(leaf)
    for (origin, number), site in outcome.tracer.write_sites.items():
        external = origin == EXTERNAL
        key = outcome.ledger.externals[number].untyped_storage()._cdata if external else number
        variant.sites.setdefault((origin, key), site)
