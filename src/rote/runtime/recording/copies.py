"""Copies that the segments of a recording make themselves, and the text of a call with them.

The first segment may take the arguments where they lie, and the last may leave the result in new memory, if
the device has copies as a part of a segment (:mod:`..backends.cuda.graphs.nodes` says why). A tensor
that is no plain run of bytes, lies on another device or follows an island is copied as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import add, le

import torch

from ..arguments import Admission, Source
from ..backends.protocol import CopyingSegment
from ..program import copy_all
from .handing import copy_of
from .inputs import StaticInputs
from .tree import ON_HOST, Step

_address_of = torch.Tensor.data_ptr

_FEW = 8
"""Tensors up to which each is asked by itself; more are asked a little quicker by a function of Python's."""


class Copies:
    """Writes the part of a hot path that moves data.

    Args:
        steps: What the recording replays.
        inputs: The recording's memory for each argument, by the name of the variable that holds the argument.
        outputs: The recording's memory of each tensor of the result that gets new memory.
    """

    def __init__(
        self,
        source: Source,
        steps: Sequence[Step],
        device: torch.device,
        inputs: Mapping[str, torch.Tensor],
        outputs: Sequence[torch.Tensor],
    ) -> None:
        self._source = source
        self._steps = steps
        self._inputs = inputs
        self._segments: dict[int, CopyingSegment] = {}
        self._copied: dict[int, list[str]] = {}
        self._places: set[str] = set()
        self._results: dict[str, torch.Tensor] = {}
        self._makers: dict[str, Callable[[], torch.Tensor]] = {}
        self._names: dict[int, str] = {}
        self._differs = ""
        self._choose(
            {name: tensor for name, tensor in inputs.items() if _is_run_of_bytes(tensor, device)},
            [tensor for tensor in outputs if _is_run_of_bytes(tensor, device)],
        )

    def _choose(self, inputs: Mapping[str, torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        last = len(self._steps) - 1
        for index, step in enumerate(self._steps):
            reads = inputs if index == 0 else {}
            writes = outputs if index == last else []
            if isinstance(step, ON_HOST):
                continue
            segment = step.with_copies(list(reads.values()), writes)
            if segment is None:
                continue
            self._segments[index] = segment  # its copies are those asked for, or none
            taken = list(reads)[: segment.inputs]
            self._places.update(taken)
            self._copied[index] = taken
            for tensor, make in zip(writes, segment.outputs, strict=False):
                name = self._names[id(tensor)] = f"y{len(self._names)}"
                self._results[name], self._makers[name] = tensor, make
                taken.append(name)

    def result(self, tensor: torch.Tensor) -> str | None:
        """The variable that holds the copy of a tensor of the recording; None if no segment makes one."""
        return self._names.get(id(tensor))

    def write_sharing_late(self, admission: Admission) -> bool:
        """Whether it is enough to ask how arguments share memory where they come from new addresses.

        It is where no two share memory and the first segment takes them all: known addresses were apart
        before.
        """
        taken = {admission.leaves[position] for position in admission.apart()}
        if len(taken) < 2 or admission.shares() or not taken.issubset(self._copied.get(0, ())):
            return False
        self._differs = admission.shares_otherwise()
        return True

    def prepare(self) -> None:
        """Write: new memory, and where everything lies. A call refused here has changed nothing."""
        source, constant = self._source, self._source.constant
        for name, make in self._makers.items():
            source.line(f"{name} = {source.call(make)}")
        for index, names in self._copied.items():
            segment = self._segments[index]
            if not names:
                continue
            known, late = constant(segment.known), index == 0 and self._differs
            if len(names) > _FEW:
                source.line(f"at = (*map({constant(_address_of)}, ({', '.join(names)})),)")
            else:
                source.line(f"at = ({', '.join([f'{name}.data_ptr()' for name in names])},)")
            source.line(f"launch{index} = {known}.get(at)")
            source.line(f"if launch{index} is None:")
            source.indent()
            if late:
                extents = [tensor.numel() * tensor.itemsize for tensor in self._taken()]
                source.line(f"alone = {constant(partial(_are_alone, extents))}(at)")
                source.refuse(f"not alone and {self._differs}")
            source.line(f"launch{index} = {constant(segment.aim)}(at)")
            source.refuse(f"launch{index} is None")
            if late:  # memory of two storages may be that of one the next time
                source.line(f"if not alone: {known}.pop(at, None)")
            source.indent(-1)

    def _taken(self) -> list[torch.Tensor]:
        """The recording's memory for the arguments that the first segment takes, in its order."""
        return [self._inputs[name] for name in self._copied.get(0, ()) if name in self._inputs]

    def place(self, inputs: StaticInputs, leaves: list[str]) -> None:
        """Write the copies of the arguments that no segment copies; ``leaves`` are their variables."""
        source, constant, pairs = self._source, self._source.constant, inputs.pairs()
        if pairs is None:
            source.line(f"{constant(inputs.place)}(({', '.join(leaves)},))")
            return
        named = [(leaves[member], tensor) for member, tensor in pairs if leaves[member] not in self._places]
        if len(named) == 1:
            name, tensor = named[0]
            source.line(f"{constant(tensor.copy_)}({name})")
        elif named:
            tensors, names = constant([tensor for _, tensor in named]), ", ".join(name for name, _ in named)
            source.line(f"{constant(copy_all)}({tensors}, [{names}])")

    def launch(self, index: int) -> None:
        """Write the launch of a step; ``stream`` holds what the backend returned when the call was entered.

        Where a launch is refused the call goes on without it (in a thread that has not used the device yet,
        say).
        """
        source, constant = self._source, self._source.constant
        segment, replay = self._segments.get(index), f"{constant(self._steps[index].replay)}()"
        if segment is None:
            source.line(replay)
            return
        launch = f"launch{index}" if self._copied[index] else constant(segment.known[()])
        source.line(f"if {launch}(stream):")
        source.indent()
        if index == 0:
            for name in sorted(self._places):
                source.line(f"{constant(self._inputs[name].copy_)}({name})")
        source.line(replay)
        if index == len(self._steps) - 1:
            for name, tensor in self._results.items():
                source.line(f"{name} = {constant(copy_of)}({constant(tensor)})")
        source.indent(-1)


def _are_alone(extents: Sequence[int], addresses: Sequence[int]) -> bool:
    """Whether no pieces of memory of these sizes overlap at these addresses (more addresses may follow)."""
    ends = sorted(map(add, addresses, extents))
    return all(map(le, ends, sorted(addresses[: len(extents)])[1:]))


def _is_run_of_bytes(tensor: torch.Tensor, device: torch.device) -> bool:
    """Whether a tensor's elements fill one piece of the device's memory."""
    if tensor.device != device or not tensor.numel() or tensor.is_conj() or tensor.is_neg():
        return False
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True
