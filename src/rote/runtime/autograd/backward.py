"""Backward of a recorded call: the recorded graph is kept, and walking it is itself a callable that replays.

The results of a graphed call hang in the caller's autograd graph by one node (:class:`Recorded`) whose
parents are the arguments and parameters that gradients go to; ``docs/design.md`` says how it is walked. Until
a key of the walk is recorded, after its recording was dropped, or inside somebody's trace, the walk runs as
plain autograd.

Each result *claims* that memory. The claim ends when autograd frees the node's saved tensors (a backward
without ``retain_graph``) or when the node dies. Until then :meth:`~..engine.choice.Choice.find` skips the
recording.

A gradient that is to be differentiated itself (``create_graph=True``) is computed by making the call again;
see :mod:`.again`.

A graph keeps the numbers that its operations were given. One that changes from call to call is written there
by each replay, where the node has a tensor of it (a factor, a divisor). To a walk it is an argument.

A walk is never dropped alone. A contest times it as a part of the call that it comes back through, and drops
both where they lose together (:mod:`..recording.contest`).

What does not work: ``create_graph=True`` for a call that draws random numbers or writes tensors; it raises.
A backward through several calls adds the calls' gradients one by one, where eager may add in another order.
"""

from __future__ import annotations

import weakref
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from ...base import MisuseError, NotReplayedError, user_site
from ...hazards import findings_of, rules
from ...hazards.rules import Reason, Rule, reason
from ..arguments import NOT_MINE, Call, Openings, SlotsBefore, Spec, Target, bind
from ..backends import PROCESS
from ..fingerprint import WatchedWords, watch
from ..memory import Holding
from ..program import EAGER, PLAINLY, BackwardLog, Result, apply_of, with_own_node, without_view
from ..pytorch import foreign_modes, is_kept_out, is_wrapped
from ..reads.trace import Output
from .again import Repeatable
from .graph import GradientWalk, Order, Parted, Probe, ResultGroup, SeenNode, Tracked, added
from .saved import Saved, modified
from .walker import Occupancy, Owner, Walker

MAX_KEYS = 16
"""Kinds of backward (which gradients there are and which are needed) of one recording that are recorded."""


REMEDY = "Nothing has to be done once calls replay; keep the recording (reset(), budgets) until its backward."
OUTSIDE = "Call backward() outside of it."
SINGLY = "Nothing has to be done; gradients that come one after the other are replayed."


class Backward:
    """The graph of one recorded path, and the recordings of walking it.

    Args:
        arguments: Numbers of the argument leaves that gradients go to; these come first among the targets.
        tracked: The results that require grad.
        saved: What the graph saved, besides what the path made.
        occupancy: Of the recording's memory.
        owner: The key of the forward, weakly.
        spoiled: A saved tensor that the call itself modified afterwards, and the version that was saved.
        order: Which results are computed from which.
        groups: The results that are freed together.
        outline: The structure of what the call returns.
        repeats: The call may be made again without changing anything but slots that it binds.
        binds: It binds some.

    Attributes:
        asked: Somebody has asked for gradients.
    """

    def __init__(
        self,
        walk: GradientWalk,
        arguments: list[int],
        tracked: list[Tracked],
        saved: Saved,
        occupancy: Occupancy,
        owner: weakref.ref[Owner],
        log: BackwardLog,
        spoiled: tuple[torch.Tensor, int] | None,
        order: Order,
        groups: list[ResultGroup],
        outline: Spec,
        *,
        repeats: bool = False,
        binds: bool = False,
    ) -> None:
        self._walk = walk
        self._arguments = arguments
        self._tracked = tracked
        self._saved = saved
        self._occupancy = occupancy
        self._owner = owner
        self._log = log
        self._spoiled = spoiled
        self._repeats = repeats
        self._order = order
        self._groups = groups
        # the slots that are put back when the call is made again, and the structure of what it leaves
        self._bindings: tuple[Sequence[Target], Spec] | None = None if binds else ((), outline)
        self._probe = Probe() if order.sources else None
        self._openings = Openings()  # of the arguments of walks
        self.asked = False
        self._walkers: dict[Any, Walker] = {}
        self._newest: Walker | None = None
        self._released: str | None = None
        self._looked = False
        self._watched: WatchedWords | None = None

    # ------------------------------------------------------------------ forward

    def attach(self, call: Call, copies: dict[int, torch.Tensor]) -> None:
        """Hang a call's results, by position, into the caller's autograd graph: those are replaced."""
        leaves = call.leaves
        for number in self._walk.numbers:
            number.write()
        values = [copies[each.position] for each in self._tracked]
        sources = [*(leaves[index] for index in self._arguments), *self._walk.parameters]
        given = [_note(leaves[index]) for index in self._saved.arguments]
        versions = self._versions()
        whole: Any = self._occupancy.take() if any([group.keeps for group in self._groups]) else None
        owner = self._owner() if self._repeats else None
        repeatable = Repeatable.of(owner, call) if owner is not None else None
        handed: list[Any] = [None] * len(values)
        with nullcontext() if torch.is_grad_enabled() else torch.enable_grad():  # the callable enables it
            for group in self._groups:
                token: Any = torch.empty(0, device="cpu")
                # On the token, so that autograd lets go of the arguments when it frees the graph.
                token.whole, token.repeatable = whole if group.keeps else None, repeatable
                parted = Parted(self._probe) if self._probe is not None else None
                claim = Claim(self, versions, given, group, parted)
                self._hand(claim, token, values, sources, handed)
        for each, tensor in zip(self._tracked, handed, strict=True):
            copies[each.position] = tensor
        given.extend([_note(handed[number]) for number in self._saved.results])

    def _hand(
        self,
        claim: Claim,
        token: torch.Tensor,
        values: list[torch.Tensor],
        sources: list[torch.Tensor],
        handed: list[Any],
    ) -> None:
        """Give the results of one group their nodes, those first that others are computed from."""
        numbers, places = claim.group.results, claim.group.targets
        order, parted = self._order, claim.parted
        mine = sources if len(places) == len(sources) else [sources[place] for place in places]
        made = _apply(claim, token, [values[number] for number in numbers], *mine)
        for number, tensor in sorted(zip(numbers, made, strict=True), key=lambda pair: order.depths[pair[0]]):
            others = [handed[each] for each in order.direct[number]]
            if others and parted is not None:
                tensor = _linked(claim, parted, number, token, parted.probe.tensor, tensor, *others)
            elif len(numbers) > 1:  # hooks on one are not called in a walk back from another
                tensor = with_own_node(tensor)
            handed[number] = tensor
            if parted is not None and number in order.sources:
                parted.seen[number] = SeenNode(tensor)

    # ------------------------------------------------------------------ backward

    def gradients(
        self, claim: Claim, again: Repeatable | None, gradients: tuple[Any, ...], needed: tuple[bool, ...]
    ) -> tuple[Any, ...]:
        """The gradients of arguments and parameters, for all results and targets of a group.

        Args:
            gradients: Of the results, None where there is none.
            needed: For each target, whether its gradient is needed.

        Raises:
            MisuseError: A gradient of the gradient is asked for, and the call cannot be made again.
            NotReplayedError: A parameter was rebound to other memory after the forward; in strict mode also
                if the walk would not be replayed.
            RuntimeError: What the graph saved was modified in place after the forward, as in eager.
        """
        self.asked = True
        self._check(claim)
        group = claim.group
        gradients = _spread(gradients, group.results, len(self._tracked), None)
        needed = _spread(needed, group.targets, self._walk.targets, False)
        found = self._found(again, gradients, needed)
        past = claim.parted.take() if claim.parted is not None else ()
        if past:
            found = tuple(map(added, past, found))
        return found if len(group.targets) == len(found) else tuple([found[place] for place in group.targets])

    def _found(
        self, again: Repeatable | None, gradients: tuple[Any, ...], needed: tuple[bool, ...]
    ) -> tuple[Any, ...]:
        if all([gradient is None for gradient in gradients]):
            return (None,) * len(needed)
        if torch.is_grad_enabled():
            return self._differentiable(again, gradients, needed)
        every = (1 << len(needed)) - 1
        bits = every if all(needed) else sum(1 << number for number, need in enumerate(needed) if need)
        newest = self._newest if not is_kept_out() else None
        numbers = tuple([each.number.value for each in self._walk.numbers])
        value = newest.answer((bits, numbers, *gradients)) if newest is not None else NOT_MINE
        if value is not NOT_MINE:
            return self._walk.unpack(value, bits, gradients)
        with self._watching():
            result = self._walked(bits, numbers, gradients)
            if result.value is PLAINLY:
                found = self._walk.plainly(bits, *gradients)
            else:
                found = self._walk.unpack(result.value, bits, gradients)
        ended = self._occupancy.ended
        self._log.add(result if ended is None else replace(result, reasons=[ended]))
        return found

    def parted(
        self, claim: Claim, parted: Parted, again: Repeatable | None, number: int, gradient: torch.Tensor
    ) -> Sequence[torch.Tensor | None] | None:
        """The gradients of the results that one is computed from; None where nobody could see them.

        It raises what :meth:`gradients` raises.
        """
        seen = [parted.seen[each] for each in self._order.behind(number)]
        if not parted.probe.asked_for_some() and not any([each.is_watched for each in seen]):
            return None
        self.asked = True
        self._check(claim)
        ends = self._order.direct[number]
        if torch.is_grad_enabled():
            gradients = _spread((gradient,), (number,), len(self._tracked), None)
            made = self._differentiable(again, gradients, (True,) * self._walk.targets, ends)
            parts, past = made[: len(ends)], made[len(ends) :]
        else:
            with self._watching():
                parts, past = self._walk.parted(number, gradient, ends)
        parted.put(past)
        return parts

    @contextmanager
    def _watching(self) -> Generator[None]:
        """Around a walk that may run Python code: the recording ends if that changes its contexts."""
        contexts = self._walk.contexts
        if not contexts or self._occupancy.ended is not None:
            yield
            return
        before = contexts.look()
        try:
            yield
        finally:
            self._occupancy.ended = contexts.changed_since(before, self._reaches, user_site())

    def _reaches(self, container: Any) -> bool:
        owner = self._owner()
        return owner is not None and owner.reaches(container)

    def _walked(self, bits: int, numbers: tuple[Any, ...], gradients: tuple[Any, ...]) -> Result:
        """Walk by a recording where there is one; plainly inside of somebody's trace."""
        if self._released is not None:
            return _plainly(rules.NOT_YET, self._released, REMEDY)
        if not self._log.graphs:
            return _plainly(rules.KEPT_OUT, "backward=False")
        if is_kept_out():
            return _plainly(rules.KEPT_OUT, "it was started within rote.no_graphs()")
        if foreign_modes():
            return _plainly(rules.NOT_YET, "a mode or a transform is in force around it", OUTSIDE)
        if any([gradient is not None and is_wrapped(gradient) for gradient in gradients]):
            return _plainly(rules.NOT_YET, "its gradients came in a batch (is_grads_batched=True)", SINGLY)
        openings = self._openings if numbers else None
        call = bind((bits, numbers, *gradients), {}, openings)
        if openings is not None and openings.vary(call.spec, range(1, 1 + len(numbers))):
            call = bind((bits, numbers, *gradients), {}, openings)
        if call.foreign is not None:
            return _plainly(rules.UNSUPPORTED_TENSOR, f"a gradient is {call.foreign}")
        walker = self._walker(call)
        if walker is None:
            text = f"gradients of more than {MAX_KEYS} kinds were asked for (of which results, for what)"
            return _plainly(rules.TOO_MANY_KEYS, text)
        backend = PROCESS.of(self._walk.results[0].device)
        if not PROCESS.take(backend.lock):
            return _plainly(rules.NOT_YET, "another thread runs a callable that is being traced")
        try:
            made = walker.make(call)
            self._newest = walker
        finally:
            backend.lock.release()
        if made.how == EAGER and not made.reasons and len(self._walkers) > 1:
            text = "a backward pass had gradients of other results, for other tensors, or of other strides"
            return replace(made, reasons=[reason(rules.NOT_YET, text, user_site())])
        return made

    def _walker(self, call: Call) -> Walker | None:
        known = self._walkers.get(call.key)
        if known is not None and not known.dead:
            return known
        owner = self._owner()
        if owner is None or (known is None and len(self._walkers) >= MAX_KEYS):
            return None
        if known is not None:
            known.release()
        made = self._walkers[call.key] = owner.open_walk(self._walk, call)
        return made

    def _check(self, claim: Claim) -> None:
        """What the walk reads must be what the forward read."""
        if self._spoiled is not None:
            raise modified(*self._spoiled)
        for reference, version in claim.given:
            given = reference()
            if given is not None and given._version != version:
                raise modified(given, version)
        if self._versions() == claim.versions and self._watched is not None and self._watched.same():
            return
        self._check_reads(claim)
        if not self._looked:  # once: where that fails, it would fail again
            self._looked = True
            tensors = [tensor for read in self._saved.reads if (tensor := read.tensor()) is not None]
            self._watched = watch(tensors) if len(tensors) == len(self._saved.reads) else None

    def _versions(self) -> list[int]:
        return [read.alias._version for read in self._saved.reads]

    def _check_reads(self, claim: Claim) -> None:
        for read, version in zip(self._saved.reads, claim.versions, strict=True):
            tensor, alias = read.tensor(), read.alias
            if alias._version != version:
                raise modified(alias, version)
            if tensor is not None and tensor.untyped_storage()._cdata != alias.untyped_storage()._cdata:
                what = f"a {list(alias.shape)} tensor that the graphed call read was rebound to other memory"
                why = reason(rules.TENSOR_MOVED, f"{what} before its backward", user_site())
                remedy = "Rebind after backward(), or copy in place."
                text = f"{what} (tensor.data = ...) before its backward. {remedy}"
                raise NotReplayedError(text, findings_of([replace(why, remedy=remedy)]))

    def _differentiable(
        self,
        again: Repeatable | None,
        gradients: tuple[Any, ...],
        needed: tuple[bool, ...],
        ends: tuple[int, ...] = (),
    ) -> tuple[Any, ...]:
        """Gradients with a history of their own: the call is made again, and later ones run eagerly."""
        text = "create_graph=True was asked of a result that came from a recording"
        why = reason(rules.SECOND_ORDER, text, user_site())
        if self._bindings is None and (owner := self._owner()) is not None:
            self._bindings = owner.bindings_of(self)  # before its recordings are given up
        self._give_up(why)
        function = again.function() if again is not None else None
        if again is None or function is None or self._bindings is None:
            raise MisuseError(f"{why} (The next calls run eagerly.)")
        leaves = again.call.leaves
        sources = [*(leaves[index] for index in self._arguments), *self._walk.parameters]
        wanted = [source for source, need in zip(sources, needed, strict=True) if need]
        targets, outline = self._bindings
        before = SlotsBefore(targets)
        made = again.gradients(
            function, before, outline, self._tracked, gradients, wanted, self._walk.results, ends
        )
        if made is None:
            raise MisuseError(f"{why} What the call reads was changed before its backward.")
        found = iter(made[len(ends) :])
        return (*made[: len(ends)], *[next(found) if need else None for need in needed])

    def _give_up(self, why: Reason) -> None:
        owner, lock = self._owner(), PROCESS.of(self._walk.results[0].device).lock
        if owner is not None and not foreign_modes() and PROCESS.take(lock):
            try:
                owner.refuse(why)
            finally:
                lock.release()

    # ------------------------------------------------------------------ memory

    def holdings(self) -> list[Holding]:
        """The memory of the recordings of the walk."""
        return [holding for walker in self._walkers.values() for holding in walker.holdings()]

    def output(self) -> list[Output]:
        """What recorded walks wrote to the standard streams."""
        return [each for walker in self._walkers.values() for each in walker.output()]

    def release(self, why: str = "the recording of its forward was given back before") -> None:
        """Drop the recordings of the walk; backward passes that come later run plainly, for this reason.

        Results that wait for their backward keep the graph alive.
        """
        self._released, self._newest = why, None
        for walker in self._walkers.values():
            walker.release()
        self._walkers.clear()


class Claim(NamedTuple):
    """What the results of one group need for their backward.

    Attributes:
        versions: Of the tensors made outside, when the forward had run.
        given: The caller's arguments and results that eager would have saved, with their versions.
        parted: What results that others are computed from need, if there are such.
    """

    backward: Backward
    versions: list[int]
    given: list[tuple[weakref.ref[torch.Tensor], int]]
    group: ResultGroup
    parted: Parted | None


def _spread(values: Sequence[Any], numbers: Sequence[int], length: int, missing: Any) -> tuple[Any, ...]:
    """Values of some, as those of all."""
    if len(values) == length:
        return tuple(values)
    found = [missing] * length
    for number, value in zip(numbers, values, strict=True):
        found[number] = value
    return tuple(found)


def _plainly(rule: Rule, text: str, remedy: str = "") -> Result:
    """The result of a backward pass that runs as plain autograd."""
    return Result(PLAINLY, EAGER, [reason(rule, f"a backward pass ran plainly: {text}", user_site(), remedy)])


def _note(tensor: torch.Tensor) -> tuple[weakref.ref[torch.Tensor], int]:
    return weakref.ref(tensor), tensor._version


class Recorded(torch.autograd.Function):
    """The node by which the results of one replay hang in the caller's graph."""

    @staticmethod
    def forward(
        ctx: Any, claim: Claim, token: torch.Tensor, values: list[torch.Tensor], *sources: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Give the results the node."""
        ctx.set_materialize_grads(False)
        if claim.group.keeps:
            ctx.save_for_backward(token)
        else:
            ctx.token = token
        ctx.claim = claim
        return tuple(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Walk the recorded graph."""
        claim: Claim = ctx.claim
        # The former raises, in eager's words, if the graph was freed.
        token = ctx.saved_tensors[0] if claim.group.keeps else ctx.token
        found = claim.backward.gradients(claim, token.repeatable, gradients, ctx.needs_input_grad[3:])
        return (None, None, None, *found)


_apply = apply_of(Recorded)


class Linked(torch.autograd.Function):
    """The node of a result that is computed from others."""

    @staticmethod
    def forward(
        ctx: Any,
        claim: Claim,
        parted: Parted,
        number: int,
        token: torch.Tensor,
        probe: torch.Tensor,
        value: torch.Tensor,
        *others: torch.Tensor,
    ) -> torch.Tensor:
        """Give the result the node."""
        ctx.set_materialize_grads(False)
        if claim.group.keeps:
            ctx.save_for_backward(token)
        else:
            ctx.token = token
        ctx.claim, ctx.parted, ctx.number, ctx.others = claim, parted, number, len(others)
        return without_view(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Hand the gradient on, or end at the other results."""
        claim: Claim = ctx.claim
        token = ctx.saved_tensors[0] if claim.group.keeps else ctx.token
        (gradient,) = gradients
        parts = None
        if gradient is not None:
            parts = claim.backward.parted(claim, ctx.parted, token.repeatable, ctx.number, gradient)
        if parts is None:
            return (*[None] * 5, gradient, *[None] * ctx.others)
        return (*[None] * 6, *parts)


_linked = apply_of(Linked)
