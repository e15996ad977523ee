"""Numbers that change, as parameters of kernels in an instantiated graph: set before the graph is launched.

A kernel is set as a whole, by one call of the driver, in the instance that is about to be launched, where a
number has changed since it was set there. The driver's manual says that this concerns later launches only,
so nothing waits for those under way; the backend's lock keeps other threads from coming between.

``docs/design.md`` has the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import byref, c_char, c_void_p
from dataclasses import dataclass
from typing import Any

import torch

from .cuda_driver import NO_CONTEXT, Driver, DriverError
from .launched import LaunchedKernel, launched_by
from .words import Roles, Round, Word, are_started_alike, rounds, twice, words_in

MOST_BYTES = 32 << 20
"""Of what an operation gives that is captured to be looked at: that much is taken beside the pool. A larger
one takes the device longer than its launch takes the host."""


class PatchedKernel:
    """A kernel of a graph with numbers among its parameters.

    Attributes:
        version: Counts how often a number was another one.
    """

    __slots__ = ("_given", "_node", "_shape", "_slots", "version")

    def __init__(self, kernel: LaunchedKernel, words: Sequence[Word]) -> None:
        self.version = 0
        self._given: list[Any] = [word.cell.value for word in words]
        parameters = [(c_char * len(each)).from_buffer_copy(each) for each in kernel.parameters]
        memory = [memoryview(each).cast("B") for each in parameters]
        self._slots = [
            (word.cell, memory[word.parameter][word.start : word.start + word.coding.size], word.coding.pack)
            for word in words
        ]
        self._shape = byref(kernel.shape.with_parameters(parameters))
        self._node = c_void_p(kernel.node)

    def update(self) -> None:
        """Write down the numbers that lie in the cells now."""
        given = self._given
        for place, (cell, memory, pack) in enumerate(self._slots):
            value = cell.value
            if value is not given[place]:
                memory[:] = pack(value)
                given[place] = value
                self.version += 1

    def set_in(self, api: Driver, instance: c_void_p) -> int:
        """Set it in an instantiated graph; returns the driver's status, 0 for success."""
        return api.set_kernel(instance, self._node, self._shape)


class PatchedInstance:
    """An instantiated graph in which kernels have numbers.

    Args:
        handle: The graph, with the numbers with which it was captured.
    """

    __slots__ = ("_api", "_handle", "_kernels", "_versions")

    def __init__(self, api: Driver, handle: c_void_p, kernels: Sequence[PatchedKernel]) -> None:
        self._api = api
        self._handle = handle
        self._kernels = kernels
        self._versions = [0] * len(kernels)

    def of(self, handle: c_void_p) -> PatchedInstance:
        """Another instance of the same graph, as it was captured."""
        return PatchedInstance(self._api, handle, self._kernels)

    def set(self) -> int:
        """Give it the numbers of now; returns the driver's status, 0 for success."""
        for kernel in self._kernels:
            kernel.update()
        stale = [n for n, kernel in enumerate(self._kernels) if self._versions[n] != kernel.version]
        if stale and not self._api.has_context():  # there, to set a kernel ends the process
            return NO_CONTEXT
        for place in stale:
            if status := self._kernels[place].set_in(self._api, self._handle):
                return status
            self._versions[place] = self._kernels[place].version
        return 0

    def launch(self, stream: int) -> int:
        """Launch it with the numbers of now; returns the driver's status, 0 for success."""
        return self.set() or self._api.launch(self._handle, stream)


@dataclass(frozen=True)
class KnownWords:
    """Where the numbers of an operation lie among the parameters of its kernels.

    Attributes:
        kernels: What it launches.
        words: Of each of these, its words.
    """

    kernels: Sequence[LaunchedKernel]
    words: Sequence[Sequence[Word]]

    def fit(self) -> bool:
        """Whether the numbers of now have words."""
        return all([each.coding.magnitudes.have(each.cell.value) for each in self._all()])

    def _all(self) -> list[Word]:
        return [word for each in self.words for word in each]

    def in_graph(self, captured: Sequence[LaunchedKernel]) -> list[PatchedKernel]:
        """The kernels of a graph that the operation has launched with the numbers of now.

        From now on numbers without a word are refused before a replay begins.

        Raises:
            DriverError: They are not what is known.
        """
        there = zip(captured, self.words, strict=False)
        if not are_started_alike(captured, self.kernels) or not all(
            [word.is_in(kernel) for kernel, words in there for word in words]
        ):
            raise DriverError("its kernels differ from those that it was known to launch")
        for word in self._all():
            word.cell.bound(word.coding.magnitudes)
        there = zip(captured, self.words, strict=True)
        return [PatchedKernel(kernel, words) for kernel, words in there if words]


def find_words(api: Driver, stream: int, call: Callable[[Round], Any], roles: Roles) -> KnownWords | None:
    """Where the numbers of an operation lie, if that is sure; nothing runs.

    Args:
        stream: It is current, and not captured.
        call: Calls the operation with other numbers.
    """
    numbers = rounds(list(roles))
    tried: list[list[LaunchedKernel]] = []

    def attempt(values: Round) -> None:
        out = call(values)
        if isinstance(out, torch.Tensor) and out.nbytes > MOST_BYTES:
            raise DriverError("what it gives is too large to be made beside the pool")

    try:
        for each in twice(numbers):
            tried.append(launched_by(api, stream, lambda values=each: attempt(values)))
    except (DriverError, RuntimeError, TypeError, ValueError, OverflowError):
        return None  # it does not take such numbers, or does not launch kernels alone
    words = words_in(tried, numbers, roles)
    found = KnownWords(tried[0], words) if words is not None else None
    return found if found is not None and found.fit() else None
