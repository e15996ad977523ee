"""Memory outside of a call that its operations read, write or draw from."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch.autograd.graph import increment_version

from ...base import Site
from ..arguments import is_borrowed
from ..objects import TensorMark
from ..program import Counted, Slots, are_alone, memory_of_arrays, memory_of_host
from ..pytorch import plain_functions
from ..state import SCRIPTED, Reads

Handles = dict[int, weakref.ref[torch.Tensor]]
"""Tensors by the handle of their storage, not kept alive."""


class Asked:
    """What Python asks of tensors made outside that no operation reads, so that no recording shows it.

    ``[p for p in parameters if p.requires_grad]``, ``table.shape``, ``zero_grad()`` where there is nothing to
    clear: the answers decide what a call does, and may differ at the next one.

    Attributes:
        slots: Tensors whose gradients Python asked for or set, frozen ones included.
        passed: Tensors that autograd has come by without filling their slots; it calls their hooks.
        flags: Python asked whether a tensor requires grad.
    """

    def __init__(self) -> None:
        self.slots: Slots = {}
        self.passed: Slots = {}
        self.flags = False
        self._looked: dict[int, weakref.ref[torch.Tensor]] = {}

    def __copy__(self) -> Asked:
        other = Asked()
        other.slots, other.passed = dict(self.slots), dict(self.passed)
        other.flags, other._looked = self.flags, dict(self._looked)
        return other

    def looked(self) -> list[torch.Tensor]:
        """The living tensors that Python asked for shape, type, or whether they require grad."""
        return [tensor for reference in self._looked.values() if (tensor := reference()) is not None]

    def note_slots(self, slots: Slots, passed: Slots) -> bool:
        """Note whose gradients a call asked for or set, and those passed; whether any of these is new."""
        known = len(self.passed)
        self.slots = {**_alive(slots), **self.slots}
        self.passed = {**_alive(passed), **self.passed}
        return len(self.passed) > known

    def note_looks(self, tensors: list[torch.Tensor], read: set[int], *, flags: bool) -> bool:
        """Note which tensors a call looked at, and whether it asked for flags; returns whether any is new.

        Tensors on storages that operations ``read`` are under guard anyway.
        """
        fresh = {
            id(tensor): weakref.ref(tensor)
            for tensor in tensors
            if id(tensor) not in self._looked and tensor.untyped_storage()._cdata not in read
        }
        more = bool(fresh) or (flags and not self.flags and bool(self._looked or read))
        self._looked.update(fresh)
        self.flags = self.flags or flags
        return more


def _alive(slots: Slots) -> Slots:
    return {key: slot for key, slot in slots.items() if slot[0]() is not None}


@dataclass(frozen=True)
class Accesses:
    """What the calls of one state touch; it grows with every way that a call goes.

    Attributes:
        written: Arguments that are written, by leaf.
        externals: Tensors made outside that operations read or write.
        writes: Those of ``externals`` that operations write.
        sharded: Tensors made outside of which operations write this process's part, by identity.
        apart: Tensors made outside that operations write and that count versions apart from those over
            their memory in ``externals``, by identity.
        readers: The user's line that reads each of ``externals``.
        arrays: Addresses of numpy arrays that become tensors.
        borrowed: Arguments in memory that numpy or others have as well, by leaf.
        filled: Arrays outside to which Python writes numbers that replays compute, by identity.
        written_arrays: Tensors on such arrays that a recorded call writes, by address.
        sites: The lines that write arguments and tensors made outside, by origin and number.
        rebound: Those of ``writes`` that get other memory in a plain call, by identity.
        in_scripts: Tensors that modules of TorchScript hold in C++, by identity.
        generators: Random generators from outside that are drawn from, by address.
        asked: What Python asks of tensors made outside that no operation reads.
    """

    written: set[int] = field(default_factory=set[int])
    externals: Handles = field(default_factory=dict[int, weakref.ref[torch.Tensor]])
    writes: Handles = field(default_factory=dict[int, weakref.ref[torch.Tensor]])
    sharded: dict[int, weakref.ref[torch.Tensor]] = field(
        default_factory=dict[int, weakref.ref[torch.Tensor]]
    )
    apart: dict[int, weakref.ref[torch.Tensor]] = field(default_factory=dict[int, weakref.ref[torch.Tensor]])
    readers: dict[int, Site] = field(default_factory=dict[int, Site])
    arrays: set[int] = field(default_factory=set[int])
    borrowed: set[int] = field(default_factory=set[int])
    filled: dict[int, Any] = field(default_factory=dict[int, Any])
    written_arrays: dict[int, torch.Tensor] = field(default_factory=dict[int, torch.Tensor])
    sites: dict[tuple[str, int], Site] = field(default_factory=dict[tuple[str, int], Site])
    generators: dict[int, torch.Generator] = field(default_factory=dict[int, torch.Generator])
    rebound: dict[int, weakref.ref[torch.Tensor]] = field(
        default_factory=dict[int, weakref.ref[torch.Tensor]]
    )
    in_scripts: set[int] = field(default_factory=set[int])
    asked: Asked = field(default_factory=Asked)
    _counted: dict[Counted, tuple[int, list[weakref.ref[torch.Tensor]]]] = field(
        default_factory=dict[Counted, tuple[int, list[weakref.ref[torch.Tensor]]]]
    )

    def copy(self) -> Accesses:
        """The same, to grow apart."""
        own = {each.name: copy(getattr(self, each.name)) for each in fields(self) if each.name != "_counted"}
        return Accesses(**own)

    def note_external(self, tensor: torch.Tensor, site: Site, *, written: bool) -> None:
        """A call reads a tensor made outside, or writes it as well."""
        handle = tensor.untyped_storage()._cdata
        self.externals[handle] = weakref.ref(tensor)
        self.readers[handle] = site
        if written:
            self.writes[handle] = self.externals[handle]

    def apart_from_arrays(self) -> list[tuple[int, int]]:
        """Memory of the host in which no argument may lie: one is borrowed, and the call writes one."""
        every, written = self._alive_of(self.externals), self._alive_of(self.writes)
        tensors = (every if self.written & self.borrowed else written) if self.borrowed else []
        tensors += [each for each in (every if self.written else written) if is_borrowed(each)]
        return memory_of_host(tensors) + memory_of_arrays(self.filled.values())

    @staticmethod
    def _alive_of(handles: Handles) -> list[torch.Tensor]:
        return [tensor for ref in handles.values() if (tensor := ref()) is not None]

    def note_rebound(self, tensors: Iterable[torch.Tensor]) -> None:
        """A call gives these tensors other memory, and nobody can tell that they lie where they lay."""
        self.rebound.update({id(tensor): weakref.ref(tensor) for tensor in tensors})

    def alone(self) -> list[torch.Tensor]:
        """The living tensors whose memory nobody else may hold."""
        return [tensor for ref in self.rebound.values() if (tensor := ref()) is not None]

    def note_scripts(self, reads: Reads) -> None:
        """A call runs code of TorchScript, which finds in C++ what it reads, whatever Python has there."""
        found = [each.value for each in reads if each.kind == SCRIPTED]
        self.in_scripts.update([each.identity for each in found if isinstance(each, TensorMark)])

    def can_be_aliased(self) -> list[torch.Tensor]:
        """The living tensors made outside whose memory others may hold, as aliases do."""
        left = self.rebound.keys() | self.in_scripts
        return [tensor for tensor in self.alive().values() if id(tensor) not in left]

    def are_alone(self) -> bool:
        """Whether nobody does."""
        return not self.rebound or are_alone(self.alone())

    def alive(self) -> dict[int, torch.Tensor]:
        """The living tensors made outside, by storage handle."""
        return {handle: tensor for handle, ref in self.externals.items() if (tensor := ref()) is not None}

    def count_writes(self, counted: Counted) -> None:
        """After a replay: autograd must see that tensors made outside were written.

        ``counted`` says which of them a way through the call writes with a change of version.
        """
        if not self.writes:
            return
        known = self._counted.get(counted)
        if known is None or known[0] != len(self.writes):  # the writes only grow
            handles = counted.tensors
            refs = [
                ref
                for handle, ref in self.writes.items()
                if (handles is None or handle in handles) and _counts(ref())
            ]
            besides = self.sharded | self.apart
            refs += [ref for which, ref in besides.items() if which in counted.further]
            known = self._counted[counted] = len(self.writes), refs
        increment_version([tensor for ref in known[1] if (tensor := ref()) is not None])


def _counts(tensor: torch.Tensor | None) -> bool:
    """Whether autograd counts versions of a tensor that is alive."""
    with plain_functions():
        return tensor is not None and not tensor.is_inference()
