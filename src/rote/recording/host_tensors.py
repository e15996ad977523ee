"""Host data becoming tensors, as the tracer handles it.

Plain values make constants: the recording keeps the tensor and copies it afresh at each replay. So do numpy
arrays that the call has made, as long as it leaves them alone afterwards. Other arrays are external memory,
read in place (``from_numpy``) or copied again at each replay (``torch.tensor``).
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch

from ..base.location import user_site
from ..hazards import rules
from ..hazards.rules import Reason, reason
from ..signature.compat import unseen_functions
from . import events as ev
from .cursor import Lent, Mode
from .events import Event
from .follower import Follower
from .operands import content_of

CHANGED = "a numpy array made inside the call is changed after it became a tensor"
"""Why such an array is no constant."""


class HostTensors(Follower):
    """A follower that knows tensors made from host data."""

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

    def is_made(self, pointer: int) -> bool:
        """Whether an array that the call has made lies at an address."""
        if self._has_made is not None:
            return self._has_made(pointer)
        events = self.node.events  # nothing is noted: as in the call that this one is known by
        return self.index < len(events) and events[self.index].kind == ev.CONST

    def lend_array(self, tensor: torch.Tensor, operation: str) -> torch.Tensor:
        """A tensor over the memory of an array that the call has made."""
        with unseen_functions():  # PyTorch makes it where functions are seen, and ours are none of the call's
            kept = self.aside(tensor.clone)
            self._lent.append(Lent(tensor, kept, user_site()))
            made = self.host_tensor(tensor if self.mode is Mode.OBSERVE else kept, operation, kept)
            origin = self.ledger.origin(made)
            self._over_arrays |= {origin} if origin is not None else set()
            return made

    def changed_arrays(self) -> list[Reason]:
        """Why arrays that the call has made are no constants: they have changed since tensors were made."""
        changed = [each.site for each in self._lent if content_of(each.tensor) != content_of(each.kept)]
        self._lent.clear()  # or they were alive after the call
        return [reason(rules.HOST_DATA, CHANGED, site) for site in changed]

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

        The recording keeps the tensor and makes a fresh copy of it at each replay, since the callable may
        write into what it got.
        """
        content = self.quietly(lambda: content_of(data))  # we may be above the dispatcher here
        event = Event(ev.CONST, operation, content, (), "one", user_site())
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
            return self.tape.rebuild(
                event, lambda: self.aside(build), build, is_written=self._has_written_host_memory()
            )
        finally:
            self._suspended = False

    def _has_written_host_memory(self) -> bool:
        """Whether the call has written memory of the host that was there before: an array may lie there."""
        externals = self.ledger.externals
        return any([externals[number].is_cpu for number in self.written_externals])

    def _know_constant(self, tensor: torch.Tensor) -> None:
        origin = self.ledger.origin(tensor)
        if origin is not None:
            self._constants.add(origin)

    def _lifted(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor made from host data below the dispatcher: from an index list, or an array's memory."""
        if tensor.is_cpu and not tensor.untyped_storage().resizable():
            made = self.is_made(tensor.data_ptr())
            return self.lend_array(tensor, "from_numpy") if made else self.alias_array(tensor)
        return self.host_tensor(tensor, "torch.tensor", tensor)
