"""What a traced call writes: arguments, tensors made outside, and constants, which are none any more then."""

from __future__ import annotations

import weakref
from collections import Counter

import torch

from ....base import Site, Sites, user_site
from ....hazards import rules
from ....hazards.rules import reason
from ...program import EXTERNAL, INPUT, NEW, Origin, counts_apart
from ...pytorch import plain_functions
from .cursor import Cursor

CHANGED = "a numpy array made inside the call is changed after it became a tensor"
"""Why such an array is no constant."""


class Writes:
    """The writes of one call.

    Attributes:
        externals: Tensors made outside that are written, by their number.
        sites: The lines that write either.
        counted: Storages by whose home a write is counted as a new version.
        apart: Tensors outside that have a version of their own, which a write changes, by identity.
        constants: Tensors made from plain data and not written since.
        over_arrays: What lies in arrays that the call has made, or of which it knows the numbers.
    """

    def __init__(self, cursor: Cursor, sites: Sites) -> None:
        self.inputs: set[int] = set()
        self.externals: set[int] = set()
        self.sites: dict[Origin, Site] = {}
        self.counted: set[Origin] = set()
        self.apart: dict[int, weakref.ref[torch.Tensor]] = {}
        self._detached: list[weakref.ref[torch.Tensor]] = []
        self.constants: set[Origin] = set()
        self.over_arrays: set[Origin] = set()
        self._cursor = cursor
        self._sites = sites
        self._times = Counter[Origin]()  # each is written

    def count(self, tensor: torch.Tensor) -> int:
        """A number that grows with each write of a tensor's memory; one made for inference has no version."""
        origin = self._cursor.storages.origin(tensor)
        times = self._times[origin] if origin is not None else 0
        return times if tensor.is_inference() else tensor._version + times

    def note(self, written: list[torch.Tensor], *, counted: bool = True) -> None:
        """An operation writes these operands; ``counted`` says that their versions change."""
        for tensor in written:
            origin = self._cursor.storages.origin(tensor)
            if origin is None:
                continue
            self._times[origin] += 1
            if origin[0] is not NEW and origin not in self.sites:
                self.sites[origin] = self._sites.here()
            if counted and origin[0] is not NEW:
                self._count(tensor, origin)
            if origin[0] == INPUT:
                self.inputs.add(origin[1])
            elif origin[0] == EXTERNAL:
                self._cursor.node.pure = False
                self.externals.add(origin[1])
            elif origin in self.constants or origin in self.over_arrays:
                self._spoil(tensor, origin)

    def know_detached(self, tensor: torch.Tensor) -> None:
        """Another tensor is made of one, over the same memory and with the same counter of versions."""
        origin = self._cursor.storages.origin(tensor)
        if origin is not None and tensor is not self._cursor.storages.home(origin):
            self._detached.append(weakref.ref(tensor))

    def _count(self, tensor: torch.Tensor, origin: Origin) -> None:
        """A write changes the version of who shares the counter of what is written: ``.data`` has its own."""
        home = self._cursor.storages.home(origin)
        if tensor is home or home is None:
            self.counted.add(origin)
            return
        with plain_functions():
            whole = tensor if tensor._base is None else tensor._base
            if whole is home or not counts_apart(home, whole):
                self.counted.add(origin)
                return
            besides = [each for ref in self._detached if (each := ref()) is not None]
            owner = next((each for each in besides if not counts_apart(each, whole)), whole)
            self.apart[id(owner)] = weakref.ref(owner)

    def _spoil(self, tensor: torch.Tensor, origin: Origin) -> None:
        """A constant is written: the next call has another one."""
        self.constants.discard(origin)
        cursor = self._cursor
        if origin in self.over_arrays:  # another call may write something else there
            cursor.block(reason(rules.HOST_DATA, CHANGED, user_site()))
        elif tensor.is_cpu and not cursor.on_host:
            text = "a tensor built on the host from plain data is changed in place"
            cursor.block(reason(rules.HOST_DATA, text, user_site()))

    def know_constant(self, tensor: torch.Tensor) -> None:
        """A tensor was made from plain data."""
        origin = self._cursor.storages.origin(tensor)
        if origin is not None:
            self.constants.add(origin)

    def know_array(self, tensor: torch.Tensor) -> None:
        """A tensor lies in an array that the call has made."""
        origin = self._cursor.storages.origin(tensor)
        if origin is not None:
            self.over_arrays.add(origin)

    def on_host(self) -> bool:
        """Whether memory of the host from before the call is written: an array may lie there."""
        externals = self._cursor.storages.externals
        return any([externals[number].is_cpu for number in self.externals])
