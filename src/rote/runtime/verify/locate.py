"""Where a replay began to differ from the plain call: the operation, its line, and the likely cause.

The replay kept none of its intermediate values, so the callable runs again, from the same start:

1. It is observed, and compared with the recording. The first operation that is another one, or has another
   operand, froze something that rote cannot see.
2. If all operations agree, a tensor made outside that the plain call wrote and no operation did was written
   out of sight (by another thread, another library). The first operation that reads it is named.
3. If the observed call gives other values than the plain one, a second plain call tells whether the callable
   repeats its own values at all. If it does, it takes another way under observation.
4. Else the callable is recorded afresh with every operation's result among its outputs, and the first result
   that differs from a plain run is named. If none does, the recording had become stale, or its exact tier,
   which a fresh recording has not, gives other bits.

Each step runs the Python code once more. Tensors, gradients and random generators are put back afterwards;
Python state out of sight (an iterator, a queue) moves on each time. Nothing runs again if Python state under
guard has changed, or if the plain call raised.

What this cannot do is name an operation whose result depends on the place of its memory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import zip_longest
from typing import Any, NamedTuple

import torch

from ...base import Site, traceback_site, user_site
from ...hazards import rules
from ...hazards.rules import Reason, Rule, reason
from ..arguments import Call
from ..autograd.graph import line_that_changes
from ..backends.protocol import Backend
from ..capture import Observation, Plan, TracedCall, Tracer
from ..engine import Specialization
from ..operators import composite_call, facts_of, tensors_of, written_operands
from ..program import REPLAYED, Operation, mode_below, results_of
from ..pytorch import DispatchMode, resolve_lazily
from ..recording import Node, Recording
from ..state import ExecutedCode
from .mismatch import Mismatch, compare_tensors, same_leaves
from .plain import plainly
from .surface import Moment, Surface

_lift = torch.ops.aten.lift_fresh.default


class Witness(DispatchMode):
    """Keeps a copy of each tensor that an operation writes, and the operation's name and line.

    The copies are operations themselves, so a recording made below includes them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, Site]] = []
        self.values: list[torch.Tensor] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        resolve_lazily()
        if not isinstance(func, torch._ops.OpOverload) or func is _lift or _recorder_at_work():
            return func(*args, **kwargs)
        facts = facts_of(func)
        parts = composite_call(func) if torch.is_inference_mode_enabled() else None
        if parts is not None:
            with self:  # as in the tracer: they come back here, one by one
                return parts(*args, **kwargs)
        out = func(*args, **kwargs)
        operands = tensors_of(args, kwargs)
        for tensor in (*written_operands(facts, args, kwargs), *_made(out, operands)):
            if tensor.layout is torch.strided and not tensor.is_meta and tensor.numel():
                self.seen.append((facts.name, user_site()))
                self.values.append(tensor.clone())
        return out


def _recorder_at_work() -> bool:
    """Whether a tracer below works on host data; its operations are no part of the call."""
    below = mode_below()
    return isinstance(below, Tracer) and below.cursor.suspended


def _made(out: Any, operands: list[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Results in memory of their own."""
    known = {tensor.untyped_storage()._cdata for tensor in operands if tensor.layout is torch.strided}
    for part in results_of(out)[1]:
        strided = isinstance(part, torch.Tensor) and part.layout is torch.strided
        if strided and part.untyped_storage()._cdata not in known:
            yield part


class Witnessed:
    """A callable under a witness, and the operation's name and line for each tensor of its last result."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.seen: list[tuple[str, Site]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> list[torch.Tensor]:
        """Call it; returns copies of all that operations wrote, in order."""
        witness = Witness()
        with witness:
            self._function(*args, **kwargs)
        self.seen = witness.seen
        return witness.values


ATTEMPTS = 8
"""Calls after which a fresh recording has to replay."""

Tensors = list[tuple[str, torch.Tensor]]


class Located(NamedTuple):
    """The likely cause, and the first operation that differs, if it is known."""

    why: Reason
    operation: str | None = None

    @property
    def place(self) -> str | None:
        """``file:line`` of the cause."""
        return str(self.why.where) if self.why.where is not None and self.why.where.line else None

    @property
    def text(self) -> str:
        """The text for the error's message."""
        at = f" at {self.place}" if self.place is not None else ""
        first = f"first operation that differs: {self.operation}{at}\n" if self.operation is not None else ""
        return f"{first}likely cause: {self.why}"


class Locator:
    """Looks for the operation.

    The recording has been released; ``exact`` says that an exact tier of it was replayed.
    """

    def __init__(
        self, entry: Specialization, recording: Recording, call: Call, backend: Backend, *, exact: bool
    ) -> None:
        self._exact = exact
        self._function = entry.subject.function
        self._entry = entry
        self._recording = recording
        self._call = call
        self._backend = backend

    def state(self, found: Mismatch) -> Located:
        """The plain call changed Python state that the replay left alone."""
        site = found.site or line_that_changes(found.name, list(self._entry.executed.globals))
        return Located(reason(rules.HIDDEN_STATE, str(found), site))

    def error(self, error: Exception) -> Located:
        """The plain call raised."""
        text = f"{type(error).__name__}: {error}"
        return Located(reason(rules.PLAIN_RAISES, text, traceback_site(error.__traceback__)))

    def locate(self, surface: Surface, before: Moment, plain: Any, written: Tensors, site: Site) -> Located:
        """Run the callable again from its start and compare; afterwards everything is as it was.

        ``before`` is the surface before the call. ``plain`` is the result of the plain call, whose effects
        are in place. ``written`` are tensors that it wrote and the recording does not.
        """
        after, leaves = surface.read(), surface.keep(plain)
        try:
            return self._locate(surface, before, after, leaves, written, site)
        except Exception as failure:  # the difference is reported in any case
            text = f"the operation could not be found ({type(failure).__name__}: {failure})"
            return Located(reason(rules.STALE_RECORDING, text, site))
        finally:
            surface.write(after, on_host=True)

    def _locate(
        self, surface: Surface, before: Moment, after: Moment, leaves: list[Any], written: Tensors, site: Site
    ) -> Located:
        recorded = {id(node): list(node.operations) for node in self._recording.root.walk()}
        surface.write(before, on_host=True)
        outcome = self._observe(site)
        found = self._other_operation(outcome, recorded) or _read_after(outcome, written)
        if found is not None:
            return found
        if _repeats(surface, leaves, after, outcome.value):
            return self._record_afresh(surface, before, site)
        surface.write(before, on_host=True)
        again = self._run_plainly(self._function)
        if _repeats(surface, leaves, after, again):
            return self._unobserved(surface, before, outcome, site)
        return self._unrepeatable(surface, before, site)

    # ------------------------------------------------------------------ the ways to run it again

    def _observe(self, site: Site) -> Observation:
        known = self._recording.accesses.generators.values()
        plan = Plan(self._recording.root, self._entry.limits.warmup, self._backend, generators=known)
        with plainly(self._backend):
            return TracedCall(self._function, self._call, plan, site).run()

    def _run_plainly(self, function: Callable[..., Any]) -> Any:
        args, kwargs = self._call.arguments
        self._call.lay(self._call.given)
        with plainly(self._backend):
            return function(*args, **kwargs)

    # ------------------------------------------------------------------ what they tell

    def _other_operation(self, outcome: Observation, recorded: dict[int, list[Operation]]) -> Located | None:
        """The first operation that is not the recorded one, or another difference from the recording."""
        if outcome.difference is not None:
            frozen = outcome.difference.code == rules.OPERAND_DIFFERS.code
            rule = rules.HIDDEN_VALUE if frozen else rules.HIDDEN_BRANCH
            why = outcome.difference
            return Located(reason(rule, why.message, why.where), _first_other(outcome.nodes, recorded))
        if outcome.blockers:
            why = outcome.blockers[0]
            return Located(reason(rules.HIDDEN_BRANCH, why.message, why.where))
        template = outcome.node.template
        if template is not None and template.key != outcome.template.key:
            return Located(reason(rules.HIDDEN_VALUE, template.difference(outcome.template)))
        return None

    def _unobserved(self, surface: Surface, before: Moment, outcome: Observation, site: Site) -> Located:
        """The callable takes another way without observation: the first operation that only it has."""
        surface.write(before, on_host=True)
        witnessed = Witnessed(self._function)
        self._run_plainly(witnessed)
        observed = {each.name for node in outcome.nodes for each in node.operations}
        other = next((seen for seen in witnessed.seen if seen[0] not in observed), None)
        text = "the callable computes something else when it is observed, as it was for the recording"
        operation, where = other or (None, site)
        return Located(reason(rules.OBSERVER_DIFFERS, text, where), operation)

    def _unrepeatable(self, surface: Surface, before: Moment, site: Site) -> Located:
        """Two plain runs differ: the first operation in which they do."""
        runs: list[list[torch.Tensor]] = []
        witnessed = Witnessed(self._function)
        for _ in range(2):
            surface.write(before, on_host=True)
            runs.append(self._run_plainly(witnessed))
        text = "two plain calls from the same start differ"
        return _first(rules.NOT_REPEATABLE, text, witnessed, *runs) or Located(
            reason(rules.NOT_REPEATABLE, text, site)
        )

    def _record_afresh(self, surface: Surface, before: Moment, site: Site) -> Located:
        """Record the callable with all its intermediate values, and compare those."""
        entry, witnessed = self._entry, Witnessed(self._function)
        limits = replace(entry.limits, warmup=1)
        subject = replace(entry.subject, function=witnessed, limits=limits, executed=ExecutedCode())
        afresh = Specialization(subject, self._call)
        try:
            for _ in range(ATTEMPTS):
                surface.write(before, on_host=True)
                result = afresh.run(self._call, sys._getframe())
                if result.how == REPLAYED:
                    break
            else:
                text = "with its intermediate values the call does not replay"
                why = reason(rules.STALE_RECORDING, f"the operation could not be found: {text}", site)
                return Located(why)
            surface.write(before, on_host=True)
            plain = self._run_plainly(witnessed)
            text = "a fresh recording of it differs from the plain call too"
            found = _first(rules.STALE_RECORDING, text, witnessed, result.value, plain)
        finally:
            afresh.release()
        text = "a fresh recording gives what the plain call gives, so this one had become stale"
        if self._exact:
            text += ', or its exact tier is wrong, which is a bug in rote; numerics="plain" does without'
        return found or Located(reason(rules.STALE_RECORDING, text, site))


def _first_other(nodes: list[Node], recorded: dict[int, list[Operation]]) -> str | None:
    """The first operation that is not the recorded one; those that agree are the same objects."""
    for node in nodes:
        for was, now in zip_longest(recorded.get(id(node), ()), node.operations):
            if was is not now:
                return (now or was).name
    return None


def _read_after(outcome: Observation, written: Tensors) -> Located | None:
    """The first operation that reads a tensor which was written out of sight."""
    for name, tensor in written:
        origin = outcome.storages.origin(tensor)
        text = f"{name} is written by the plain call, but by no operation that can be seen"
        for node in outcome.nodes:
            for operation in node.operations:
                if origin in [token.origin for token in operation.tokens]:
                    return Located(reason(rules.HIDDEN_WRITE, text, operation.site), operation.name)
        return Located(reason(rules.HIDDEN_WRITE, text))
    return None


def _repeats(surface: Surface, leaves: list[Any], after: Moment, again: Any) -> bool:
    """Whether one more run gave what the plain call gave."""
    if not same_leaves(surface.keep(again), leaves):
        return False
    now = surface.read()
    return same_leaves([*now.contents, *now.gradients], [*after.contents, *after.gradients])


def _first(
    rule: Rule, text: str, witnessed: Witnessed, ours: list[torch.Tensor], theirs: list[torch.Tensor]
) -> Located | None:
    """The first operation whose result differs between two runs under a witness."""
    for (operation, site), mine, other in zip(witnessed.seen, ours, theirs, strict=False):
        for found in compare_tensors(f"the result of {operation}", mine, other, 0.0):
            return Located(reason(rule, f"{text}: {found}", site), operation)
    return None
