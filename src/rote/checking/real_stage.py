"""The stage of ``--real``: real tensors on the host, for callables whose branches depend on values.

Host tensors stand for device tensors, as they do on rote's host backend. Tensors that the call makes without
``device=`` count as host tensors; copies between the two cannot be told from no copy at all where PyTorch
does nothing, so ``.to()`` and ``.cpu()`` are seen by name.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy
import torch
from torch.overrides import TorchFunctionMode

from ..base.errors import EnvironmentError_
from ..hazards import rules
from ..hazards.finding import Severity
from ..hazards.rules import trial as trial_rules
from ..partition.facts import Facts, facts_of, written_operands
from ..partition.fills import filled_in, is_mask
from ..recording.compat import composite_call, innermost
from ..signature.compat import is_lazy_zero, resolve_lazily
from ..signature.modes import DispatchMode
from ..signature.snapshot import Snapshot
from .notes import Notes
from .observed import Observed
from .operands import plain, short, shown, tensors_in
from .places import Place, here
from .raised import Raised
from .standins import refuse_lazy
from .steps import is_step_count
from .storages import Memory, Storages
from .synchronous import why_it_is_refused

_Tensor: Any = torch.Tensor
_BUILDERS = frozenset({torch.tensor, torch.as_tensor, torch.asarray, _Tensor.new_tensor})
_LISTS = frozenset({_Tensor.tolist, _Tensor.numpy, _Tensor.__array__, _Tensor.__dlpack__})


class RealTrial(DispatchMode):
    """Dispatch mode that watches real operations."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.arguments: Storages[str] = Storages()
        self.begin()

    def begin(self, wanted: frozenset[int] = frozenset()) -> None:
        """A new run begins."""
        self.notes = Notes()
        self.raised = Raised()
        self.trace: list[tuple[str, Any]] = []
        self.hosted = Memory()
        self.device_given = 0
        self.wanted = wanted
        self.places: dict[int, Place] = {}

    def lies_there(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor stands for one on the device."""
        return tensor.layout is torch.strided and innermost(tensor) not in self.hosted

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = kwargs or {}
        resolve_lazily()
        if not isinstance(func, torch._ops.OpOverload):
            return func(*args, **options)
        parts = composite_call(func) if torch.is_inference_mode_enabled() else None
        if parts is not None:
            with self:
                return parts(*args, **options)
        facts = facts_of(func)
        tensors = tensors_in(args, options)
        there = any(self.lies_there(tensor) for tensor in tensors) or (not tensors and self.device_given > 0)
        if there and not facts.hidden:
            self._look(facts, args, options, tensors)
        try:
            out = func(*args, **options)
        except Exception as error:
            self.raised.add(str(func), error)
            raise
        if not there and not any(map(is_lazy_zero, tensors_in((out,), {}))):  # which lies nowhere
            self.host(out)
        return out

    def host(self, out: Any) -> None:
        """Take results to lie on the host."""
        for part in tensors_in(out if isinstance(out, tuple) else (out,), {}):
            self.hosted.add(innermost(part))

    def _look(
        self, facts: Facts, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[torch.Tensor]
    ) -> None:
        if (facts.reads or facts.beside) and tensors:
            self._note_read(tensors[0])
        if facts.reads:
            return
        if len(self.trace) in self.wanted:
            self.places[len(self.trace)] = here()
        self.trace.append((facts.name, (plain(args), plain(tuple(kwargs.items())))))
        masks = [index for index in args[1] if is_mask(index)] if facts.indexed else []
        number = filled_in(facts, args, kwargs)
        if masks and (number is None or number.dim()):
            text = "a mask selects elements, and the host has to know how many"
            self.notes.add(rules.DYNAMIC_SHAPE, text, evidence=f"of {shown(masks[0])}")
        elif facts.dynamic and not (facts.indexed or facts.beside) and kwargs.get("output_size") is None:
            text = f"the shape of what {short(facts.name)} returns depends on values"
            self.notes.add(rules.DYNAMIC_SHAPE, text, evidence=f"of {shown(tensors[0])}")
        text = why_it_is_refused(facts)
        if text is not None:
            self.notes.add(rules.REFUSED, text, severity=Severity.STOPS)
        for tensor in written_operands(facts, args, kwargs):
            name = self.arguments.get(tensor)
            if name is not None:
                text = f"{short(facts.name)} changes {name} in place"
                self.notes.add(rules.ARGUMENT_MUTATED, text, evidence=shown(tensor))
        self._note_mixture(facts, tensors)

    def _note_mixture(self, facts: Facts, tensors: list[torch.Tensor]) -> None:
        apart = [tensor for tensor in tensors if tensor.dim() and not self.lies_there(tensor)]
        if apart and not facts.indexed and "copy" not in facts.name:
            text = f"{short(facts.name)} has operands on the device and on the host, which raises"
            self.notes.add(trial_rules.MIXED_DEVICES, text, evidence=f"{shown(apart[0])} is on the host")

    def _note_read(self, tensor: torch.Tensor) -> None:
        if is_step_count(self.notes, tensor, Severity.STOPS):
            return
        evidence = f"{shown(tensor)} with the value {tensor.item()}" if tensor.numel() == 1 else shown(tensor)
        text = "the host reads a tensor, which waits for the device"
        self.notes.add(rules.HOST_READ, text, evidence=evidence)


class RealMask(TorchFunctionMode):
    """What leaves PyTorch above the dispatcher, and which device a tensor is made for."""

    def __init__(self, trial: RealTrial) -> None:
        super().__init__()
        self._trial = trial

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        trial = self._trial
        first = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if func in _LISTS and first is not None and trial.lies_there(first):
            text = f"{func.__name__}() reads a tensor, which waits for the device"
            rule = rules.LIST_READ if func is _Tensor.tolist else rules.MEMORY_ESCAPE
            trial.notes.add(rule, text, evidence=shown(first))
        elif func is _Tensor.__repr__ and first is not None and trial.lies_there(first):
            text = "a tensor is turned into text, which reads its values"
            trial.notes.add(rules.PRINTED, text, evidence=shown(first))
        elif func in (_Tensor.cpu, _Tensor.to) and first is not None and trial.lies_there(first):
            if func is _Tensor.cpu or (args[1:] == ("cpu",)):
                return self._to_host(first)
        elif func in _BUILDERS:
            return self._build(func, args, kwargs)
        given = kwargs.get("device") is not None
        trial.device_given += given
        try:
            return func(*args, **kwargs)
        finally:
            trial.device_given -= given

    def _to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        text = "a tensor is copied to the host, which waits for the device"
        self._trial.notes.add(rules.DEVICE_COPY, text, evidence=shown(tensor))
        copy = tensor.clone()
        self._trial.host(copy)
        return copy

    def _build(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        trial = self._trial
        position = 1 if func is _Tensor.new_tensor else 0
        data = args[position] if len(args) > position else kwargs.get("data", kwargs.get("obj"))
        made = func(*args, **kwargs)
        if isinstance(data, torch.Tensor):
            return made
        if kwargs.get("device") is None and func is not _Tensor.new_tensor:
            trial.host(made)
            return made
        trial.hosted.discard(innermost(made))
        if made.numel():
            text = f"{func.__name__}() builds a tensor on the host and copies it to the device, which waits"
            rule = rules.HOST_DATA if isinstance(data, numpy.ndarray) else rules.CONSTANT
            trial.notes.add(rule, text, evidence=shown(made))
        return made


class RealStage(Observed):
    """Where a callable runs on real host tensors."""

    sees_all = False  # some copies cannot be told from none

    def __init__(self) -> None:
        self._trial = RealTrial()
        self._mask = RealMask(self._trial)
        super().__init__(self._trial)

    @contextmanager
    def building(self) -> Generator[None]:
        """A callable and its arguments are made here; nothing is special about it."""
        yield

    @contextmanager
    def modes(self) -> Generator[None]:
        """What is done with tensors is noted here."""
        with self._mask, self._trial:
            yield

    def prepare(self, snapshot: Snapshot, leaves: list[Any], names: list[str]) -> list[Any]:
        """Take note of the arguments; returns them.

        Raises:
            EnvironmentError_: A tensor lies on a GPU, which a forked process cannot use.
        """
        refuse_lazy(snapshot)
        held = [tensor for entries in snapshot.tensors.values() for _, tensor in entries]
        for name, leaf in zip(names, leaves, strict=True):
            if isinstance(leaf, torch.Tensor):
                held.append(leaf)
                if leaf not in self._trial.arguments:
                    self._trial.arguments.put(leaf, name)
        if any(tensor.is_cuda for tensor in held):
            raise EnvironmentError_(
                "--real runs on host tensors, and the callable has some on a GPU: build it on the host"
            )
        return leaves

    def meet(self, snapshot: Snapshot) -> None:
        """A run begins in this state; devices are as they are."""

    def flip_last(self) -> bool:
        """No value is invented here."""
        return False
