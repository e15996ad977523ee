"""Host data becoming tensors, as the tracer handles it.

Plain values make constants: the recording keeps the tensor and copies it afresh at each replay. So do numpy
arrays that the call has made, as long as it leaves them alone afterwards. Other arrays are external memory,
read in place (``from_numpy``) or copied again at each replay (``torch.tensor``).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch

from ...base import Site, user_site
from ...hazards import rules
from ...hazards.rules import Reason, reason
from ..program import ArrayMemory, Operand, Operation, content_of
from ..program import operations as ops
from ..pytorch import unseen_functions
from .path import CHANGED, Cursor, Follower, Mode, Writes


class Lent(NamedTuple):
    """A tensor over the memory of an array that the call has made.

    Attributes:
        tensor: The tensor.
        kept: What it held when it was made.
        site: The user's line.
    """

    tensor: torch.Tensor
    kept: torch.Tensor
    site: Site


class HostTensors:
    """The tensors that a call makes from host data.

    Args:
        cursor: Where the call is.
        follower: The path that it follows.
        writes: What it writes.
        has_made: Whether an array that the call has made lies at an address; None if nothing is noted.

    Attributes:
        arrays: Addresses of arrays from outside that become tensors, with the lines where they do.
    """

    def __init__(
        self,
        cursor: Cursor,
        follower: Follower,
        writes: Writes,
        has_made: Callable[[int], bool] | None,
    ) -> None:
        self.arrays: dict[int, Site] = {}
        self._cursor = cursor
        self._follower = follower
        self._writes = writes
        self._has_made = has_made
        self._lent: list[Lent] = []

    def aside(self, call: Any) -> Any:
        """Run something that is no part of the call, also while a segment is open."""
        tape = self._cursor.tape

        def run() -> Any:
            with tape.session.aside() if tape is not None and tape.is_open else nullcontext():
                return call()

        return self._cursor.quietly(run)

    def alias_array(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor over a numpy array's memory: external, and read where it is."""
        cursor = self._cursor
        site = user_site()
        self.arrays[tensor.data_ptr()] = site
        memory = ArrayMemory(tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
        operation = Operation.called(ops.HOST, "from_numpy", (memory,), (), site)
        cursor.storages.add_host_memory(tensor)
        token = cursor.storages.token(tensor)
        if cursor.mode is Mode.FOLLOW:
            cursor.expect(operation)
            cursor.passed()
        else:
            cursor.meet(operation.ended("one", (token,)))
        return tensor

    def is_made(self, pointer: int) -> bool:
        """Whether an array that the call has made lies at an address."""
        cursor = self._cursor
        if self._has_made is not None:
            return self._has_made(pointer)
        known = cursor.node.operations  # nothing is noted: as in the call that this one is known by
        return cursor.index < len(known) and known[cursor.index].kind == ops.CONST

    def lend_array(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        """A tensor over the memory of an array that the call has made."""
        cursor = self._cursor
        with unseen_functions():  # PyTorch makes it where functions are seen, and ours are none of the call's
            kept = self.aside(tensor.clone)
            self._lent.append(Lent(tensor, kept, user_site()))
            made = self.host_tensor(tensor if cursor.mode is Mode.OBSERVE else kept, name)
            self._writes.know_array(made)
            return made

    def changed_arrays(self) -> list[Reason]:
        """Why arrays that the call has made are no constants: they have changed since tensors were made."""
        changed = [each.site for each in self._lent if content_of(each.tensor) != content_of(each.kept)]
        self._lent.clear()  # or they were alive after the call
        return [reason(rules.HOST_DATA, CHANGED, site) for site in changed]

    def copy_array(self, operation: Operation, pointer: int, build: Any) -> torch.Tensor:
        """A tensor copied from a numpy array: copied again at each replay."""
        cursor = self._cursor
        self.arrays[pointer] = operation.site
        if cursor.mode is Mode.FOLLOW:
            tensor = self._follower.recall(cursor.expect(operation).results[0], [], operation)
            cursor.passed()
            return tensor
        if cursor.mode is Mode.RECORD:
            cursor.node.pure = False
            tensor = self._rebuilt(operation, build)
        else:
            tensor = self.aside(build)
        token = cursor.storages.result(tensor, operation.name, operation.site)
        cursor.meet(operation.ended("one", (token,)))
        return tensor

    def host_tensor(self, tensor: torch.Tensor, name: str, data: Operand | None = None) -> torch.Tensor:
        """A tensor built from plain host data, which are constant as long as the guard holds.

        The recording keeps the tensor and makes a fresh copy of it at each replay, since the callable may
        write into what it got.
        """
        cursor = self._cursor
        # We may be above the dispatcher here.
        content = data if data is not None else cursor.quietly(lambda: content_of(tensor))
        operation = Operation.called(ops.CONST, name, (content,), (), user_site())
        if cursor.mode is Mode.FOLLOW:
            tensor = self._follower.recall(cursor.expect(operation).results[0], [], operation)
            self._writes.know_constant(tensor)
            cursor.passed()
            return tensor
        if cursor.mode is Mode.RECORD:
            cursor.node.constants[cursor.index] = tensor
            tensor = self._copy_constant(tensor)
        token = cursor.storages.result(tensor, operation.name, operation.site)
        self._writes.know_constant(tensor)
        cursor.meet(operation.ended("one", (token,)))
        return tensor

    def _copy_constant(self, constant: torch.Tensor) -> torch.Tensor:
        cursor = self._cursor
        if constant.device.type != cursor.device.type:  # a host tensor: nothing in a segment can write it
            return constant
        clone = torch.ops.aten.clone.default  # we may be above the dispatcher here
        return cursor.quietly(lambda: cursor.recorder.capture(clone, (constant,), {}))

    def _rebuilt(self, operation: Operation, build: Any) -> torch.Tensor:
        written, now = self._writes.on_host(), lambda: self.aside(build)
        tape = self._cursor.recorder
        return self._cursor.quietly(lambda: tape.rebuild(operation, now, build, is_written=written))

    def lifted(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor made from host data below the dispatcher: from an index list, or an array's memory."""
        if tensor.is_cpu and not tensor.untyped_storage().resizable():
            made = self.is_made(tensor.data_ptr())
            return self.lend_array(tensor, "from_numpy") if made else self.alias_array(tensor)
        return self.host_tensor(tensor, "torch.tensor")
