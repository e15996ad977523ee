"""How a traced call makes tensors from host data.

Plain values make constants: the recording keeps the tensor and copies it at each replay. So do numpy arrays
that the call has made, if it does not change them afterwards. Arrays over the memory of tensors, as those
among the arguments are, give tensors over that memory. Other arrays are external memory, read in place
(``from_numpy``) or copied again at each replay (``torch.tensor``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch

from ...base import Site, user_site
from ...hazards import rules
from ...hazards.rules import Reason, reason
from ..numbers import TrackedNumbers
from ..objects import form_of, pointer_of, tensor_over
from ..operators import ScriptCall, facts_of, made_by_script, replaced_in, tensors_of
from ..program import ArrayMemory, Operand, Operation, Origin, StorageTable, address_range, content_of
from ..program import operations as ops
from ..pytorch import unseen_functions
from ..recording import OperationCall
from .elements import PUT
from .path import CHANGED, BuiltArray, Cursor, Follower, Mode, Writes

_WRITTEN = "an array over the memory of a tensor is written after numpy has read it, or the tensor is"


class Lent(NamedTuple):
    """A tensor over the memory of an array, with a copy of what it held then, and what a change says."""

    tensor: torch.Tensor
    kept: torch.Tensor
    changed: Reason

    @classmethod
    def made(cls, tensor: torch.Tensor, kept: torch.Tensor) -> Lent:
        """One that was made of the array here."""
        return cls(tensor, kept, reason(rules.HOST_DATA, CHANGED, user_site()))


def _looks_like(array: Any, tensor: torch.Tensor) -> bool:
    """Whether an array has the shape and the type of a tensor still: both may be set in place."""
    kind = str(tensor.dtype).removeprefix("torch.")
    return array.shape == tuple(tensor.shape) and array.dtype.name == kind


def _looking_at(under: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """A tensor over the storage of another one, at the memory at which a third one looks."""
    storage = under.untyped_storage()
    offset = (tensor.data_ptr() - storage.data_ptr()) // tensor.itemsize
    with unseen_functions():
        return torch.empty(0, dtype=tensor.dtype).set_(storage, offset, tensor.shape, tensor.stride())


def _in_own_memory(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor that replays may write: one over the memory of an array is copied, as that is the caller's."""
    if tensor.untyped_storage().resizable():
        return tensor
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor)


class HostTensors:
    """The tensors that a call makes from host data.

    Args:
        given: The tensors over the memory of arrays among the arguments.
        numbers: The numbers and arrays that are followed.

    Attributes:
        arrays: Addresses of arrays from outside that become tensors, each with the line.
        read: Tensors of which the call has arrays whose numbers were read, by where their memory is from.
    """

    def __init__(
        self,
        cursor: Cursor,
        follower: Follower,
        writes: Writes,
        has_made: Callable[[int], bool] | None,
        given: Sequence[torch.Tensor] = (),
        numbers: TrackedNumbers | None = None,
    ) -> None:
        self._numbers = numbers if numbers is not None and numbers.follows else None
        self.arrays: dict[int, Site] = {}
        self._under_arrays = list(given)
        self._made_of = dict[int, tuple[Any, torch.Tensor]]()  # arrays of the call's tensors, by identity
        self._cursor = cursor
        self._follower = follower
        self._writes = writes
        self._has_made = has_made
        self._lent: list[Lent] = []
        self._over_given: dict[Origin, Any] = {}
        self.read: dict[Any, Lent] = {}

    def aside(self, call: Any) -> Any:
        """Run code that is no part of the call, even while a segment is open."""
        tape = self._cursor.tape

        def run() -> Any:
            with tape.session.aside() if tape is not None and tape.is_open else nullcontext():
                return call()

        return self._cursor.quietly(run)

    def lend(self, tensor: torch.Tensor, array: Any, *, read: bool = False) -> None:
        """The call has made an array over the memory of a tensor; if it was read, it is not to change."""
        with unseen_functions():
            self._cursor.storages.token(tensor)
            under = self.aside(tensor.detach)
        self._made_of[id(array)] = array, under
        self._under_arrays.append(under)
        if read:
            why = reason(rules.MEMORY_ESCAPE, _WRITTEN, user_site())
            self._lent.append(Lent(under, self.aside(under.clone), why))
            self.read[self._cursor.storages.origin(under)] = self._lent[-1]

    def check(self, operands: Iterable[torch.Tensor]) -> None:
        """An operation takes these: what numpy has read of one may have been written since, unseen."""
        for origin in {self._cursor.storages.origin(each) for each in operands} & self.read.keys():
            lent = self.read[origin]
            with unseen_functions():
                same = self.aside(lambda lent=lent: content_of(lent.tensor) == content_of(lent.kept))
            if not same:
                self._cursor.block(lent.changed)

    def under(self, array: Any) -> torch.Tensor | None:
        """A tensor over the memory of an array, if that lies over a tensor's."""
        return self.aside(lambda: self.under_array(tensor_over(array)))

    def under_made(self, array: Any) -> torch.Tensor | None:
        """The same for an array that the call has made of a tensor, and for views of such."""
        made = self._made_of.get(id(array))
        if made is not None and made[0] is array and _looks_like(array, made[1]):
            return made[1]
        return self.under(array) if array.base is not None and form_of(array) is not None else None

    def under_array(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """For a tensor over an array's memory one over a tensor's, if the array lies over that."""
        start, end = address_range(tensor)
        for under in self._under_arrays:
            first, last = address_range(under)
            if first <= start < end <= last:
                return self.aside(lambda under=under: _looking_at(under, tensor))
        return None

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

    def _recalled(self, operation: Operation) -> torch.Tensor:
        """The tensor that a call which follows gets."""
        tensor = self._follower.recall(self._cursor.expect(operation).results[0], [], operation)
        self._cursor.passed()
        return tensor

    def is_made(self, pointer: int) -> bool:
        """Whether an array that the call has made lies at an address.

        A call that is not followed has it where an earlier one has computed the array: what it holds is
        compared. Where nothing is noted it is as in the earlier call.
        """
        cursor = self._cursor
        known = cursor.node.operations
        expected = known[cursor.index] if cursor.index < len(known) else None
        computed = expected is not None and expected.computes
        if self._has_made is not None:
            return (cursor.resolves and computed) or self._has_made(pointer)
        return computed or (expected is not None and expected.kind == ops.CONST)

    def lend_array(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        """A tensor over the memory of an array that the call has made."""
        cursor = self._cursor
        with unseen_functions():  # function modes are active here, and these functions are not the call's
            kept = self.aside(tensor.clone)
            self._lent.append(Lent.made(tensor, kept))
            made = self.host_tensor(tensor if cursor.mode is Mode.OBSERVE else kept, name)
            self._writes.know_array(made)
            return made

    def changed_arrays(self) -> list[Reason]:
        """Reasons for arrays that have changed since tensors were made of them, or they were read."""
        changed = [each.changed for each in self._lent if content_of(each.tensor) != content_of(each.kept)]
        for held in (
            self._lent,
            self._made_of,
            self._under_arrays,
            self._over_given,
            self.read,
        ):  # or they outlive the call
            held.clear()
        return changed

    def copy_array(self, operation: Operation, pointer: int, build: Any) -> torch.Tensor:
        """A tensor copied from a numpy array: copied again at each replay."""
        cursor = self._cursor
        self.arrays[pointer] = operation.site
        if cursor.mode is Mode.FOLLOW:
            return self._recalled(operation)
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

        The recording keeps the tensor and copies it at each replay, since the callable may write into it.
        This may run above the dispatcher.
        """
        cursor = self._cursor
        content = data if data is not None else cursor.quietly(lambda: content_of(tensor))
        operation = Operation.called(ops.CONST, name, (content,), (), user_site())
        if cursor.mode is Mode.FOLLOW:
            tensor = self._recalled(operation)
            self._writes.know_constant(tensor)
            return tensor
        if cursor.mode is Mode.RECORD:
            cursor.node.constants[cursor.index] = tensor
            if tensor.device.type == cursor.device.type:  # nothing in a segment can write one of the host
                tensor = self._copied(tensor)
        token = cursor.storages.result(tensor, operation.name, operation.site)
        self._writes.know_constant(tensor)
        cursor.meet(operation.ended("one", (token,)))
        return tensor

    @property
    def writes_at_position(self) -> bool:
        """Whether an earlier call has written here at a position that changes."""
        cursor = self._cursor
        known = cursor.node.operations
        return cursor.index < len(known) and known[cursor.index].name == PUT

    def computed_tensor(
        self,
        tensor: torch.Tensor,
        name: str,
        data: Operand,
        build: Callable[[], torch.Tensor],
        made: Callable[[], OperationCall] | None,
    ) -> torch.Tensor:
        """A tensor built from numbers that change: built again at each replay, in a call that is followed.

        Args:
            data: What it is made of.
            build: Makes it again.
            made: Tells an operation that makes it, with its operands, if there is one that can be captured.
        """
        cursor = self._cursor
        operation = Operation.called(ops.HOST, name, (data,), (), user_site())
        if cursor.mode is Mode.FOLLOW:
            return self._recalled(operation)
        if cursor.mode is Mode.RECORD:
            captured = self._captured(made) if made is not None else None
            cursor.node.pure &= captured is not None
            tensor = captured if captured is not None else self._rebuilt(operation, build)
        token = cursor.storages.result(tensor, operation.name, operation.site)
        cursor.meet(operation.ended("one", (token,)))
        return tensor

    def _captured(self, made: Callable[[], OperationCall]) -> torch.Tensor | None:
        """What an operation makes of numbers, captured; None if it cannot be."""
        call, cursor = self.aside(made), self._cursor
        func, args, kwargs = call
        if not cursor.quietly(lambda: cursor.takes_numbers(facts_of(func), args, kwargs)):
            return None
        cursor.node.made[cursor.index] = call
        return cursor.quietly(lambda: cursor.recorder.capture(cursor, func, args, kwargs))

    def array_tensor(
        self, array: Any, tensor: torch.Tensor, name: str, make: Callable[[Any], torch.Tensor]
    ) -> torch.Tensor | None:
        """A tensor made of an array that is followed: made again at each replay. None if it is a constant.

        It may lie in the array's memory, or be over part of it.
        """
        numbers = self._numbers
        built = BuiltArray.of(numbers, array, tensor) if numbers is not None else None
        if numbers is None or built is None:
            return None
        if built.device is None:
            numbers.show(array)
        if built.device is None and self._cursor.mode is Mode.OBSERVE:
            with unseen_functions():
                self._lent.append(Lent.made(tensor, self.aside(tensor.clone)))
        made = self.computed_tensor(tensor, name, built.data(tensor), lambda: make(built.array.value), None)
        if built.device is None:
            self._writes.know_array(made)
            if numbers.is_given(array):
                self._over_given[self._cursor.storages.token(made).origin] = array
        return made

    def given_among(self, kept: Iterable[Origin]) -> list[Any]:
        """The arrays that the call was given over which some memory lies that somebody keeps."""
        return [self._over_given[origin] for origin in kept if origin in self._over_given]

    def _of_followed(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """A tensor over the memory of an array that is followed, made again at each replay."""
        numbers = self._numbers
        if numbers is None or not numbers.has_arrays:
            return None
        strides = tuple([each * tensor.itemsize for each in tensor.stride()])
        for array in (found := numbers.arrays_over(tensor.data_ptr())):
            same = (array.shape, array.strides) == (tuple(tensor.shape), strides)
            if same and pointer_of(array) == tensor.data_ptr() and array.itemsize == tensor.itemsize:
                return self.array_tensor(array, tensor, "from_numpy", torch.from_numpy)
        numbers.pin(*found)
        return None

    def _copied(self, constant: torch.Tensor) -> torch.Tensor:
        cursor, clone = self._cursor, torch.ops.aten.clone.default
        return cursor.quietly(lambda: cursor.recorder.capture(cursor, clone, (constant,), {}))

    def _rebuilt(self, operation: Operation, build: Any) -> torch.Tensor:
        cursor, written = self._cursor, self._writes.on_host()
        tape = cursor.recorder

        def now() -> torch.Tensor:
            with unseen_functions():
                return self.aside(lambda: _in_own_memory(build()))

        return cursor.quietly(lambda: tape.rebuild(cursor, operation, now, build, is_written=written))

    def lifted(self, tensor: torch.Tensor) -> torch.Tensor:
        """Note a tensor that was made below the dispatcher, from an index list or an array's memory."""
        if tensor.is_cpu and not tensor.untyped_storage().resizable():
            under = self.under_array(tensor)
            if under is not None:
                return under
            computed = self._of_followed(tensor)
            if computed is not None:
                return computed
            made = self.is_made(tensor.data_ptr())
            return self.lend_array(tensor, "from_numpy") if made else self.alias_array(tensor)
        with unseen_functions():  # those of ``torch.Tensor([...])`` would see a mode of the call
            return self.host_tensor(tensor, "torch.tensor")


class MadeByScript:
    """The tensors that a function of TorchScript makes unseen, which are constants of the call."""

    def __init__(self, host: HostTensors, storages: StorageTable, call: ScriptCall) -> None:
        self._host = host
        self._storages = storages
        self._given = call.given()
        self._made: list[tuple[torch.Tensor, torch.Tensor]] = []  # each with what stands for it

    def _find(self, tensors: Iterable[Any]) -> bool:
        """Look for such tensors; whether something stands for any of these."""
        found = False
        for each in tensors:
            if self._given is None or not made_by_script(each):
                continue
            handle = each.untyped_storage()._cdata
            known = any([each is was for was, _ in self._made])
            if not known and handle not in self._given and not self._storages.knows(each):
                with unseen_functions():
                    self._made.append((each, self._host.host_tensor(each, "torch.jit")))
                known = True
            found = found or known
        return found

    def taken(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The operands of an operation of the script, with what stands for those tensors."""
        if not self._find(tensors_of(args, kwargs)):
            return args, kwargs
        return replaced_in(args, self._made), {
            key: replaced_in(each, self._made) for key, each in kwargs.items()
        }

    def handed(self, value: Any) -> Any:
        """What the script gives, likewise."""
        return replaced_in(value, self._made) if self._find(tensors_of((value,), {})) else value
