"""One traced call: the callable runs under the tracer until it returns, however often a segment is refused.

The caller's result and side effects are those of one plain call, whatever happens to the recording. A refused
operation is remembered, and the call starts again and follows what has already run. If the capture fails and
no operation is known to be at fault, the rest of the call runs eagerly.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

from ...base import InternalError, Lines, Site, is_instance, on_a_fresh_stack
from ...hazards import rules
from ...hazards.rules import Reason, reason
from ..arguments import (
    MEMORY,
    OPAQUE,
    PARAMETER,
    TENSOR,
    Bound,
    Call,
    GivenParts,
    SlotsBefore,
    StandingLeaves,
    Target,
    has_gradient,
    leaves_of,
    tracing,
)
from ..autograd import (
    GradientUse,
    gradient_blockers,
    held_by_contexts,
    leads_nowhere,
    refused_views,
    saving,
)
from ..autograd.graph import GradientWalk, is_freed, newest_age, passes_freed
from ..backends.protocol import Aliases, Backend, OwnStreams, Session
from ..numbers import Path, TrackedNumbers, can_be_copied
from ..operators import seeing_launches, seeing_scripts
from ..program import (
    INPUT_VIEW,
    NEW,
    OWN,
    Counted,
    Generators,
    GradientWatch,
    Stands,
    StorageTable,
    Template,
    give_back,
    history_of,
    named_inputs,
    renamed,
    unknown_states,
    unseen_function_mode,
)
from ..pytorch import ConstructorCall, GroupCall, LeftForwards, plain_functions, seeing_compiled
from ..reads.trace import Noted, Setting
from ..recording import Node, Own, StaticInputs, hand_out, make_template, with_lent
from ..state import get_profile, our_profiler, set_profile
from . import blame
from .higher_order import as_python
from .host_data import HostDataMode, consumed
from .path import Cursor, Mode, RestartError, SegmentTape, ShardedTensors, Stop, UnseenValue, Writes
from .tracer import Tracer

MAX_RESTARTS = 64
_LEFT_EVENT = "an event that the call has recorded is still there when it ends, and no replay records it"
_ELSEWHERE = (
    "a tensor made outside gets other memory (tensor.data = ...), and others hold that or what it had"
)
_LENT = "numpy computes with the memory of a tensor that is no result of the call, or that is written later"

Taking = Callable[[Call, GivenParts, Mapping[int, torch.Tensor]], None]


@dataclass(frozen=True)
class OpenCapture:
    """A capture that a traced call records into."""

    session: Session
    aliases: Aliases
    make_room: Callable[[], None]
    abandon: Callable[[], None] | None = None  # gives back what the recording holds, static inputs included


@dataclass(frozen=True)
class Plan:
    """How a traced call is to run.

    Attributes:
        root: The tree of the call's recording.
        warmup: Agreeing observations before a node is recorded.
        stands: The recording's in the places of those among the arguments.
        capture: What the call records into, if anything may be recorded.
        follow: Follow a path that has just been replayed.
        path: Values along it.
        careful: Code that has not run yet may read or keep memory of an argument: it does not run on copies.
        renamed: Arguments that share memory with state, and are known by another storage where the call runs
            on the caller's own tensors.
        watch: The gradient slots before the call, weakly.
        meet: Called with each tensor made outside, before the call changes its gradient slot.
        min_segment: Operations that a segment must have.
        split: Names of operations that run between segments.
        whole: Lines that make arrays over the memory of tensors whose numbers are read as they are made.
        selecting: Lines that only write back what they select by masks.
        generators: Random generators that lived outside at earlier calls.
        known: What the call is known to do; then its reads and writes are not noted.
        binds: The slots that calls like it bind.
        numbers: Which numbers change from call to call; where they are not followed, this call is to do what
            earlier ones have computed of them.
        captures_collectives: Collectives are captured where they can be.
        at_length: The tree is that of calls at other lengths, which this one does again at its own.
        operations_alone: The call stays on the stream of its caller, and captures operations alone.
        threads: A backward runs on the threads that autograd chooses, and not on that of the call.
        hooks_saving: Whether the call has set saved-tensor hooks, which looking at what is saved would run.
    """

    root: Node
    warmup: int
    backend: Backend
    inputs: StaticInputs | None = None
    stands: Stands | None = None
    capture: OpenCapture | None = None
    follow: bool = False
    path: Sequence[Any] = ()
    careful: bool = False
    renamed: frozenset[int] = frozenset()
    watch: weakref.ref[GradientWatch] | None = None
    meet: Callable[[torch.Tensor], None] = lambda tensor: None
    min_segment: int = 0
    split: frozenset[str] = frozenset()
    whole: Collection[Lines] = ()
    selecting: Collection[Lines] = ()
    generators: Iterable[torch.Generator] = ()
    known: Noted | None = None
    binds: Sequence[Target] = ()
    numbers: TrackedNumbers | None = None
    captures_collectives: bool = False
    at_length: bool = False
    operations_alone: bool = False
    threads: bool = False
    hooks_saving: Callable[[], bool] = lambda: False

    @property
    def session(self) -> Session | None:
        """The capture's session, if anything may be recorded."""
        return self.capture.session if self.capture is not None else None


@dataclass(frozen=True)
class TraceHooks:
    """What a traced call and the trace of its reads and writes ask of each other.

    The defaults are for a call whose reads and writes are not noted.

    Attributes:
        bound: Adds to the returned value what the callable has left outside, if that can be done again.
        take: Called with what the callable is given, at each attempt, and what of it stands for arguments.
        take_back: Called with the slots in which what was given lies again, in place of what stood for it.
        is_shown: Whether text that is made now is for output alone.
        has_made: Whether an array that the call has made lies at an address; None if nothing is noted.
        has_filled: Whether all numbers of an array follow from what the call has read; so it is if nothing is
            noted, where an earlier call has left the same.
        settings: Where the call has set random generators; it grows.
        collective: The method of a process group that the call has just called.
        lend: Called with an array over the memory of a tensor, and with what is to be called if it is read,
            or written.
        leads: Whether C++ that is known has begun a collective, by its name.
        knows_spread: Whether the call has read how a tensor from outside is spread over processes.
        ask_sharding: Notes the settings for operations on such tensors.
        left_forwards: What the call leaves behind for a backward of FSDP's.
        is_held: Whether a slot that the call has read and never written holds a tensor.
    """

    bound: Callable[[Any], Any] = lambda value: value
    take: Taking = lambda call, given, stood: None
    take_back: Callable[[Sequence[tuple[str, int, Any]]], None] = lambda slots: None
    is_shown: Callable[[], bool] = lambda: False
    has_made: Callable[[int], bool] | None = None
    has_filled: Callable[[Any], bool] = can_be_copied
    settings: Sequence[Setting] = ()
    collective: Callable[[], GroupCall | None] = lambda: None
    lend: Callable[[Any, Callable[[bool], bool]], None] = lambda array, stray: None
    leads: Callable[[str, list[torch.Tensor]], bool] = lambda operator, tensors: False
    knows_spread: Callable[[torch.Tensor], bool] = lambda tensor: True
    ask_sharding: Callable[[], None] = lambda: None
    is_held: Callable[[torch.Tensor], bool] = lambda tensor: False
    left_forwards: Callable[[], Sequence[LeftForwards]] = tuple


@dataclass(frozen=True)
class Observation:
    """What a traced call did, what it ran on, and what became of its capture.

    Attributes:
        value: The returned value, in the form in which it is taken apart.
        template: How the result is handed out.
        node: The stretch in which the call ended, the last of ``nodes``.
        difference: What no earlier call had done.
        unseen: The first value that the host read and that no earlier call had read there.
        blockers: Why nothing of the call can be recorded.
        left: Whether all gradients had left their slots at the first branch.
        arrays: Addresses of arrays from outside that became tensors, each with the line.
        devices: The devices of operands, those that lie where operations are captured not all noted.
        remembered: Numbers of the storages that the recording of a followed path holds.
        stood: What it ran on in the place of the caller's own tensors, by leaf.
        settings: Where it has set random generators.
        lines: Lines that have read numbers.
        path: The edges of the tree along which the call went.
        nested: Whether it went back through what a backward has made, on a GPU.
        rebound: Tensors from outside to which it gave other memory, and which lie where they lay.
        strayed: Which lines have made arrays over the memory of tensors that it reads past PyTorch.
        selecting: Which lines have written back what they have selected by masks.
        selecting_else: Which have done something else with it.
    """

    value: Any
    returned: Any
    template: Template
    node: Node
    nodes: list[Node]
    difference: Reason | None
    unseen: UnseenValue | None
    blockers: list[Reason]
    left: bool
    writes: Writes
    generators: Generators
    arrays: dict[int, Site]
    devices: set[torch.device]
    remembered: frozenset[int]
    recorded: list[Node]
    failed: Reason | None
    storages: StorageTable
    use: GradientUse
    inputs: StaticInputs | None
    stood: Mapping[int, torch.Tensor]
    settings: Sequence[Setting]
    lines: Collection[Lines]
    path: Path
    sharded: ShardedTensors
    nested: bool
    rebound: Sequence[torch.Tensor]
    strayed: Collection[Lines]
    selecting: Collection[Lines]
    selecting_else: Collection[Lines]

    @property
    def computes(self) -> bool:
        """Whether it has operations with numbers that change."""
        return any([each.computes for node in self.nodes for each in node.operations])


class TracedCall:
    """Runs one call of the callable under a plan."""

    def __init__(self, function: Callable[..., Any], call: Call, plan: Plan, site: Site) -> None:
        self._function = function
        self._call = call
        self._plan = plan
        self._site = site
        self._inputs = plan.inputs
        capture = plan.capture
        self._tape = (
            SegmentTape(plan.backend, capture.session, capture.aliases, capture.make_room)
            if capture is not None
            else None
        )
        if plan.inputs is not None:
            plan.inputs.dress(call.leaves)
        self._run_on(call.leaves if plan.inputs is None else tuple(plan.inputs.substitute(call.leaves)))
        self._ran: dict[int, torch.Tensor] = {}
        self._standing: StandingLeaves | None = None
        self._failed: Reason | None = None
        self._last: Tracer | None = None
        self._profiler: Any = None  # what watches the callable's code, and not rote's around it
        self._hooks = TraceHooks()
        self._slots = SlotsBefore(plan.binds, call.branches() if plan.binds else ())

    def _run_on(self, leaves: tuple[Any, ...]) -> None:
        """Give the callable these argument leaves, or others in their place."""
        own = [index for index in self._plan.renamed if leaves[index] is self._call.leaves[index]]
        leaves = renamed(leaves, own)
        self._stood = {index: leaves[index] for index in own}
        numbers = self._plan.numbers
        self._leaves = leaves if numbers is None else self._call.following(numbers, leaves)
        leaves, kinds = self._leaves, self._call.kinds
        self._given = {
            id(leaf): leaf.requires_grad for leaf, kind in zip(leaves, kinds, strict=True) if kind == TENSOR
        }

    def run(self, hooks: TraceHooks | None = None) -> Observation:
        """Run until the callable has returned.

        Raises:
            Exception: What the callable raised, unchanged.
        """
        self._hooks = hooks or TraceHooks()
        self._profiler = our_profiler()
        if self._profiler is None:
            return self._attempts()
        set_profile(None)
        try:
            return self._attempts()
        finally:
            if self._profiler is not None:
                set_profile(self._profiler)

    @property
    def lost(self) -> bool:
        """Whether the callable raised while captured operations had not run."""
        return self._tape is not None and self._tape.lost

    def aside(self, call: Callable[[], Any]) -> Any:
        """Run what is no part of the call, which is not recorded then."""
        if self._last is None:
            raise InternalError("something is to run beside a call that has not begun")
        return self._last.aside(call)

    def let_go(self) -> None:
        """The call raised, and its capture was released: what it has left outside lives on."""
        if self._plan.session is not None and self._last is not None:
            self._plan.session.let_go(self._last.cursor.storages.alive().values())

    def runs_script(self) -> None:
        """TorchScript is about to run, which may launch kernels that it has fused, past the dispatcher."""
        if self._tape is not None and self._last is not None:
            self._tape.capture_all(self._last.cursor)

    def makes(self, kind: type, frame: FrameType | None) -> None:
        """The next call in a frame makes an instance of a class of tensors."""
        if self._last is not None and frame is not None:
            self._last.made = ConstructorCall.of(kind, frame)

    def resize(self, storage: torch.UntypedStorage, nbytes: int) -> bool:
        """Give memory to a storage from outside, or take it back; False if no replay can do that."""
        if self._last is None:
            raise InternalError("a storage is resized beside a call that has not begun")
        return self._last.resize(storage, nbytes)

    def has_made(self, storage: torch.UntypedStorage) -> bool:
        """Whether the call has made a storage."""
        return self._last is not None and self._last.cursor.storages.number_of(storage) is not None

    def copy_back(self) -> None:
        """The callable raised: what it did to static inputs is done to the caller's tensors."""
        inputs = self._inputs
        if inputs is None:
            return
        written = self._last.writes.inputs if self._last is not None else set[int]()
        replayed = inputs.written if self._plan.follow else set[int]()
        inputs.writing(written | replayed).copy_back(self._call.leaves)
        self._put_flags(home=True)

    def _lend_gradients(self) -> None:
        """What stands for an argument has what lies in the ``.grad`` of that."""
        for own, leaf in zip(self._call.leaves, self._leaves, strict=True):
            if own is not leaf and id(leaf) in self._given and leaf.is_leaf and has_gradient(own):
                leaf.grad = own.grad

    def _tell_gradients(self, use: GradientUse) -> None:
        """The call asks arguments for their ``.grad``: keys tell which have one, where they can."""
        if self._call.openings is None:
            use.state = use.state or self._site
        else:
            self._call.openings.gradients = True

    def _put_flags(self, *, home: bool) -> None:
        """What the call runs on requires grad as it did; with ``home`` the caller's own keep what it set."""
        for own, leaf in zip(self._call.leaves, self._leaves, strict=True):
            if own is not leaf and id(leaf) in self._given and leaf.is_leaf:
                _take_gradient(leaf, own if home else leaf)
            asked = self._given.get(id(leaf))
            if asked is None or leaf.requires_grad is asked or not leaf.is_leaf:
                continue
            if home and own is not leaf and own.is_leaf:
                own.requires_grad_(leaf.requires_grad)
            if not home or own is not leaf:
                leaf.requires_grad_(asked)

    # ------------------------------------------------------------------ attempts

    def _attempts(self) -> Observation:
        tracer = self._tracer(self._plan.follow, self._plan.path, None)
        for _ in range(MAX_RESTARTS):
            try:
                return self._attempt(tracer)
            except RestartError:
                tracer = self._restart(tracer)
        self._fail(f"more than {MAX_RESTARTS} operations were refused", self._site)
        return self._attempt(self._restart(tracer))

    def _attempt(self, tracer: Tracer) -> Observation:
        tape = self._tape
        self._last = tracer
        if isinstance(self._function, GradientWalk):
            tracer.know_numbers(self._function.numbers_in(self._leaves))
        use = GradientUse(newest_age() if torch.is_grad_enabled() else 0, self._plan.meet)
        self._lend_gradients()
        use.give(self._call.names(), self._leaves)
        numbers = self._plan.numbers
        host = HostDataMode(
            tracer, use, self._given, self._hooks.is_shown, numbers, self._hooks.lend, self._plan.whole,
            self._plan.selecting,
        )  # fmt: skip
        try:
            # The streams are outermost: a segment is closed or thrown away before they are left. What rote
            # orders itself, when it comes and goes, is none of the call's.
            streams = self._own_streams()
            with self._stream(), streams as own:
                try:
                    value = self._call_function(tracer, host, use)
                    if own.leaves_event():
                        tracer.cursor.block(reason(rules.EVENT_INSIDE, _LEFT_EVENT, self._site))
                    if tape is not None:
                        tape.close(tracer.cursor)
                finally:
                    if tape is not None:
                        tape.abort(tracer.cursor)
        except RestartError:
            tracer.transfers.end()
            tracer.rebound.put_back()
            if self._standing is not None:
                self._standing.put_back()
            raise
        except BaseException:
            tracer.transfers.end()
            tracer.generators.catch_up()
            self._hand_out_kept(tracer)
            raise
        try:
            with plain_functions():  # to look at a tensor of the user's class is not to use it
                bound = self._with_rebound(tracer, self._hooks.bound(value))
                bound = self._with_gradients(tracer, use, bound)
                return self._finish(tracer, host, use, bound, value)
        finally:
            if self._standing is not None:
                self._standing.take_back()

    def _hand_out_kept(self, tracer: Tracer) -> None:
        """The callable raised: what it has left outside must not lie in the recording's memory."""
        bound = self._hooks.bound(None)  # what it has written to its arguments is theirs, too
        if self._standing is not None:
            self._standing.put_back()
        if not self._is_in_recording:
            return
        for kept in (self._with_rebound(tracer, bound), self._with_rebound(tracer, None)):
            if type(kept) is Bound and self._hand_out(tracer, kept):
                return

    def _hand_out(self, tracer: Tracer, kept: Bound) -> bool:
        """Hand out what the callable has left outside, if that can be."""
        inputs = self._inputs
        template, _ = make_template(
            kept,
            tracer.cursor.storages,
            self._positions(),
            {},
            self._site,
            self._leaves,
            tracer.host.under_made,
            self._hooks.is_held,
        )
        if any([leaf.tracked or (leaf.kind == INPUT_VIEW and inputs is None) for leaf in template.leaves]):
            return False
        starts = inputs.starts(self._call.leaves) if inputs is not None else {}
        hand_out(template, self._call.leaves, starts, branches=self._call.branches, own=Own(None))
        return True

    def _positions(self) -> dict[int, int]:
        """Positions of the arguments that a result may contain, by identity."""
        return {
            id(leaf): position
            for position, (leaf, kind) in enumerate(zip(self._leaves, self._call.kinds, strict=True))
            if is_instance(leaf, torch.Tensor) or kind is OPAQUE
        }

    def _call_function(self, tracer: Tracer, host: HostDataMode, use: GradientUse) -> Any:
        call = self._call
        at_home = self._inputs is None
        if at_home:
            given, self._standing = call.given_with(self._leaves), None
        else:
            given, self._standing = call.filled_with(self._leaves)
        self._hooks.take(call, given, self._stood)
        laid = call.lay(given, self._leaves if at_home else None)
        try:
            with self._surroundings(tracer), self._saving(tracer, use), host, tracer:
                value = self._watched(given[0], given[1])
                self._bring_back(tracer)
                return value
        except RestartError:
            raise
        except BaseException as error:
            self._user_error(error, tracer.cursor)
            raise
        finally:
            self._hooks.take_back(laid.take_back())
            for index, stood in self._stood.items():
                give_back(call.leaves[index], stood)
            if self._plan.inputs is not None:
                self._plan.inputs.hand_back(call.leaves)

    def _watched(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the callable in sight of what watches its code."""
        profiler = self._profiler
        if profiler is None:
            return on_a_fresh_stack(self._function, args, kwargs)
        set_profile(profiler)
        try:
            return on_a_fresh_stack(self._function, args, kwargs)
        finally:
            if get_profile() is profiler:
                set_profile(None)
            else:
                self._profiler = None  # the call has set another one, which stays

    def _bring_back(self, tracer: Tracer) -> None:
        """What the call has given other memory lies where it lay, as far as nobody can tell."""
        rebound, cursor = tracer.rebound, tracer.cursor
        for each in tracer.host.aside(rebound.can_return):
            with torch.no_grad():
                each.home.copy_(each.tensor.data)
            rebound.come_back(each)
        for each in rebound.away():
            cursor.block(reason(rules.STATE_CHANGES, _ELSEWHERE, each.site))

    def _with_rebound(self, tracer: Tracer, value: Any) -> Any:
        """What lies elsewhere stays there, but not in memory that replays write: it is handed out."""
        away = [each.tensor for each in tracer.rebound.away()] if self._is_in_recording else []
        if not away:
            return value
        bound = value if type(value) is Bound else Bound(value, (), ())
        targets = [Target(MEMORY, tensor, None, "tensor.data") for tensor in away]
        parts = [tensor.data for tensor in away]
        return Bound(bound.value, (*bound.targets, *targets), (*bound.parts, *parts))

    def _with_gradients(self, tracer: Tracer, use: GradientUse, value: Any) -> Any:
        """What the call leaves in the ``.grad`` of its arguments is handed out as well."""
        left = use.left(self._call.names(), self._call, self._leaves, tracer.cursor.storages)
        if not left.targets:
            return value
        use.gradient = True  # where something lies there before the call, it does something else
        bound = value if type(value) is Bound else Bound(value, (), ())
        return Bound(bound.value, (*bound.targets, *left.targets), (*bound.parts, *left.parts))

    @property
    def _is_in_recording(self) -> bool:
        """Whether what the call makes, or has of its arguments, may lie in the recording's memory."""
        return self._plan.follow or self._plan.capture is not None or self._inputs is not None

    def _user_error(self, error: BaseException, cursor: Cursor) -> None:
        """The callable raised while a segment was open.

        Where captured operations have not run yet, the capture since the checkpoint is thrown away and the
        rest of the call runs eagerly. If the error is the callable's own, it comes again with the effects of
        a plain call; if the capture caused it, the call succeeds and the key stays eager.
        """
        tape = self._tape
        if tape is None or not tape.is_open:
            return
        if isinstance(error, Exception) and not tape.executes:
            self._fail(*blame.of_error(error, cursor.last_captured()))
            raise RestartError(str(error)) from None
        tape.close(cursor)  # an interrupt ends the call here, after what came before it

    def _finish(
        self, tracer: Tracer, host: HostDataMode, use: GradientUse, value: Any, returned: Any
    ) -> Observation:
        cursor, tensors = tracer.cursor, _tensors(value)
        spent = consumed(host.roots, tensors)
        if not self._plan.hooks_saving():
            spent = {id(each) for each in tensors if id(each) in spent and passes_freed(each)}
            spent |= {id(each) for each in tensors if is_freed(each)} if host.frees else set()
        unkept = dict.fromkeys(spent, False)
        if host.frees and use.hook is None and not self._plan.hooks_saving():
            idle = [each for each in tensors if id(each) not in spent and history_of(each) is not None]
            idle = [each for each in idle if leads_nowhere(each, tensors, cursor.storages, self._is_given)]
            unkept.update({id(each): True for each in idle})
        host.roots.clear()
        numbers = self._plan.numbers
        template, blockers = make_template(
            value,
            tracer.cursor.storages,
            self._positions(),
            unkept,
            self._site,
            self._leaves,
            tracer.host.under_made,
            self._hooks.is_held,
            numbers.hands_out if numbers is not None else None,
            self._hooks.has_filled,
        )
        if self._plan.numbers is not None and self._plan.numbers.follows:
            if any([leaf.tracked for leaf in template.leaves]):
                use.numbers.extend(tracer.saved_numbers())
                self._plan.numbers.pin(*held_by_contexts(value, template, self._leaves))
            kept = [(NEW, leaf.index) for leaf in template.leaves if leaf.kind == OWN]
            self._plan.numbers.pin(*tracer.host.given_among(kept))
            self._plan.numbers.end()
            template = template.computed(self._plan.numbers)
        if host.lent:
            template = with_lent(template, [each.tensor for each in host.lent], tracer.cursor.storages)
            written = {order for order, each in enumerate(host.lent) if each.is_written}
            if template.orders - {leaf.lent for leaf in template.leaves} or template.orders & written:
                blockers.append(reason(rules.MEMORY_ESCAPE, _LENT, self._site))
        if any([each.is_written for each in host.read]):
            blockers.append(reason(rules.MEMORY_ESCAPE, _LENT, self._site))
        host.read.clear()  # or they would outlive the call
        if numbers is not None:
            numbers.let_go()
        blockers += tracer.unwritten.reasons("the caller", tensors, self._site)
        if any([leaf.tracked for leaf in template.leaves]):
            tracer.taken.leave_graph()
        tracer.leave_selected(ends=True)
        strayed = tracer.taken.end()
        if strayed and self._plan.numbers is not None:
            self._plan.numbers.strayed.update(strayed)
            text = "what lies at a position that changes is not only read, so the position is a condition"
            blockers.append(reason(rules.VALUE_CHANGED, text, self._site))
        blockers += tracer.host.changed_arrays() + refused_views(tensors, self._site)
        blockers += tracer.generators.settle()
        blockers += tracer.transfers.finish()
        blockers += tracer.resized.reasons(tracked=any([leaf.tracked for leaf in template.leaves]))
        blockers += unknown_states(self._hooks.settings, tracer.cursor.storages)
        tracer.cursor.storages.note_readers("the result", self._site)
        cursor.complete()
        written = (tracer.writes.inputs, tracer.writes.externals)
        if use.gradient:
            self._tell_gradients(use)
        found = gradient_blockers(
            value, template, self._call, self._leaves, tracer.cursor.storages, written, use, self._site
        )
        blockers += found or use.changes(tracer.cursor.storages, tensors, value, self._site)
        self._put_flags(home=True)
        watch = self._plan.watch() if self._plan.watch is not None else None
        blockers += tracer.sharded.reasons(
            watch.before() if watch is not None else (),
            tracked=any([leaf.tracked for leaf in template.leaves]),
            walked=use.walks_outside,
        )
        for blocker in blockers:
            cursor.block(blocker)
        node = cursor.node
        writes, further = tracer.writes, {*tracer.writes.apart, *tracer.sharded.written()}
        node.counted = Counted.of(writes.counted, cursor.storages, further)
        left = self._hooks.left_forwards()
        if cursor.mode is Mode.RECORD and self._tape is not None:
            for step in left:
                self._tape.close(cursor)
                self._tape.prepare(step)
            self._tape.end_node(cursor, None)
        if self._tape is not None and self._tape.shortage is not None and self._failed is None:
            self._failed = blame.out_of_memory(self._tape.shortage, self._site)
        recorded = [found for found in (self._tape.recorded if self._tape else []) if found.recorded]
        return Observation(
            value, returned, template, node, cursor.nodes, cursor.difference, cursor.unseen, cursor.blockers,
            cursor.left, tracer.writes, tracer.generators, tracer.host.arrays, tracer.placer.devices,
            tracer.follower.remembered(), recorded, self._failed, cursor.storages, use, self._inputs,
            self._stood, self._hooks.settings, list(tracer.reads.lines), cursor.way, tracer.sharded,
            tracer.passes.nested, tracer.rebound.returned, [*host.strayed],
            tracer.selected.back, tracer.selected.strayed,
        )  # fmt: skip

    def _is_given(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is an argument, or one that lies outside."""
        return any([tensor is leaf for leaf in self._leaves]) or self._hooks.is_held(tensor)

    def _tracer(
        self, follow: bool, path: Sequence[Any], stop: Stop | None, *, records: bool = True
    ) -> Tracer:
        storages = StorageTable(self._plan.root.looks, self._plan.meet)
        for index, start in named_inputs(self._call, self._leaves):
            storages.add_input(index, self._leaves[index], start)
        plan = self._plan
        cursor = Cursor(
            plan.root, storages, plan.backend.device, self._tape if records else None, plan.warmup,
            follow=follow, stop=stop, watch=plan.watch, least=plan.min_segment,
            resolves=plan.numbers is not None and not plan.numbers.follows,
            captures_collectives=plan.captures_collectives,
            careful=plan.careful and records,
            at_length=plan.at_length,
        )  # fmt: skip
        stands = plan.stands.by_number if plan.stands is not None else {}
        known = self._call.generators()
        generators = Generators(plan.generators, self._ran, known, stands, self._hooks.settings)
        return Tracer(
            cursor, profiler=self._profiler,
            path=path, stop=stop, split=plan.split, generators=generators,
            has_made=self._hooks.has_made, numbers=plan.numbers, collective=self._hooks.collective,
            under_arrays=[self._leaves[place] for place in self._call.arrays],
            leads=self._hooks.leads, alone=plan.backend.alone,
            sharded=ShardedTensors(cursor, self._hooks.knows_spread, self._hooks.ask_sharding),
        )  # fmt: skip

    def _restart(self, tracer: Tracer) -> Tracer:
        """Follow what has run, then record, or run eagerly once the capture has failed for good."""
        tape = tracer.cursor.recorder
        tape.abort(tracer.cursor)
        numbers = self._plan.numbers
        self._slots.put_back()
        self._put_flags(home=False)
        if numbers is not None:
            numbers.begin_again()
        if tracer.cursor.strayed:
            return self._go_on_in_place(tracer)
        if tape.failure is not None and self._failed is None:
            self._fail(*blame.of_segment(tape.failure, tracer.cursor.last_captured()))
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
        return self._tracer(True, tracer.cursor.path[: point.depth], Stop(point.node, point.index))

    def _go_on_in_place(self, tracer: Tracer) -> Tracer:
        """Follow what has run, on the caller's own tensors; what comes then is not recorded."""
        call, cursor, inputs = self._call, tracer.cursor, self._inputs
        if inputs is not None:
            written = inputs.written | tracer.writes.inputs
            self._inputs = inputs.writing(written).hand_over(call.leaves)
        self._run_on(call.leaves)
        again = self._tracer(True, cursor.path, Stop(cursor.node, 0), records=False)
        again.cursor.unseen = cursor.unseen
        return again

    def _short_of_memory(self, tape: SegmentTape, text: str) -> None:
        """The open segment is gone: try again with more room, but once only."""
        if tape.make_room():
            tape.shortage = None
            return
        self._failed = blame.out_of_memory(text, self._site)
        point, capture = tape.checkpoint, self._plan.capture
        abandon = capture.abandon if capture is not None else None
        if point is not None and not point.depth and not point.index and abandon is not None:
            abandon()  # nothing has run yet: begin anew on the caller's own tensors, as eager would
            self._inputs = None
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
            stack.enter_context(seeing_compiled())
            stack.enter_context(seeing_launches())
            stack.enter_context(seeing_scripts())
            # A cast cached by one call would be hidden from the next one. Within a call the cache stays on:
            # gradients of a weight used twice are summed in the type it was cast to.
            torch.clear_autocast_cache()
            stack.callback(torch.clear_autocast_cache)
            if not self._plan.threads:  # see autograd.order
                stack.enter_context(torch.autograd.set_multithreading_enabled(False))
            yield

    def _saving(self, tracer: Tracer, use: GradientUse) -> Any:
        """On static inputs, keep what the graph of a result saves."""
        known = (node.template for node in self._plan.root.walk())
        if self._inputs is None or not any(end is not None and end.tracked for end in known):
            return nullcontext()
        return saving(tracer.cursor.quietly, use.keep)

    def _own_streams(self) -> AbstractContextManager[OwnStreams]:
        return self._plan.backend.call_streams(recorded=self._plan.session is not None)

    def _stream(self) -> Any:
        session, alone = self._plan.session, self._plan.operations_alone
        return session.stream(operations_alone=alone) if session is not None else nullcontext()


def _take_gradient(leaf: torch.Tensor, own: torch.Tensor) -> None:
    """What the call has put into the ``.grad`` of what stands for an argument is in that of the argument."""
    found = leaf.grad
    if own is not leaf and own.is_leaf and found is not own.grad:
        own.grad = found.detach().clone() if found is not None else None  # it may lie where replays write
    if found is not None:
        leaf.grad = None


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in leaves_of(value) if is_instance(leaf, torch.Tensor)]


def parameters_of(call: Call) -> dict[int, tuple[str, torch.Tensor]]:
    """Parameters among the arguments, by storage handle."""
    return {
        leaf.untyped_storage()._cdata: (name, leaf)
        for name, leaf, kind in zip(call.names(), call.leaves, call.kinds, strict=True)
        if kind == PARAMETER
    }
