"""Runs a callable while following, observing or recording what it does.

One dispatch mode does three jobs, often one after the other in a single call:

- **follow**: the prefix of a known path has just been replayed, so its operations must not run again. The
  Python code runs, and each operation returns the recorded tensors. Views run for real (they only make
  metadata), everything else does not.
- **record**: operations go to the backend's session; what cannot be captured ends the segment.
- **observe**: operations run as in eager, and are noted.

While observing and recording, every operation is compared with what earlier calls did at the same place
(:class:`~rote.recording.tree.Node`). The first difference makes the call unsteady: it still finishes
correctly, but nothing of it is kept as a recording.

What this cannot see: kernels launched past PyTorch's dispatcher. They are captured by CUDA all the same, but
when a path is followed they would run a second time.
"""

from __future__ import annotations

from contextlib import nullcontext
from enum import Enum
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..base.errors import CaptureError, MisuseError
from ..base.location import Site, user_site
from ..hazards import rules
from ..hazards.rules import Reason, reason
from ..partition.facts import Facts, facts_of, written_operands
from ..partition.boundaries import Placement, place, rule_of
from . import events as ev
from .edges import edge_of, value_of
from .events import Event, assemble, first_difference, operands_of, results_of, tensors_of
from .ledger import EXTERNAL, INPUT, NEW, Ledger, Origin, Token, UnsupportedTensorError
from .operands import content_of, is_view, number_of
from .tape import Place, RestartError, SegmentTape, kept_call
from .tree import Node

_lift = torch.ops.aten.lift_fresh.default


class Mode(Enum):
    """What the tracer does with the next operation."""

    FOLLOW = "follow"
    RECORD = "record"
    OBSERVE = "observe"


class Tracer(TorchDispatchMode, Place):
    """Dispatch mode for one run of the callable.

    Args:
        root: First node of the tree.
        ledger: Storages of the call, inputs registered.
        device: Device whose operations are captured.
        follow: Start by following what has already been replayed.
        path: Values of the branches to follow, from the root. Past the last one the call is followed up to
            the next branch, whose value is then read.
        stop: Follow up to this event instead (everything before it has run).
        tape: Where recorded steps go; None if nothing may be recorded.
        warmup: Agreeing observations a node needs before it is recorded.
    """

    def __init__(
        self,
        root: Node,
        ledger: Ledger,
        device: torch.device,
        *,
        follow: bool = False,
        path: list[Any] | None = None,
        stop: tuple[Node, int] | None = None,
        tape: SegmentTape | None,
        warmup: int,
    ) -> None:
        super().__init__()
        self.node = root
        self.index = 0
        self.ledger = ledger
        self.tape = tape
        self.path: list[Any] = []
        self.nodes: list[Node] = [root]
        self.difference: Reason | None = None
        self.blockers: list[Reason] = []
        self.arrays: dict[int, Site] = {}
        self.written_inputs: set[int] = set()
        self.written_externals: set[int] = set()
        self.generators: dict[int, torch.Generator] = {}
        self.devices: set[torch.device] = set()
        self.operations = 0
        self._device = device
        self._on_host = device.type == "cpu"
        self._facts: dict[int, Facts] = {}
        self._constants: set[Origin] = set()
        self._follow = list(path or ())
        self._stop = stop
        self._warmup = warmup
        self._memory: dict[int, torch.UntypedStorage] = {}
        self._suspended = False
        if tape is not None:
            tape.place = self
        self.mode = Mode.FOLLOW if follow else self._next_mode(root)
        if self.mode is Mode.FOLLOW:
            self._memory = self._held_at_stop(root, self._follow, stop)
            self._check_stop()
        elif self.mode is Mode.RECORD:
            self._start_recording(root)

    # ------------------------------------------------------------------ where we are

    def _next_mode(self, node: Node) -> Mode:
        ready = self.tape is not None and node.seen >= self._warmup and node.complete
        return Mode.RECORD if ready and self.difference is None else Mode.OBSERVE

    @staticmethod
    def _held_at_stop(
        root: Node, path: list[Any], stop: tuple[Node, int] | None
    ) -> dict[int, torch.UntypedStorage]:
        node, held = root, dict(root.held)
        for value in path:
            node = node.edges[value]
            held.update(node.held)
        if stop is not None:
            held.update(stop[0].held)
        return held

    def remembered(self) -> set[int]:
        """Numbers of the storages that the recording of the followed path holds."""
        return set(self._memory)

    def _check_stop(self) -> None:
        """Leave FOLLOW when the last operation that ran has been passed."""
        if self._stop is not None and self.node is self._stop[0] and self.index == self._stop[1]:
            node = self._stop[0]
            self.mode = Mode.RECORD if self.tape is not None else Mode.OBSERVE
            if self.mode is Mode.RECORD:
                assert self.tape is not None
                self.tape.resume(node)

    def _start_recording(self, node: Node) -> None:
        assert self.tape is not None
        self.tape.start(node)

    def _enter(self, value: Any) -> None:
        """Go along an edge, making it if it is new."""
        child = self.node.edges.get(value)
        if child is None:
            child = self.node.edges[value] = Node()
        self.path.append(value)
        self.node, self.index = child, 0
        self.nodes.append(child)

    # ------------------------------------------------------------------ dispatch

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._suspended:
            return func(*args, **kwargs)
        try:
            return self._dispatch(func, args, kwargs)
        except UnsupportedTensorError as error:
            if self.mode is not Mode.OBSERVE:
                raise
            site = user_site()
            self.block(reason(rules.UNSUPPORTED_TENSOR, f"{func.name()} met a {error} tensor", site))
            return func(*args, **kwargs)

    def _dispatch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.blockers and self.mode is Mode.OBSERVE:
            return func(*args, **kwargs)  # nothing of this call will be kept
        if not isinstance(func, torch._ops.OpOverload):
            return self._higher_order(func, args, kwargs)
        facts = self._facts.get(id(func)) or self._facts.setdefault(id(func), facts_of(func))
        if facts.composite and torch.is_inference_mode_enabled():
            with self:  # its parts come back here, one by one
                return func.decompose(*args, **kwargs)
        tensors = tensors_of(args, kwargs)
        self.operations += 1
        if func is _lift and tensors and not self.ledger.knows(tensors[0]):
            return self._lifted(tensors[0])
        placement = self._place(facts, tensors, kwargs)
        tokens = [self.ledger.token(tensor) for tensor in tensors]
        event = Event(placement.value, facts.name, operands_of(args, kwargs, tokens), (), "none", user_site())
        if len(self.ledger.external_sites) < len(self.ledger.externals):
            self.ledger.note_readers(facts.name, event.site)
        self._note(facts, args, kwargs, tensors)
        if placement in (Placement.READ, Placement.SHAPED):
            return self._branch(event, func, args, kwargs)
        if self.mode is Mode.FOLLOW:
            return self._followed(event, func, args, kwargs, tensors)
        return self._run(event, func, args, kwargs, tensors, tokens, placement)

    def _higher_order(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An operator over Python functions (``torch.cond``): nothing of the call is recorded."""
        text = f"{func} takes Python functions"
        self.block(reason(rules.UNSUPPORTED_TENSOR, text, user_site()))
        return func(*args, **kwargs)

    def _lifted(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor that PyTorch made from host data below the dispatcher: an index list, or an array's memory."""
        if tensor.is_cpu and not tensor.untyped_storage().resizable():
            return self.alias_array(tensor)
        return self.host_tensor(tensor, "torch.tensor", tensor)

    def _place(self, facts: Facts, tensors: list[torch.Tensor], kwargs: dict[str, Any]) -> Placement:
        placement = place(facts, tensors, kwargs, self._on_host)
        if placement is Placement.CAPTURED:
            return Placement.ISLAND if self.node.refused and self.index in self.node.refused else placement
        if placement is Placement.ISLAND and self._only_constants_on_host(tensors):
            return Placement.ISLAND if self.index in self.node.refused else Placement.CAPTURED
        return placement

    def _only_constants_on_host(self, tensors: list[torch.Tensor]) -> bool:
        """A kernel takes a host scalar by value; that is right for one that never changes."""
        if self._device.type == "cpu":
            return False
        on_host = [tensor for tensor in tensors if tensor.device.type == "cpu"]
        return len(on_host) < len(tensors) and all(
            tensor.dim() == 0 and self.ledger.origin(tensor) in self._constants for tensor in on_host
        )

    def _note(
        self, facts: Facts, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[torch.Tensor]
    ) -> None:
        """Keep what concerns the whole call: devices, generators, writes to inputs and constants."""
        for tensor in tensors:
            if not tensor.is_cpu:
                self.devices.add(tensor.device)
        if facts.seeded and not _without_dropout(facts, args, kwargs):
            self.node.pure = False
            generator = kwargs.get("generator")
            if isinstance(generator, torch.Generator):
                self.generators[id(generator)] = generator
        if facts.written:
            self._note_writes(written_operands(facts, args, kwargs))

    def _note_writes(self, written: list[torch.Tensor]) -> None:
        for tensor in written:
            origin = self.ledger.origin(tensor)
            if origin is not None and origin[0] == INPUT:
                self.written_inputs.add(origin[1])
            elif origin is not None and origin[0] == EXTERNAL:
                self.node.pure = False
                self.written_externals.add(origin[1])
            elif origin in self._constants:
                self._constants.discard(origin)
                if tensor.is_cpu and not self._on_host:
                    text = "a tensor built on the host from plain data is changed in place"
                    self.block(reason(rules.HOST_DATA, text, user_site()))

    # ------------------------------------------------------------------ observe and record

    def _run(
        self,
        event: Event,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tensors: list[torch.Tensor],
        tokens: list[Token],
        placement: Placement,
    ) -> Any:
        try:
            if self.mode is Mode.OBSERVE or placement is Placement.ANYWHERE:
                out = func(*args, **kwargs)
            else:
                out = self._recorded(event, func, args, kwargs, tensors, placement)
        except Exception as error:  # the callable may go on from it, which no recording could
            self.block(reason(rules.OPERATION_RAISES, f"{event.operation} raised {type(error).__name__}", event.site))
            raise
        self._check_metadata(event, tensors, tokens)
        event.shape, parts = results_of(out)
        event.results = self._results(event, parts, tensors)
        if event.kind == ev.CAPTURED and is_view(event, tokens) and not facts_of(func).mutable:
            event.kind = ev.VIEW
        self._meet(event)
        return out

    def _check_metadata(self, event: Event, tensors: list[torch.Tensor], tokens: list[Token]) -> None:
        """An operation that gives a tensor made outside another shape would do so to a copy of it."""
        for tensor, token in zip(tensors, tokens, strict=True):
            if token.origin[0] is not NEW and token.shape and (tensor.shape, tensor.stride()) != token[2:4]:
                text = f"{event.operation} changes the shape of a tensor made outside the call"
                self.block(reason(rules.RESHAPED, text, event.site))

    def _recorded(
        self,
        event: Event,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tensors: list[torch.Tensor],
        placement: Placement,
    ) -> Any:
        tape = self.tape
        assert tape is not None
        if placement is not Placement.CAPTURED:
            refused = self.index in self.node.refused
            code = rule_of(func, placement, refused, tensors).code
            self.node.pure = False
            return tape.island(event, func, args, kwargs, code, early=placement is Placement.EARLY)
        try:
            return tape.capture(func, args, kwargs)
        except CaptureError:
            self.node.refused.add(self.index)
            raise RestartError(event.operation) from None

    def _results(self, event: Event, parts: list[Any], tensors: list[torch.Tensor]) -> tuple[Any, ...]:
        return tuple([self._result(event, part, tensors) for part in parts])

    def _result(self, event: Event, part: Any, tensors: list[torch.Tensor]) -> Any:
        """A token; the position of the operand that the result is; or None where there is nothing to hold."""
        if not isinstance(part, torch.Tensor):
            return None
        for position, tensor in enumerate(tensors):
            if tensor is part:
                return position
        return None if part.is_meta else self.ledger.result(part, event.operation, event.site)

    def _meet(self, event: Event) -> None:
        """Compare an event with what was seen here before; remember it if nothing was."""
        node, index = self.node, self.index
        self.index += 1
        if self.difference is not None or self.blockers:
            if self.difference is not None:
                node.events.append(event)
            return
        if index == len(node.events) and not node.complete:
            node.events.append(event)
            return
        was = node.events[index] if index < len(node.events) else None
        if was is not None and (was.operation, was.operands, was.results) == (
            event.operation, event.operands, event.results,
        ):  # fmt: skip
            return
        self._differ(was, event)
        node.forget(index)
        node.events.append(event)

    def _differ(self, was: Event | None, now: Event) -> None:
        text = first_difference(was, now) if was is not None else None
        if text is not None:
            self.difference = reason(rules.OPERAND_DIFFERS, text, now.site)
            return
        before = was.operation if was is not None else "the end of the call"
        text = f"the call ran {now.operation} where earlier calls had {before}"
        self.difference = reason(rules.OPERATIONS_DIFFER, text, now.site)

    def block(self, why: Reason) -> None:
        """Note a reason why nothing of this call can be kept."""
        if why not in self.blockers:
            self.blockers.append(why)

    # ------------------------------------------------------------------ branches

    def _branch(self, event: Event, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        def run() -> Any:
            return func(*args, **kwargs)

        return self.branch(event, run, lambda: kept_call(func, args, kwargs), shaped=event.kind == ev.SHAPED)

    def branch(self, event: Event, run: Any, keep: Any, *, shaped: bool) -> Any:
        """The host reads a value or a shape: compare, read, and go along the edge.

        Args:
            event: The read.
            run: Reads now.
            keep: Makes a function that reads again at a replay.
            shaped: The edge is the shape of the result, not its value.
        """
        if self.mode is Mode.FOLLOW:
            return self._follow_branch(event, run, shaped)
        self._meet(event)
        recording = self.mode is Mode.RECORD
        if recording:
            assert self.tape is not None
            rule = rules.DYNAMIC_SHAPE if shaped else rules.HOST_READ
            out = self.tape.branch(event, run, keep(), rule.code, lambda read: edge_of(read, shaped))
        else:
            out = run()
        value, parts = edge_of(out, shaped)
        if not self.blockers:
            self.node.complete = True
        self._enter(value)
        if shaped:
            tensors = [part for part in parts if isinstance(part, torch.Tensor)]
            for number, tensor in enumerate(tensors):
                self.ledger.result(tensor, event.operation, event.site)
                if recording and number >= len(self.node.arrivals):
                    self.node.arrivals.append(tensor.detach())
        self._after_branch(recording)
        return out

    def _after_branch(self, recording: bool) -> None:
        if not recording:
            self.mode = Mode.OBSERVE
            return
        self.mode = self._next_mode(self.node)
        if self.mode is Mode.RECORD:
            self._start_recording(self.node)
        else:
            self.node.arrivals = []

    def _follow_branch(self, event: Event, run: Any, shaped: bool) -> Any:
        self._expect(event)
        self.index += 1
        if self._follow:
            value = self._follow.pop(0)
            self._enter(value)
            parts: list[Any] = list(self.node.arrivals)
            for tensor in parts:
                self.ledger.result(tensor, event.operation, event.site)
            out = (parts[0] if len(parts) == 1 else tuple(parts)) if shaped else value_of(value)
            self._check_stop()
            return out
        return self._leave_follow(event, run, shaped)

    def _leave_follow(self, event: Event, run: Any, shaped: bool) -> Any:
        """The last branch of the path: its value is new here, so the call goes on from it."""
        out = run()
        value, parts = edge_of(out, shaped)
        self._enter(value)
        self.mode = self._next_mode(self.node)
        tensors = [part for part in parts if isinstance(part, torch.Tensor)]
        for tensor in tensors:
            self.ledger.result(tensor, event.operation, event.site)
        if self.mode is Mode.RECORD:
            if shaped:
                self.node.arrivals = [tensor.detach() for tensor in tensors]
            self._start_recording(self.node)
        return out

    # ------------------------------------------------------------------ follow

    def _expect(self, event: Event) -> Event:
        events = self.node.events
        was = events[self.index] if self.index < len(events) else None
        if was is None or (was.operation, was.operands) != (event.operation, event.operands):
            expected = was.operation if was is not None else "the end"
            raise MisuseError(
                f"the callable took another way on the same inputs at {event.site}: {event.operation} where "
                f"{expected} was recorded. What it depends on is neither an argument nor state that rote can "
                "see; pass it in as an argument."
            )
        return was

    def _followed(
        self, event: Event, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[torch.Tensor]
    ) -> Any:
        was = self._expect(event)
        if was.kind in (ev.VIEW, ev.ANYWHERE):
            out = func(*args, **kwargs)
            for part, token in zip(results_of(out)[1], was.results, strict=True):
                if isinstance(token, Token):
                    self.ledger.result(part, event.operation, event.site, number_of(token))
        else:
            parts = [self._remembered(result, tensors, event) for result in was.results]
            out = assemble(was.shape, parts)
        self.index += 1
        self._check_stop()
        return out

    def _remembered(self, result: Any, tensors: list[torch.Tensor], event: Event) -> Any:
        """The recorded result of an operation that has been replayed already."""
        if result is None or isinstance(result, int):
            return None if result is None else tensors[result]
        before, self._suspended = self._suspended, True  # host data is met above the dispatcher
        try:
            tensor = self._from_memory(result)
        finally:
            self._suspended = before
        self.ledger.result(tensor, event.operation, event.site, number_of(result))
        return tensor

    def _from_memory(self, token: Token) -> torch.Tensor:
        storage = self.ledger.storage(token.origin)
        if storage is None and token.origin[0] == NEW:
            storage = self._memory.get(token.origin[1])
        if storage is None:  # dead where the path ends: only its shape matters
            device = torch.device("cpu") if token.on_host else self._device
            return torch.empty_strided(token.shape, token.stride, dtype=token.dtype, device=device)
        tensor = torch.empty(0, dtype=token.dtype, device=storage.device)
        return tensor.set_(storage, token.offset, token.shape, token.stride)

    # ------------------------------------------------------------------ host data

    def aside(self, call: Any) -> Any:
        """Run something that is no part of the call, also while a segment is open."""
        before, self._suspended = self._suspended, True
        try:
            inside = self.tape is not None and self.tape.is_open
            with self.tape.session.aside() if inside and self.tape is not None else nullcontext():
                return call()
        finally:
            self._suspended = before

    def alias_array(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor over a numpy array's memory: external, and read where it is."""
        site = user_site()
        self.arrays[tensor.data_ptr()] = site
        operands = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
        event = Event(ev.HOST, "from_numpy", operands, (), "one", site)
        self.ledger.add_host_memory(tensor)
        event.results = (self.ledger.token(tensor),)
        if self.mode is Mode.FOLLOW:
            self._expect(event)
            self.index += 1
            self._check_stop()
        else:
            self._meet(event)
        return tensor

    def copy_array(self, event: Event, pointer: int, build: Any) -> torch.Tensor:
        """A tensor copied from a numpy array: copied again at each replay."""
        self.arrays[pointer] = event.site
        if self.mode is Mode.FOLLOW:
            was = self._expect(event)
            tensor = self._remembered(was.results[0], [], event)
            self.index += 1
            self._check_stop()
            return tensor
        if self.mode is Mode.RECORD:
            assert self.tape is not None
            self.node.pure = False
            tensor = self._rebuilt(event, build)
        else:
            tensor = self.aside(build)
        event.results = (self.ledger.result(tensor, event.operation, event.site),)
        self._meet(event)
        return tensor

    def host_tensor(self, tensor: torch.Tensor, operation: str, data: Any) -> torch.Tensor:
        """A tensor built from plain host data, which are constant as long as the guard holds.

        The recording keeps the tensor and makes a fresh copy of it at each replay, since the callable may write
        into what it got.
        """
        event = Event(ev.CONST, operation, content_of(data), (), "one", user_site())
        if self.mode is Mode.FOLLOW:
            was = self._expect(event)
            tensor = self._remembered(was.results[0], [], event)
            self._know_constant(tensor)
            self.index += 1
            self._check_stop()
            return tensor
        if self.mode is Mode.RECORD:
            assert self.tape is not None
            self.node.constants[self.index] = tensor
            tensor = self._copy_constant(tensor)
        event.results = (self.ledger.result(tensor, event.operation, event.site),)
        self._know_constant(tensor)
        self._meet(event)
        return tensor

    def _copy_constant(self, constant: torch.Tensor) -> torch.Tensor:
        if constant.device.type != self._device.type:  # a host tensor: nothing in a segment can write it
            return constant
        assert self.tape is not None
        self._suspended = True  # we may be above the dispatcher here
        try:
            return self.tape.capture(torch.ops.aten.clone.default, (constant,), {})
        finally:
            self._suspended = False

    def _rebuilt(self, event: Event, build: Any) -> torch.Tensor:
        assert self.tape is not None
        self._suspended = True
        try:
            return self.tape.rebuild(event, lambda: self.aside(build), build)
        finally:
            self._suspended = False

    def _know_constant(self, tensor: torch.Tensor) -> None:
        origin = self.ledger.origin(tensor)
        if origin is not None:
            self._constants.add(origin)

    # ------------------------------------------------------------------ the end

    def complete(self) -> None:
        """The callable returned: the last node is complete."""
        node = self.node
        if self.mode is Mode.FOLLOW:
            raise MisuseError(
                "the callable returned before the end of the recorded path on the same inputs; what it "
                "depends on is neither an argument nor state that rote can see"
            )
        if self.blockers:
            return
        if self.difference is None and self.index < len(node.events):
            end = Event("end", "the end of the call", (), (), "none", node.events[self.index].site)
            self._differ(node.events[self.index], end)
            node.forget(self.index)
        node.complete = True


def _without_dropout(facts: Facts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Attention draws random numbers only for its dropout."""
    position = facts.dropout
    if position is None:
        return False
    value = args[position] if position < len(args) else kwargs.get("dropout_p", 0.0)
    return value == 0.0
