"""The memory and state that a call may change, so that one call can be made twice and count once.

A :class:`Surface` knows the memory of the arguments, the external memory that the recording writes, the
``.grad`` slots and the random generators. A :class:`Moment` is their content at one time; a surface can be
set back to any of its moments.

Memory is copied as bytes through an alias with a version counter of its own, so autograd does not notice when
it is put back. Of an argument the span of its elements is kept (it may be a small view of a large tensor), of
an external tensor the whole storage (the call may write it through another view).

Nobody may hold a gradient that the recording replaces while it replays: the replay would move it for the
holder. So the first moment keeps copies of these gradients, later ones the tensors themselves.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy
import torch

from ..arguments import Call, extent, leaves_of
from ..backends.protocol import Backend
from ..program import group_members
from ..pytorch import has_memory
from ..recording import Recording, copy_of


@dataclass(frozen=True)
class RandomState:
    """The random generators at one moment.

    Attributes:
        tensors: State of each PyTorch generator, by its name in messages.
        generators: The generators of the callable besides the default ones.
        device: The device whose default generator is among ``tensors``.
    """

    tensors: dict[str, torch.Tensor]
    generators: tuple[torch.Generator, ...]
    device: torch.device
    python: Any
    array: Any

    @classmethod
    def read(cls, device: torch.device, generators: Iterable[torch.Generator]) -> RandomState:
        """Read the generators now."""
        tensors = {"PyTorch's random state": torch.get_rng_state()}
        if device.type == "cuda":
            tensors[f"PyTorch's random state on {device}"] = torch.cuda.get_rng_state(device)
        given = tuple(generators)
        for number, generator in enumerate(given):
            tensors[f"the state of generator {number} on {generator.device}"] = generator.get_state()
        array: Any = numpy.random.get_state(legacy=True)
        return cls(tensors, given, device, random.getstate(), array)

    def restore(self, *, on_host: bool = False) -> None:
        """Set PyTorch's generators to this state, with ``on_host`` also Python's and numpy's."""
        host, *rest = self.tensors.values()
        torch.set_rng_state(host)
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(rest.pop(0), self.device)
        for generator, state in zip(self.generators, rest, strict=True):
            generator.set_state(state)
        if on_host:
            random.setstate(self.python)
            numpy.random.set_state(self.array)

    def differing(self, other: RandomState) -> list[str]:
        """Names of PyTorch's generators whose state differs."""
        return [name for name, state in self.tensors.items() if not torch.equal(state, other.tensors[name])]

    def differing_on_host(self, other: RandomState) -> list[str]:
        """Names of Python's and numpy's generators whose state differs; none while other threads may draw."""
        if threading.active_count() > 1:
            return []
        mine, theirs = self.array, other.array
        same = mine[1].tobytes() == theirs[1].tobytes() and mine[2:] == theirs[2:]
        found = ["the state of Python's random module"] if self.python != other.python else []
        return found if same else [*found, "the state of numpy.random"]


ALIGNMENT = 16
"""Spans start at a multiple of it, in bytes, so that tensors of every type fit into a copy of one."""


@dataclass(frozen=True)
class Span:
    """A stretch of memory: an alias of its bytes, its start in the storage, the named tensors in it."""

    memory: torch.Tensor
    start: int
    tensors: list[tuple[str, torch.Tensor]]

    def look(self, tensor: torch.Tensor, copy: torch.Tensor | None = None) -> torch.Tensor:
        """A tensor of the span as plain memory; with ``copy``, the same place in a copy of the span."""
        offset: int = tensor.storage_offset()  # pyright: ignore[reportAssignmentType]
        storage = tensor.untyped_storage()
        if copy is not None:
            offset -= self.start // tensor.itemsize
            storage = copy.untyped_storage()
        fresh = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return fresh.set_(storage, offset, tensor.shape, tensor.stride())


@dataclass
class Moment:
    """The content of a surface at one time.

    Attributes:
        contents: A copy of each span, if they were copied.
        copied: Slots whose tensor here is a copy: it is copied once more when it is put back.
    """

    contents: list[torch.Tensor]
    gradients: list[torch.Tensor | None]
    copied: frozenset[int]
    random: RandomState


class Surface:
    """The memory and state that a call of a recording may change."""

    def __init__(self, recording: Recording, call: Call, backend: Backend) -> None:
        self._backend = backend
        self._generators = (*recording.accesses.generators.values(), *call.generators().values())
        self.spans = _argument_spans(call) + _external_spans(recording)
        self.slots = recording.guard.leaves
        replaced = {id(effect.parameter()) for effect in recording.gradients.effects}
        self._replaced = frozenset(
            position for position, (_, reference) in enumerate(self.slots) if id(reference()) in replaced
        )
        self.handles = {span.memory.untyped_storage()._cdata for span in self.spans}

    def add(self, name: str, tensor: torch.Tensor) -> None:
        """Add a tensor with its whole storage."""
        span = _whole(tensor, [(name, tensor)])
        self.spans.append(span)
        self.handles.add(span.memory.untyped_storage()._cdata)

    def tensors(self) -> list[torch.Tensor]:
        """The named tensors in the spans."""
        return [tensor for span in self.spans for _, tensor in span.tensors]

    def first(self) -> Moment:
        """The moment before a replay; :meth:`complete` has to follow the replay."""
        gradients: list[torch.Tensor | None] = []
        for position, (_, reference) in enumerate(self.slots):
            parameter = reference()
            found = parameter.grad if parameter is not None and position in self._replaced else None
            gradients.append(found.detach().clone() if found is not None else None)
        return Moment(self._contents(), gradients, self._replaced, self._random())

    def complete(self, first: Moment, later: Moment) -> None:
        """Complete the first moment after the replay: slots that it does not replace have not changed."""
        for position, gradient in enumerate(later.gradients):
            if position not in first.copied:
                first.gradients[position] = gradient

    def read(self, *, contents: bool = True) -> Moment:
        """The moment now, with or without copies of the memory."""
        parameters = [reference() for _, reference in self.slots]
        gradients = [parameter.grad if parameter is not None else None for parameter in parameters]
        return Moment(self._contents() if contents else [], gradients, frozenset(), self._random())

    def replaced(self) -> set[int]:
        """Identities of the gradients in the slots that the recording replaces."""
        parameters = [self.slots[position][1]() for position in self._replaced]
        return {id(parameter.grad) for parameter in parameters if parameter is not None}

    def write(self, moment: Moment, *, on_host: bool = False) -> None:
        """Put everything back; Python's and numpy's generators only ``on_host``.

        A replay leaves them alone, and other threads may draw from them.
        """
        for span, content in zip(self.spans, moment.contents, strict=False):
            span.memory.copy_(content)
        self.write_gradients(moment)
        moment.random.restore(on_host=on_host)

    def write_gradients(self, moment: Moment) -> None:
        """Put the gradients back."""
        for position, (_, reference) in enumerate(self.slots):
            parameter, gradient = reference(), moment.gradients[position]
            if parameter is not None and parameter.grad is not gradient:
                copy = gradient is not None and position in moment.copied
                parameter.grad = gradient.clone() if copy and gradient is not None else gradient

    def keep(self, value: Any) -> list[Any]:
        """The leaves of a result, as copies where their memory may be put back."""
        return [self._kept(leaf) for leaf in leaves_of(value)]

    def _kept(self, leaf: Any) -> Any:
        plain = isinstance(leaf, torch.Tensor) and has_memory(leaf) and not leaf.is_meta
        if not plain or leaf.untyped_storage()._cdata not in self.handles:
            return leaf
        return copy_of(leaf.detach()).requires_grad_(leaf.requires_grad)

    def _contents(self) -> list[torch.Tensor]:
        return [span.memory.clone() for span in self.spans]

    def _random(self) -> RandomState:
        return RandomState.read(self._backend.device, self._generators)


def _argument_spans(call: Call) -> list[Span]:
    """One span for each group of arguments that cover common memory."""
    names = call.names()
    spans: list[Span] = []
    for members in group_members(call):
        tensors = [(names[member], call.leaves[member]) for member in members]
        if tensors[0][1].is_meta or not tensors[0][1].numel():
            continue
        start = min(extent(tensor)[0] for _, tensor in tensors) // ALIGNMENT * ALIGNMENT
        end = max(extent(tensor)[1] for _, tensor in tensors)
        memory = _bytes(tensors[0][1].untyped_storage(), start, end)
        spans.append(Span(memory, start, tensors))
    return spans


def _external_spans(recording: Recording) -> list[Span]:
    """The storages made outside that the recording writes."""
    named: dict[int, list[tuple[str, torch.Tensor]]] = {}
    for name, tensor in recording.guard.python.tensors.named():
        named.setdefault(tensor.untyped_storage()._cdata, []).append((name, tensor))
    spans: list[Span] = []
    written = [
        tensor for reference in recording.accesses.writes.values() if (tensor := reference()) is not None
    ]
    for tensor in (*written, *recording.accesses.written_arrays.values()):
        if tensor.numel():
            default = [("an array" if tensor.is_cpu else "a tensor made outside the call", tensor.detach())]
            spans.append(_whole(tensor, named.get(tensor.untyped_storage()._cdata, default)))
    return spans


def _whole(tensor: torch.Tensor, tensors: list[tuple[str, torch.Tensor]]) -> Span:
    storage = tensor.untyped_storage()
    return Span(_bytes(storage, 0, storage.nbytes()), 0, tensors)


def _bytes(storage: torch.UntypedStorage, start: int, end: int) -> torch.Tensor:
    alias = torch.empty(0, dtype=torch.uint8, device=storage.device)
    return alias.set_(storage, start, (end - start,), (1,))
