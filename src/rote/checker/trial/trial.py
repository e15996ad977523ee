"""The trial: the dispatch mode that sees every operation of a call.

Operations on the pretended device run on fake tensors, which have a shape and a type but no memory.
Operations on host tensors run for real, as they do during a capture, so that what the host computes from its
own data (time steps, lengths, tables) has its true values. Where a capture would fail or freeze a value, the
trial takes a note and the call goes on with a possible value, so that no hazard hides another.

The trial does not see kernels launched past PyTorch's dispatcher, the inside of a kernel beyond the table of
operators, or branches that the invented values do not take (the source scan reads those).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

import torch

from ...base import user_site
from ...hazards import rules
from ...hazards.rules import Severity
from ...runtime.capture import count_reason, stepping
from ...runtime.operators import (
    Facts,
    composite_call,
    facts_of,
    filled_in,
    is_mask,
    tensors_of,
    written_operands,
)
from ...runtime.pytorch import DispatchMode
from ...runtime.reads import WATCH
from ..fake import (
    LARGEST,
    PRETENDED,
    FakeMemory,
    FakeTensor,
    Inventor,
    StandIns,
    depends_on_data,
    host_copy,
    lacks_fake,
    without_function_modes,
)
from .known import KnownValues, largest, of_host_kernel
from .notes import TrialNotes
from .operands import TracedOperation, TrialCall, like, replaced, shown
from .places import CodePlace, here
from .transfers import Numbers, note_operand, note_to_device, note_to_host

_aten = torch.ops.aten
_COPIES = frozenset({_aten._to_copy.default, _aten.copy_.default})
_SMALL = 1 << 16  # elements up to which a host tensor is made for real


class Trial(DispatchMode):
    """Dispatch mode for the runs of one check.

    Attributes:
        notes: What the current run has met.
        trace: The operations of the current run.
        made: Host memory that was allocated in the current run.
        building: Tensors are being made for the callable; the first run forgets what was noted then.
        places: The places of the wanted positions in the trace.
        inside: How deep in PyTorch the call is; 0 in the callable's own code, where devices are ``cuda``.
    """

    supports_higher_order_operators = True

    def __init__(self, standins: StandIns, inventor: Inventor) -> None:
        super().__init__()
        self.fake = standins.fake
        self.device = torch.device(PRETENDED, 0)
        self.standins = standins
        self.known = KnownValues(standins)
        self.inventor = inventor
        self.building = self._aside = False
        self.inside = 1
        self.made = FakeMemory()
        self.begin()

    def begin(self, wanted: frozenset[int] = frozenset()) -> None:
        """A new run begins."""
        self.notes = TrialNotes()
        self.trace: list[TracedOperation] = []
        self.standins.keep(self.made)  # what an earlier run made on the host and left somewhere
        self.made, self.pinned, self._numbers = FakeMemory(), FakeMemory(), Numbers(self.on_device)
        self._wanted = wanted
        self.places: dict[int, CodePlace] = {}
        self.inventor.begin()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if self._aside:
            return func(*args, **(kwargs or {}))
        self.inside += 1
        try:
            with WATCH.unheard(), without_function_modes():
                return self._dispatch(func, args, kwargs or {})
        except Exception as error:
            self.notes.add_raised(str(func), error)
            raise
        finally:
            self.inside -= 1

    def _dispatch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not isinstance(func, torch._ops.OpOverload):
            return self._higher_order(func, args, kwargs)
        facts = facts_of(func)
        if facts.hidden:
            return func(*args, **kwargs)
        parts = composite_call(func) if torch.is_inference_mode_enabled() else None
        if parts is not None:
            with self:  # they come back here, one by one
                return parts(*args, **kwargs)
        call = TrialCall(facts, args, kwargs)
        tensors = call.tensors
        if func is _aten.lift_fresh.default and not isinstance(tensors[0], FakeTensor):
            return self._keep(func(*args))  # of Python data, by torch.FloatTensor([...])
        if not all(isinstance(tensor, FakeTensor) for tensor in tensors):
            call = call.replaced(lambda tensor: self.standins.adopt(tensor, self.made))
        if any(self.on_device(tensor) for tensor in call.tensors) or _is_pretended(kwargs.get("device")):
            return self._on_device(call)
        return self._on_host(call)

    @contextmanager
    def aside(self) -> Generator[None]:
        """What runs here is no part of the call."""
        before, self._aside = self._aside, True
        try:
            with WATCH.unheard():
                yield
        finally:
            self._aside = before

    def on_device(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies on the pretended device."""
        return isinstance(tensor, FakeTensor) and cast("Any", tensor).fake_device.type == PRETENDED

    # ------------------------------------------------------------------ host

    def _on_host(self, call: TrialCall) -> Any:
        facts, tensors = call.facts, call.tensors
        fake = any(isinstance(tensor, FakeTensor) for tensor in tensors)
        if facts.seeded and facts.dropout is None:
            self.notes.add(rules.HOST_RANDOM, f"{facts.short} draws on the host, once for all replays")
        if fake and facts.reads:
            return self._answer(facts.op, tensors[0])
        if facts.written:
            self._note_host_writes(call)
        if not fake and tensors:
            return self._keep(call.run())
        out = self._faked(call)
        if fake or any(part.numel() > _SMALL for part in tensors_of((out,), {})):
            return self._keep(out)
        return self._keep(call.run())

    def _keep(self, out: Any) -> Any:
        if not self.building:
            for part in tensors_of(out if isinstance(out, tuple) else (out,), {}):
                self.made.add(part)
        return out

    def _note_host_writes(self, call: TrialCall) -> None:
        for tensor in written_operands(*call):
            if tensor.layout is torch.strided and tensor not in self.made:
                if self._is_step_count(tensor, Severity.WRONG):
                    return
                text = f"{call.facts.short} changes a host tensor, which a replay does not repeat"
                self.notes.add(rules.HOST_OPERATION, text, evidence=shown(tensor), severity=Severity.WRONG)

    # ------------------------------------------------------------------ device

    def _on_device(self, call: TrialCall) -> Any:
        facts, tensors = call.facts, call.tensors
        if (facts.reads or facts.beside) and tensors:
            self._note_read(tensors[0], facts)
        if facts.reads and tensors:
            return self._answer(facts.op, tensors[0])
        self._trace(call)
        self._numbers.note(self.notes, facts, call.args)
        if facts.op in _COPIES:
            copied = self._copy(call)
            if copied is not None:
                return copied
        if facts.written:
            self._note_writes(call)
        if any(not self.on_device(tensor) for tensor in tensors):
            call = self._with_host_operands(call)
        if facts.indexed and any(is_mask(index) for index in call.args[1]):
            return self._masked(call)
        if facts.dynamic and not (facts.indexed or facts.beside) and call.kwargs.get("output_size") is None:
            self._note_dynamic(facts, tensors)
            return self._largest(call)
        if facts.refused is not None:
            shapes = ", ".join(shown(tensor) for tensor in tensors[:2])
            text = f"{facts.short} {facts.refused}"
            self.notes.add(rules.REFUSED, text, evidence=shapes, severity=Severity.STOPS)
        out = self._faked(call)
        if self.known.may_be(facts, tensors):
            self.known.remember(call, out)
        self.inventor.meet(facts.name, tensors, out)
        if facts.op is _aten.scalar_tensor.default:
            self._numbers.add(out)
        return out

    def _trace(self, call: TrialCall) -> None:
        if len(self.trace) in self._wanted:
            self.places[len(self.trace)] = here()
        self.trace.append(TracedOperation.of(call.facts.name, call.args, call.kwargs))

    def _faked(self, call: TrialCall) -> Any:
        if call.kwargs.get("generator") is not None:  # a generator of the host; nothing is drawn anyway
            call = call._replace(kwargs={**call.kwargs, "generator": None})
        try:
            with self.fake:
                return call.run()
        except Exception as error:
            if depends_on_data(error):
                self._note_dynamic(call.facts, call.tensors)
                return self._largest(call)
            if not lacks_fake(error):
                raise
        return self._without_fake(call)

    def _largest(self, call: TrialCall) -> Any:
        """A result whose shape depends on values: the true one if they are known, else the largest."""
        true = self.known.true(call)
        if true is not None:
            return true
        with self.fake:
            return largest(call)

    def _without_fake(self, call: TrialCall) -> Any:
        """The result of an operator without a fake implementation: of its host kernel, or a guess."""
        func = call.facts.op
        if not func._schema.returns:  # a fused optimizer
            return None
        found = of_host_kernel(call)
        if func.namespace != "aten":
            text = f"{call.facts.name} has no fake implementation: nobody can say what a capture does"
            if found is None:
                text += "; its result is taken to be like its first operand"
            self.notes.add(rules.NO_FAKE, text, evidence=", ".join(map(shown, call.tensors[:3])))
        with self.fake:
            return largest(call) if found is None else replaced(found, lambda made: like(made, self.device))

    def _higher_order(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        text = f"{func} takes Python functions: what it runs is not looked into"
        self.notes.add(rules.UNSUPPORTED_TENSOR, text, severity=Severity.UNKNOWN)
        with self.fake:
            return func(*args, **kwargs)

    # ------------------------------------------------------------------ reads

    def _note_read(self, tensor: torch.Tensor, facts: Facts) -> None:
        if self._is_step_count(tensor, Severity.STOPS):
            return
        what = "two tensors are compared on the host" if "equal" in facts.name else "the host reads a tensor"
        self.notes.add(rules.HOST_READ, f"{what}, which waits for the device", evidence=shown(tensor))

    def _is_step_count(self, tensor: torch.Tensor, severity: Severity) -> bool:
        """Whether a tensor counts the steps of the optimizer that is stepping: some keep it on the host.

        If so, it is noted: the rule of the count says more than that of a read.
        """
        running = stepping()
        why = count_reason(running, tensor, user_site()) if running is not None else None
        if why is not None:
            self.notes.add(rules.OPTIMIZER_COUNT, why.message, remedy=why.remedy, severity=severity)
        return why is not None

    def read_value(self, tensor: torch.Tensor) -> Any:
        """The value of a tensor of one element, if possible the true one."""
        known = self.standins.value_of(tensor)
        return known.item() if known is not None else self.inventor.scalar(tensor, user_site())

    def _answer(self, func: Any, tensor: torch.Tensor) -> Any:
        """What an operation returns to the host.

        A truth about several values (``torch.equal``) is True, or False if the callable raised on True.
        """
        truth = str(func._schema.returns[0].type) == "bool"
        if truth and (func is _aten.equal.default or tensor.numel() != 1):
            return self.inventor.truth(None, user_site())
        return self.read_value(tensor) if tensor.numel() == 1 else 1

    # ------------------------------------------------------------------ copies

    def _copy(self, call: TrialCall) -> Any:
        """A copy between host and device; None for one that stays on the device."""
        args, kwargs = call.args, call.kwargs
        into = args[0] if call.facts.op is _aten.copy_.default else None
        source = args[0] if into is None else args[1]
        blocking = not (args[2] if len(args) > 2 else kwargs.get("non_blocking"))
        if into is not None:
            if not self.on_device(into):
                note_to_host(self.notes, source, waits=blocking)
                return into.fill_(1) if not isinstance(into, FakeTensor) else into
            if not self.on_device(source) or (source in self._numbers and not into.dim()):
                note_to_device(self.notes, source, waits=blocking, pinned=source in self.pinned)
            if self.on_device(source):
                return None
            self._note_writes(call)
            self.standins.forget_value(into)
            return into
        target = kwargs.get("device")
        if self.on_device(source):
            if target is None or _is_pretended(target):
                return None
            note_to_host(self.notes, source, waits=blocking)
            return self._keep(self._copy_to_host(source, kwargs.get("dtype") or source.dtype))
        note_to_device(self.notes, source, waits=blocking, pinned=source in self.pinned)
        out = self._faked(call)
        if not isinstance(source, FakeTensor):
            self.standins.know_value(out, source.to(out.dtype))
        return out

    def _copy_to_host(self, source: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """A copy on the host: with the true values if they are known, with invented ones otherwise."""
        known = self.standins.value_of(source)
        if known is not None:
            return known.to(dtype, copy=True)
        if source.numel() <= LARGEST:
            return host_copy(source).to(dtype)
        with self.fake:
            return torch.empty(source.shape, dtype=dtype, device="cpu")

    # ------------------------------------------------------------------ operands, shapes, writes

    def _with_host_operands(self, call: TrialCall) -> TrialCall:
        """Note host tensors among the operands of a device operation, and put them on the device."""
        apart = [tensor for tensor in call.tensors if not self.on_device(tensor)]
        for tensor in apart:
            is_argument = self.standins.is_host_argument(tensor)
            note_operand(self.notes, call.facts, tensor, is_argument=is_argument)
        return call.replaced(self._moved) if any(tensor.dim() for tensor in apart) else call

    def _moved(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.on_device(tensor) or not tensor.dim():
            return tensor
        with self.fake:
            return like(tensor, self.device)

    def _masked(self, call: TrialCall) -> Any:
        facts, args = call.facts, call.args
        masks = [index for index in args[1] if is_mask(index)]
        if facts.stores:
            if not self._numbers.is_number(filled_in(*call)):
                text = "a store through a mask counts the elements on the host"
                self.notes.add(rules.DYNAMIC_SHAPE, text, evidence=f"mask {shown(masks[0])}")
            with self.fake:
                return args[0] if facts.mutable else args[0].clone()
        self._note_dynamic(facts, masks, "a mask selects elements, and the host has to know how many")
        return self._largest(call)

    def _note_dynamic(self, facts: Facts, tensors: list[torch.Tensor], text: str = "") -> None:
        text = text or f"the shape of what {facts.short} returns depends on values"
        self.notes.add(rules.DYNAMIC_SHAPE, text, evidence=f"of {', '.join(map(shown, tensors[:2]))}")

    def _note_writes(self, call: TrialCall) -> None:
        for tensor in written_operands(*call):
            self.standins.forget_value(tensor)
            name = self.standins.argument_name(tensor)
            if name is not None:
                text = f"{call.facts.short} changes {name} in place"
                self.notes.add(rules.ARGUMENT_MUTATED, text, evidence=shown(tensor))


def _is_pretended(device: Any) -> bool:
    return device is not None and torch.device(device).type == PRETENDED
