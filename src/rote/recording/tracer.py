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

import sys
from collections.abc import Generator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import torch

from ..base.errors import CaptureError, MemoryShortageError
from ..base.location import Site, user_site
from ..hazards import rules
from ..hazards.rules import reason
from ..partition.boundaries import Placement, place, rule_of
from ..partition.facts import Facts, facts_of, written_operands
from ..partition.fills import filled_in
from ..signature.compat import is_lazy_zero, resolve_lazily
from ..signature.executed import our_profiler
from ..signature.modes import DispatchMode
from . import events as ev
from .cursor import Mode
from .edges import Raised, caught
from .events import Event, operands_of, results_of, tensors_of
from .host_tensors import HostTensors
from .ledger import EXTERNAL, INPUT, NEW, Token, UnsupportedTensorError
from .looks import Look
from .operands import DECOMPOSITIONS, is_view, without_dropout, without_vectors
from .optimizers import average_reason, count_reason, rate_read_reason, stepping
from .overloads import DETACH, Overload
from .seeds import seeds_on_host
from .stores import without_copies
from .tape import RestartError, SegmentTape, kept_call
from .zeros import LAZY_ZEROS, on_zeros

_FOLLOW, _OBSERVE = Mode.FOLLOW, Mode.OBSERVE  # to look a member up takes ten times as long, in Python 3.11
_CAPTURED, _ANYWHERE = Placement.CAPTURED, Placement.ANYWHERE
_READS = (Placement.READ, Placement.SHAPED)


class Tracer(HostTensors, DispatchMode):
    """Dispatch mode for one run of the callable; the arguments are those of :class:`.cursor.Cursor`.

    Attributes:
        profiler: What watches the callable's code, if it has to be spared the recorder's own.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        DispatchMode.__init__(self)
        HostTensors.__init__(self, *args, **kwargs)
        self._index = -1
        self._known: dict[int, Overload] = {}
        self.profiler: Any = None
        self._thread, self._vectorless, self._lazy_zeros = get_ident(), False, False

    def __enter__(self) -> Any:
        """Enter the mode, on the thread that the callable runs on."""
        if self.profiler is None:
            self.profiler, self._thread = our_profiler(), get_ident()
        return super().__enter__()

    @property
    def suspended(self) -> bool:
        """Operations that run now are the recorder's own, no part of the call."""
        return self._suspended

    @contextmanager
    def without_vectors(self) -> Generator[None]:
        """While functions run that leave the vectors of a decomposition out where no gradient needs them.

        They ask whether a mode is active and then leave nothing out; the values differ in their last bits.
        """
        before, self._vectorless = self._vectorless, True
        try:
            yield
        finally:
            self._vectorless = before

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        profiler = self.profiler
        if profiler is not None:  # first of all: it is told of every call of a function
            if sys.getprofile() is profiler:
                sys.setprofile(None)
            else:  # another thread, or inside of an operation that is seen
                if get_ident() != self._thread:
                    profiler.__self__.miss_thread()
                profiler = None
        try:
            resolve_lazily()
            return self._dispatch(func, args, kwargs or {})
        except UnsupportedTensorError as error:
            if self.mode is not _OBSERVE:
                raise
            site = user_site()
            self.block(reason(rules.UNSUPPORTED_TENSOR, f"{func.name()} met a {error} tensor", site))
            return self._seen(func, *args, **(kwargs or {}))
        finally:
            if profiler is not None:
                sys.setprofile(profiler)

    def _seen(self, call: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Run what may be code of the user's in sight of the profiler; see :mod:`..signature.executed`."""
        profiler = self.profiler
        if profiler is None or sys.getprofile() is not None:
            return call(*args, **kwargs)
        sys.setprofile(profiler)
        try:
            return call(*args, **kwargs)
        finally:
            if sys.getprofile() is profiler:
                sys.setprofile(None)

    def _dispatch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._suspended:
            return self._seen(func, *args, **kwargs)
        if self._vectorless and func in DECOMPOSITIONS:
            args = without_vectors(func, args)
        mode = self.mode
        if self.blockers and mode is _OBSERVE:  # nothing of this call will be kept
            if isinstance(func, torch._ops.OpOverload):
                self._note_writes(written_operands(facts_of(func), args, kwargs))
            return self._seen(func, *args, **kwargs)
        known = self._known.get(id(func))
        if known is None:
            if not isinstance(func, torch._ops.OpOverload):
                return self._higher_order(func, args, kwargs)
            if func is LAZY_ZEROS:  # forward-mode AD: no memory, so nothing that a replay would have to make
                self._lazy_zeros = True
                return self._seen(func, *args, **kwargs)
            known = self._known[id(func)] = Overload.of(func)
        _, facts, raw, parts, seen, seeds, special = known
        zero = self._lazy_zeros and any(map(is_lazy_zero, tensors_of(args, kwargs)))
        if zero and func.is_view:  # a zero again
            return self._seen(func, *args, **kwargs)
        if zero or (parts is not None and torch.is_inference_mode_enabled()):
            with self:  # they come back here, one by one
                return self._seen(parts or on_zeros(func), *args, **kwargs)
        if special:
            if func is DETACH:
                return self._detached(func, args[0])
            if not self.ledger.knows(args[0]):
                return self._lifted(args[0])
        event, tensors, tokens, placement = self._before(facts, args, kwargs)
        if placement is not _CAPTURED and placement in _READS:
            return self._seen(self._branch, event, func, args, kwargs)
        if mode is _FOLLOW:
            return self._seen(self._followed, event, func, args, kwargs, tensors)
        try:
            if mode is _OBSERVE or placement is _ANYWHERE:
                if seeds:
                    args, kwargs = seeds_on_host(func, args, kwargs)
                out = self._seen(raw, *args, **kwargs) if seen else raw(*args, **kwargs)
            else:
                out = self._recorded(event, known, args, kwargs, tensors, placement)
        except Exception as error:  # the callable may go on from it, which no recording could
            text = f"{event.operation} raised {type(error).__name__}"
            self.block(reason(rules.OPERATION_RAISES, text, event.site))
            raise
        self._after(event, facts, tensors, tokens, out)
        return out

    def _before(
        self, facts: Facts, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Event, list[torch.Tensor], list[Token], Placement]:
        """All that is noted of an operation before it runs."""
        ledger = self.ledger
        tensors, tokens, operands = operands_of(args, kwargs, ledger.token)
        if facts.simple and tensors and "device" not in kwargs and self._are_at_home(tensors, tokens):
            refused = self.node.refused
            placement = Placement.ISLAND if refused and self.index in refused else _CAPTURED
        else:
            placement = self._place(facts, tensors, args, kwargs)
            self._note_devices(tensors)
        site = self._sites.here()
        event = Event(placement._value_, facts.name, operands, (), "none", site)
        if len(ledger.external_sites) < len(ledger.externals):
            ledger.note_readers(facts.name, site)
        if facts.seeded and not without_dropout(facts, args, kwargs):
            self._note_generator(kwargs)
        if facts.written:
            self._note_writes(written_operands(facts, args, kwargs), counted=facts.mutable)
        return event, tensors, tokens, placement

    def _are_at_home(self, tensors: list[torch.Tensor], tokens: list[Token]) -> bool:
        """Whether all operands are on the device whose operations are captured, known as the call's."""
        if self._on_host:
            return all([token.look.on_host for token in tokens])
        index = self._index
        return index >= 0 and all([tensor.get_device() == index and tensor.is_cuda for tensor in tensors])

    def _detached(self, func: Any, tensor: torch.Tensor) -> Any:
        """An alias is no event: autograd makes some of its own, and not the same ones under hooks."""
        self.ledger.token(tensor)
        self.ledger.note_readers("aten::detach", user_site())
        return func(tensor)

    def _higher_order(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An operator over Python functions (``torch.cond``): nothing of the call is recorded."""
        text = f"{func} takes Python functions"
        self.block(reason(rules.UNSUPPORTED_TENSOR, text, user_site()))
        return self._seen(func, *args, **kwargs)

    def _place(
        self, facts: Facts, tensors: list[torch.Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Placement:
        number = filled_in(facts, args, kwargs)
        fills = number is not None and number.is_cpu and self.ledger.origin(number) in self._constants
        placement = place(facts, tensors, kwargs, self._on_host, fills=fills)
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

    def _note_devices(self, tensors: list[torch.Tensor]) -> None:
        for tensor in tensors:
            if not tensor.is_cpu:
                self.devices.add(tensor.device)
                self._index = tensor.get_device()

    def _note_generator(self, kwargs: dict[str, Any]) -> None:
        self.node.pure = False
        generator = kwargs.get("generator")
        if isinstance(generator, torch.Generator):
            self.generators[id(generator)] = generator

    def _note_writes(self, written: list[torch.Tensor], *, counted: bool = True) -> None:
        for tensor in written:
            origin = self.ledger.origin(tensor)
            if origin is not None and origin[0] is not NEW and origin not in self.write_sites:
                self.write_sites[origin] = user_site()
            if origin is not None and counted:
                self.counted.add(origin)
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

    def _after(
        self, event: Event, facts: Facts, tensors: list[torch.Tensor], tokens: list[Token], out: Any
    ) -> None:
        """All that is noted of an operation once it has run."""
        if facts.reshapes:
            self._check_metadata(event, tensors, tokens)
        made = self.ledger.made
        if type(out) is torch.Tensor:
            event.shape = "one"
            event.results = (self._result(event, out, tensors, self._expected_look(tokens)),)
        else:
            event.shape, parts = results_of(out)
            event.results = tuple([self._result(event, part, tensors) for part in parts])
        new = self.ledger.made - made == len(event.results)  # then none of them is a view
        if not new and event.kind == ev.CAPTURED and not facts.mutable and is_view(event, tokens):
            event.kind = ev.VIEW
        self._meet(event)

    def _check_metadata(self, event: Event, tensors: list[torch.Tensor], tokens: list[Token]) -> None:
        """An operation that gives a tensor made outside another shape would do so to a copy of it."""
        for tensor, token in zip(tensors, tokens, strict=True):
            if token[0][0] is NEW or not token.shape:
                continue
            if tensor.shape != token.shape or tensor.stride() != token.stride:
                text = f"{event.operation} changes the shape of a tensor made outside the call"
                self.block(reason(rules.RESHAPED, text, event.site))

    def _recorded(
        self,
        event: Event,
        known: Overload,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tensors: list[torch.Tensor],
        placement: Placement,
    ) -> Any:
        tape, func = self.tape, known.func
        assert tape is not None
        if placement is _CAPTURED:
            try:
                if not self._on_host:
                    func, args = without_copies(tape.capture, func, args, self._device)
                if (
                    tape.executes or not known.seen
                ):  # a replay that executes runs the kernel's Python code again
                    return tape.capture(func, args, kwargs)
                return self._seen(tape.capture, func, args, kwargs)
            except MemoryShortageError as error:
                return self._without_memory(tape, error, func, args, kwargs)
            except CaptureError:
                self.node.refused.add(self.index)
                if not tape.executes:
                    raise RestartError(event.operation) from None
        refused = self.index in self.node.refused  # where what was captured so far has run, it ends a segment
        code = rule_of(func, placement, refused, tensors).code
        self.node.pure = False
        return self._seen(tape.island, event, func, args, kwargs, code, early=placement is Placement.EARLY)

    def _without_memory(
        self, tape: SegmentTape, error: MemoryShortageError, func: Any, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """There was no memory for an operation: make room and try once more, else record no further.

        Where captured operations have not run, the call goes back to where the segment began. Elsewhere the
        operation itself is tried again, if it has no effect but its result; when that fails too, the rest of
        the call runs as in eager, where it may still find memory.
        """
        if not tape.executes:
            tape.shortage = str(error)
            raise RestartError(tape.shortage) from None
        facts = facts_of(func)
        if facts.mutable or facts.written or facts.seeded:
            raise (error.__cause__ or error) from None
        if tape.make_room():
            try:
                return tape.capture(func, args, kwargs)
            except MemoryShortageError as again:
                error = again
        tape.shortage = str(error)
        tape.abort()
        self.tape, self.mode = None, Mode.OBSERVE
        return self._seen(func, *args, **kwargs)

    def _result(self, event: Event, part: Any, tensors: list[torch.Tensor], like: Look | None = None) -> Any:
        """A token; the position of the operand that the result is; or None where there is nothing to hold."""
        if not isinstance(part, torch.Tensor):
            return None
        for position, tensor in enumerate(tensors):
            if tensor is part:
                return position
        if part.is_meta:
            return None
        return self.ledger.result(part, event.operation, event.site, like=like)

    def _branch(self, event: Event, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if event.kind == ev.READ and self.mode is not Mode.FOLLOW:
            self._note_optimizer(args[0], event.site)
        checks = facts_of(func).checks
        read = caught(func) if checks else func

        def run() -> Any:
            return read(*args, **kwargs)

        def keep() -> Any:
            return kept_call(read, args, kwargs, self.aliases)

        rule = rules.REFUSED if checks else None
        out = self.branch(event, run, keep, shaped=event.kind == ev.SHAPED, rule=rule)
        if isinstance(out, Raised):
            raise out.again()
        return out

    def _note_optimizer(self, tensor: torch.Tensor, site: Site) -> None:
        """An optimizer reads on the host: a count it keeps blocks; a learning rate may have many values."""
        running = stepping()
        if running is None:
            self.node.excess = self.node.excess or average_reason(site)
            return
        origin = self.ledger.origin(tensor)
        if origin is not None and origin[0] is EXTERNAL and origin[1] in self.written_externals:
            why = count_reason(running, tensor, site)
            if why is not None:
                self.block(why)
        elif self.node.excess is None:
            self.node.excess = rate_read_reason(running, site)
