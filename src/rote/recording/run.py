"""One traced call: the callable runs under the tracer until it returns, however often a segment is refused.

The caller's result and side effects are those of one plain call, whatever happens to the recording. An
operation that a capture refuses is remembered and the call starts again, following what had already run. If
the capture fails and nobody can say at which operation, the rest of the call runs eagerly in the same way.
"""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch

from ..backends.aliases import OWNING, Aliases
from ..backends.base import Backend, Session
from ..base.location import Site
from ..hazards import rules
from ..hazards.rules import Reason, reason
from ..reads import Noted, Setting
from ..signature.bound import Bound
from ..signature.compat import plain_functions
from ..signature.key import OPAQUE, PARAMETER, TENSOR, Call
from ..signature.leaves import flatten
from . import blame
from .autograd import newest_age
from .compat import unseen_function_mode
from .counted import Counted
from .cursor import Mode
from .generators import Generators, Stands, unknown_states
from .gradients import GradientWatch
from .higher_order import as_python
from .host_data import HostDataMode, consumed
from .inputs import StaticInputs
from .ledger import Ledger
from .outputs import Own, hand_out, make_template
from .placement import base_offset, group_members
from .room import with_room
from .saved import saving
from .shortage import out_of_memory
from .tape import RestartError, SegmentTape
from .template import INPUT_VIEW, Template
from .tracer import Tracer
from .tracked import GradientUse, gradient_blockers, refused_views
from .tree import Node

MAX_RESTARTS = 64

Taking = Callable[[Call, tuple[Any, ...], dict[str, Any]], None]


def _nobody(call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Nobody asks what the callable is given."""


def _ignore(tensor: torch.Tensor) -> None:
    """Nobody watches gradient slots."""


tracing: ContextVar[bool] = ContextVar("rote_tracing", default=False)
"""Whether a call is being traced in this context; wrappers called inside are plain then."""


@dataclass(frozen=True)
class Known:
    """What a call did, and what another one does that finds all that it read as it was.

    Attributes:
        noted: What it read and wrote.
        end: Where its way through the tree ended: a value that the host reads may lead elsewhere.
    """

    noted: Noted
    end: Node


@dataclass
class Plan:
    """How a traced call is to run.

    Attributes:
        root: The tree of the call's variant.
        follow: Follow a path that has just been replayed.
        path: Values along it.
        aliases: How the recording holds tensors that it did not make.
        warmup: Agreeing observations before a node is recorded.
        backend: The device, once it is known.
        session: The capture, if something may be recorded.
        inputs: Static inputs, if the call runs on them.
        make_room: Frees memory for what is recorded.
        abandon: Gives back what the recording holds, static inputs included.
        watch: The gradient slots before the call, weakly.
        meet: Is told of tensors made outside, before the call changes their gradient slots.
        split: Names of operations that run between segments.
        generators: Random generators that lived outside at earlier calls.
        known: What the call is known to do; then nothing is noted of it.
        has_made: Whether an array that the call has made lies at an address; None if nothing is noted.
        stands: The recording's in the places of those among the arguments.
        settings: Where the call has set random generators; it grows.
    """

    root: Node
    warmup: int
    backend: Backend | None = None
    session: Session | None = None
    inputs: StaticInputs | None = None
    make_room: Callable[[], None] | None = None
    abandon: Callable[[], None] | None = None
    follow: bool = False
    path: list[Any] = field(default_factory=list[Any])
    aliases: Aliases = OWNING
    watch: weakref.ref[GradientWatch] | None = None
    meet: Callable[[torch.Tensor], None] = _ignore
    split: frozenset[str] = frozenset()
    generators: Iterable[torch.Generator] = ()
    known: Known | None = None
    has_made: Callable[[int], bool] | None = None
    stands: Stands | None = None
    settings: Sequence[Setting] = ()


@dataclass
class Outcome:
    """What a traced call did.

    Attributes:
        value: What the callable returned, in the form in which it is taken apart.
        tracer: The tracer of the last attempt.
        template: How the result is handed out.
        blockers: Why nothing of the call can be recorded.
        recorded: Nodes that were recorded.
        failed: Why a capture failed, if it did.
        ledger: The storages of the call.
        use: What the call did with gradients.
        returned: What the callable returned.
    """

    value: Any
    tracer: Tracer
    template: Template
    blockers: list[Reason]
    recorded: list[Node]
    failed: Reason | None
    ledger: Ledger
    use: GradientUse
    returned: Any


class TracedCall:
    """Runs one call of the callable under a plan.

    Args:
        function: The callable.
        call: The call's arguments.
        plan: What to follow, observe and record.
        site: The caller's line, for reasons that have no better one.
    """

    def __init__(self, function: Callable[..., Any], call: Call, plan: Plan, site: Site) -> None:
        self._function = function
        self._call = call
        self._plan = plan
        self._site = site
        self._tape = (
            SegmentTape(plan.backend, plan.session, plan.aliases, plan.make_room)
            if plan.session is not None and plan.backend is not None
            else None
        )
        self._run_on(call.leaves if plan.inputs is None else tuple(plan.inputs.substitute(call.leaves)))
        self._ran: dict[int, torch.Tensor] = {}
        self._failed: Reason | None = None
        self._last: Tracer | None = None
        self._bound: Callable[[Any], Any] = lambda value: value
        self._take: Taking = _nobody
        self._is_shown: Callable[[], bool] = lambda: False

    def _run_on(self, leaves: tuple[Any, ...]) -> None:
        """Give the callable these argument leaves."""
        self._leaves = leaves
        kinds = self._call.kinds
        self._given = {
            id(leaf): leaf.requires_grad for leaf, kind in zip(leaves, kinds, strict=True) if kind == TENSOR
        }

    def run(
        self,
        bound: Callable[[Any], Any] = lambda value: value,
        take: Taking | None = None,
        is_shown: Callable[[], bool] = lambda: False,
    ) -> Outcome:
        """Run until the callable has returned.

        Args:
            bound: Adds to what the callable returned what it has left outside, if that can be done again.
            take: Is told what the callable is given, at each attempt.
            is_shown: Whether text that is made now is for output alone.

        Raises:
            Exception: What the callable raised, unchanged.
        """
        self._bound, self._take, self._is_shown = bound, take or _nobody, is_shown
        try:
            return self._run()
        finally:
            if self._tape is not None:
                self._tape.place = None  # a cycle, which would wait for the collector

    def _run(self) -> Outcome:
        tracer = self._tracer(self._plan.follow, self._plan.path, None)
        for _ in range(MAX_RESTARTS):
            try:
                return self._attempt(tracer)
            except RestartError:
                tracer = self._restart(tracer)
        self._fail(f"more than {MAX_RESTARTS} operations were refused", self._site)
        return self._attempt(self._restart(tracer))

    @property
    def lost(self) -> bool:
        """Whether the callable raised while operations were captured that have not run."""
        return self._tape is not None and self._tape.lost

    def copy_back(self) -> None:
        """The callable raised: what it wrote into static inputs before is given to the caller's tensors."""
        inputs = self._plan.inputs
        if inputs is not None:
            written = self._last.written_inputs if self._last is not None else set[int]()
            inputs.written = written | (inputs.written if self._plan.follow else set())
            inputs.copy_back(self._call.leaves)

    # ------------------------------------------------------------------ attempts

    def _attempt(self, tracer: Tracer) -> Outcome:
        tape = self._tape
        self._last = tracer
        use = GradientUse(newest_age() if torch.is_grad_enabled() else 0, self._plan.meet)
        use.give(self._call.names(), self._leaves)
        host = HostDataMode(tracer, use, self._given, self._is_shown)
        try:
            with self._stream():  # outermost: a segment is closed or thrown away before the stream is left
                try:
                    value = self._call_function(tracer, host, use)
                    if tape is not None:
                        tape.close()
                finally:
                    if tape is not None:
                        tape.abort()
        except RestartError:
            raise
        except BaseException:
            tracer.generators.catch_up()
            self._hand_out_kept(tracer)
            raise
        with plain_functions():  # to look at a tensor of the user's class is not to use it
            return self._finish(tracer, host, use, self._bound(value), value)

    def _hand_out_kept(self, tracer: Tracer) -> None:
        """The callable raised: what it has left outside until then must not lie in the recording's memory."""
        plan, kept = self._plan, self._bound(None)
        if type(kept) is not Bound or not (
            plan.follow or plan.session is not None or plan.inputs is not None
        ):
            return
        template, _ = make_template(kept, tracer.ledger, self._positions(), set(), self._site, self._leaves)
        if any(
            [leaf.tracked or (leaf.kind == INPUT_VIEW and plan.inputs is None) for leaf in template.leaves]
        ):
            return
        starts = plan.inputs.starts(self._call.leaves) if plan.inputs is not None else {}
        hand_out(template, self._call.leaves, starts, branches=self._call.branches, own=Own(None))

    def _positions(self) -> dict[int, int]:
        """Which argument a leaf is, by identity, as far as a result may contain it."""
        return {
            id(leaf): position
            for position, (leaf, kind) in enumerate(zip(self._leaves, self._call.kinds, strict=True))
            if isinstance(leaf, torch.Tensor) or kind is OPAQUE
        }

    def _call_function(self, tracer: Tracer, host: HostDataMode, use: GradientUse) -> Any:
        if self._plan.inputs is None:
            args, kwargs = self._call.given
        else:
            args, kwargs = self._call.rebuild(list(self._leaves))
        self._take(self._call, args, kwargs)
        try:
            with self._surroundings(tracer), self._saving(tracer, use), host, tracer:
                return with_room(self._function, args, kwargs)
        except RestartError:
            raise
        except BaseException as error:
            self._user_error(error)
            raise

    def _user_error(self, error: BaseException) -> None:
        """The callable raised while a segment was open.

        Where captured operations have not run yet, what was captured since the checkpoint is thrown away and
        the rest of the call runs eagerly: if the error is the callable's own it comes again, with the effects
        that eager would have had; if only the capture caused it, the call succeeds and the key stays eager.
        """
        tape, backend = self._tape, self._plan.backend
        if tape is None or not tape.is_open or backend is None:
            return
        if tape.executes:
            tape.close()
        elif isinstance(error, Exception):
            last = self._last.last_captured() if self._last is not None else None
            self._fail(*blame.of_error(error, last))
            raise RestartError(str(error)) from None
        else:  # an interrupt ends the call here, after what came before it
            tape.close()

    def _finish(
        self, tracer: Tracer, host: HostDataMode, use: GradientUse, value: Any, returned: Any
    ) -> Outcome:
        tensors = _tensors(value)
        spent = consumed(host.roots, tensors)
        host.roots.clear()
        template, blockers = make_template(
            value, tracer.ledger, self._positions(), spent, self._site, self._leaves
        )
        blockers += tracer.unwritten.reasons("the caller", tensors, self._site)
        blockers += tracer.changed_arrays() + refused_views(tensors, self._site)
        blockers += tracer.generators.settle()
        blockers += unknown_states(self._plan.settings, tracer.ledger)
        tracer.ledger.note_readers("the result", self._site)
        tracer.complete()
        written = (tracer.written_inputs, tracer.written_externals)
        found = gradient_blockers(
            value, template, self._call, self._leaves, tracer.ledger, written, use, self._site
        )
        blockers += found or use.changes(tracer.ledger, tensors, value, self._site)
        for blocker in blockers:
            tracer.block(blocker)
        node = tracer.node
        node.counted = Counted.of(tracer.counted, tracer.ledger)
        if tracer.mode is Mode.RECORD and self._tape is not None:
            self._tape.end_node(node, None)
        if self._tape is not None and self._tape.shortage is not None and self._failed is None:
            self._failed = out_of_memory(self._tape.shortage, self._site)
        recorded = [found for found in (self._tape.recorded if self._tape else []) if found.recorded]
        return Outcome(
            value, tracer, template, tracer.blockers, recorded, self._failed, tracer.ledger, use, returned
        )

    def _tracer(self, follow: bool, path: list[Any], stop: tuple[Node, int] | None) -> Tracer:
        ledger = Ledger(self._plan.root.looks, self._plan.meet)
        for members in group_members(self._call):
            for group in [[member] for member in members] if self._apart(members) else [members]:
                ledger.add_input(group[0], self._leaves[group[0]], base_offset(self._leaves, group))
        plan = self._plan
        device = plan.backend.device if plan.backend is not None else _device_of(self._call)
        return Tracer(
            plan.root, ledger, device, follow=follow, path=path, stop=stop, tape=self._tape,
            warmup=plan.warmup, watch=plan.watch, split=plan.split,
            generators=Generators(
                plan.generators, self._ran, self._call.generators(),
                plan.stands.by_number if plan.stands is not None else None, plan.settings,
            ),
            has_made=plan.has_made,
        )  # fmt: skip

    def _apart(self, members: list[int]) -> bool:
        """Static inputs of one group that do not share memory (their types differ)."""
        handles = {self._leaves[member].untyped_storage()._cdata for member in members}
        return len(handles) > 1

    def _restart(self, tracer: Tracer) -> Tracer:
        """Follow what has run, then go on: recording, or eagerly once the capture has failed for good."""
        tape = self._tape
        assert tape is not None
        tape.abort()
        if tape.failure is not None and self._failed is None:
            self._fail(*blame.of_segment(tape.failure, tracer.last_captured()))
        if tape.shortage is not None and self._failed is None:
            self._short_of_memory(tape, tape.shortage)
        if self._failed is not None:
            self._tape = None
        point = tape.checkpoint
        if point is None:
            return self._tracer(self._plan.follow, self._plan.path, None)
        point.node.held = point.held
        following = bool(point.depth or point.index)
        if not following:
            tape.start(point.node)
            return self._tracer(False, [], None)
        return self._tracer(True, tracer.path[: point.depth], (point.node, point.index))

    def _short_of_memory(self, tape: SegmentTape, text: str) -> None:
        """The open segment is gone: try again with more room, but once only."""
        if tape.make_room():
            tape.shortage = None
            return
        self._failed = out_of_memory(text, self._site)
        point, plan = tape.checkpoint, self._plan
        if point is not None and not point.depth and not point.index and plan.abandon is not None:
            plan.abandon()  # nothing has run yet: begin anew on the caller's own tensors, as eager would
            plan.inputs = None
            tape.place = None  # a cycle, which would keep the static inputs: collections are off
            self._run_on(self._call.leaves)

    def _fail(self, text: str, site: Site) -> None:
        self._failed = reason(rules.CAPTURE_FAILED, text, site if site.line else self._site)

    # ------------------------------------------------------------------ surroundings

    @contextmanager
    def _surroundings(self, tracer: Tracer) -> Generator[None]:
        with ExitStack() as stack:
            token = tracing.set(True)
            stack.callback(tracing.reset, token)
            stack.enter_context(unseen_function_mode())
            stack.enter_context(as_python(tracer.meet_operator))
            stack.enter_context(tracer.watching_for_compiler())
            # A cast cached by one call would be hidden from the next one. Within a call the cache stays on:
            # gradients of a weight used twice are summed in the type it was cast to.
            torch.clear_autocast_cache()
            stack.callback(torch.clear_autocast_cache)
            yield

    def _saving(self, tracer: Tracer, use: GradientUse) -> Any:
        """On static inputs, keep what the graph of a result saves."""
        known = (node.template for node in self._plan.root.walk())
        if self._plan.inputs is None or not any(end is not None and end.tracked for end in known):
            return nullcontext()
        return saving(tracer, use.keep)

    def _stream(self) -> Any:
        return self._plan.session.stream() if self._plan.session is not None else nullcontext()


def _tensors(value: Any) -> list[torch.Tensor]:
    leaves: list[Any] = []
    flatten(value, leaves)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _device_of(call: Call) -> torch.device:
    """The device whose operations would be captured: CUDA if any argument is there."""
    for leaf in call.leaves:
        if isinstance(leaf, torch.Tensor) and leaf.device.type == "cuda":
            return leaf.device
    return torch.device("cpu")


@dataclass(frozen=True)
class HostRandom:
    """The state of the host's random generators, to see whether a call used them."""

    python: Any
    array: Any

    @classmethod
    def read(cls) -> HostRandom:
        """Read Python's and numpy's global generators."""
        legacy: Any = numpy.random.get_state(legacy=True)
        return cls(random.getstate(), (legacy[1].tobytes(), legacy[2]))


def parameters_of(call: Call) -> dict[int, tuple[str, torch.Tensor]]:
    """Parameters among the arguments, by storage handle."""
    return {
        leaf.untyped_storage()._cdata: (name, leaf)
        for name, leaf, kind in zip(call.names(), call.leaves, call.kinds, strict=True)
        if kind == PARAMETER
    }
