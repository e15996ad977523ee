"""Copies as nodes of a graph: a replay takes inputs where they lie and leaves its results in new memory.

PyTorch keeps the graph that it captured (``CUDAGraph(keep_graph=True)``), and its own instantiated graph
stays as it is, for whoever replays without this. Copies of inputs are put before the roots of the kept graph,
copies of results behind its ends, and what comes out is instantiated a second time. One copy is the driver's
own (:mod:`.copy_node`), several are one kernel node, whose table of addresses is set by one call
(:mod:`.copy_kernel`). Addresses cost something only where they are new. In a loop they are those of the call
before or of the one before that, so a small graph is instantiated up to four times, and each instance keeps
the addresses that it has. ``docs/design.md`` has the figures.

Nodes of copies form chains: several at once would each be a branch, and a graph with branches takes longer to
launch. All roots wait for all inputs, since an input may lie in the memory of the recording itself (a
gradient that it has left in ``.grad``); so the order is that of dispatched copies.

Why it is right:

- *A changed address concerns later launches only*, says the driver's manual. Setting, launching, setting and
  launching again without waiting is therefore in order; the backend's lock keeps other threads from coming
  between.
- *Memory is taken and freed on the caller's stream*, which is also where the graph is launched. An input that
  is dropped right after the call is reused by work that is queued behind it, as with any kernel.
- *An address is only an address.* Memory that was given back to the device and mapped again at the same
  place is copied from like any other (tests/cuda/test_nodes.py, with expandable segments too).
- *Where the driver says no* (memory of another kind, no memory) nothing has happened: the caller does what it
  would do without this. A thread that has no context yet is not let near it: setting a kernel's parameters
  there ends the process instead.

What does not work: graphs that draw random numbers, since PyTorch writes seed and offset in its ``replay``; a
launch into a stream that is being captured, where calls are run plainly (:mod:`....arguments.admission`);
``CUDAGraph.instantiate()`` after the copies were added, which destroys the old instance first, so that a
failure leaves an object that crashes when it is reset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from ctypes import c_void_p
from functools import cache, partial

import torch

from .....base import InternalError
from ....pytorch import stream_handle
from ...protocol import Launch
from .copy_kernel import CAPACITIES, CAPACITY, NAME, CopyTable, program
from .copy_node import CopyNode
from .cuda_driver import Driver, DriverError, Node, driver
from .patches import PatchedInstance
from .torch_private import empty_maker

MOST_OPERATIONS = 500
"""Operations, views among them, up to which a graph is kept and gets a second instance. If all are kernels
that is 3 MB of the host's memory and 1.4 MB of the device's, and they take the device some 0.8 ms anyway."""

MOST_BYTES = 1 << 22
"""Of a tensor that shares a node with others. In front of a small graph three of 1 MB took the device 6.7 us
in one node and 8.4 in three, three of 4 MB 9.0 and 10.9; one of 64 MB took the kernel 52, the driver 39."""

MOST_INSTANCES = 4
"""How often a small graph is instantiated, for so many places of arguments and results in turn."""

MOST_NODES = 640
"""Of all instances of a graph together: about 4 MB of the host's memory and 2 MB of the device's."""


class Instance:
    """A graph with its copies, instantiated.

    Attributes:
        addresses: Where the caller's memory is, of each copy; -1 where that is not known.
        launch: Launches on a stream, given by its handle; returns the driver's status, 0 for success.
    """

    __slots__ = ("addresses", "handle", "launch")

    def __init__(self, api: Driver, handle: c_void_p, copies: int, numbers: PatchedInstance | None) -> None:
        self.handle = handle
        self.addresses: tuple[int, ...] = (-1,) * copies
        self.launch: Launch = numbers.of(handle).launch if numbers else partial(api.launch, handle)


class CopyingGraph:
    """A graph with its copies; see :class:`...protocol.CopyingSegment`.

    Args:
        template: Handle of a graph that others hold, but must not instantiate any more: it is changed.
        inputs: Tensors of the recording to be filled before it runs.
        outputs: Tensors of the recording to be copied when it has run.
        kernel: Loads the kernel that makes several copies, for so many, if that is needed.
        numbers: The graph as PyTorch has instantiated it, if it has numbers that change.

    Raises:
        DriverError: The driver refused.
    """

    def __init__(
        self,
        api: Driver,
        template: int,
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        kernel: Callable[[int], c_void_p],
        numbers: PatchedInstance | None,
    ) -> None:
        self._api = api
        self._numbers = numbers
        self._template = c_void_p(template)
        self.inputs = len(inputs)
        self.outputs = tuple([empty_maker(tensor) for tensor in outputs])
        self.known: dict[tuple[int, ...], Launch] = {}
        filled = _nodes_for(dict(enumerate(inputs)), kernel, outward=False)
        read = _nodes_for(dict(enumerate(outputs, len(inputs))), kernel, outward=True)
        self._nodes = [*filled, *read]
        self._add(filled, read)
        nodes = max(1, api.count(self._template))
        self._most = max(1, min(MOST_INSTANCES, MOST_NODES // nodes))
        self._instances: list[Instance] = []  # the one that was aimed last is the last
        self._free = [self._instantiate()]

    def _add(self, filled: Sequence[CopyNode | CopyTable], read: Sequence[CopyNode | CopyTable]) -> None:
        api, graph = self._api, self._template
        roots, ends = api.roots(graph), api.ends(graph)
        after: list[Node] = []
        for node in filled:
            after = [node.add(api, graph, after)]
        for last in after:
            api.add_edges(graph, last, roots)
        after = ends or after
        for node in read:
            after = [node.add(api, graph, after)]

    def _instantiate(self) -> Instance:
        copies = self.inputs + len(self.outputs)
        return Instance(self._api, self._api.instantiate(self._template), copies, self._numbers)

    def aim(self, addresses: tuple[int, ...]) -> Launch | None:
        """What launches it with the caller's memory at some addresses.

        Returns:
            None if the driver refused. Memory of the recording that a copy fills or reads is refused too.

        Raises:
            InternalError: It was released.
        """
        if not self._most:
            raise InternalError("a segment was replayed after its recording had been released")
        if not self._api.has_context() or any([node.meets(addresses) for node in self._nodes]):
            return None
        instance = self._next()
        was, instance.addresses = instance.addresses, (-1,) * len(addresses)  # until all are set
        self.known.pop(was, None)
        for node in self._nodes:
            if node.move(self._api, instance.handle, was, addresses):
                return None
        instance.addresses = addresses
        self.known[addresses] = instance.launch
        return instance.launch

    def _next(self) -> Instance:
        """The instance to be aimed: a new one, or the one whose turn was the longest ago."""
        if not self._free and len(self._instances) < self._most:
            try:
                self._free.append(self._instantiate())
            except DriverError:  # there is no memory for it
                self._most = len(self._instances)
        self._instances.append(self._free.pop() if self._free else self._instances.pop(0))
        return self._instances[-1]

    def release(self) -> None:
        """Destroy it; it must not be running. Idempotent."""
        instances, self._instances, self._free = [*self._instances, *self._free], [], []
        self._most = 0
        self.known.clear()
        for instance in instances:
            self._api.destroy(instance.handle)


def _nodes_for(
    tensors: Mapping[int, torch.Tensor], kernel: Callable[[int], c_void_p], *, outward: bool
) -> list[CopyNode | CopyTable]:
    """The nodes that copy some tensors, by the numbers of their addresses."""
    small = [n for n, tensor in tensors.items() if tensor.numel() * tensor.itemsize <= MOST_BYTES]
    if len(small) < 2:
        small = []
    count = -(-len(small) // CAPACITY)
    shares = [small[number::count] for number in range(count)]
    tables = [CopyTable(kernel, share, [tensors[n] for n in share], outward=outward) for share in shares]
    alone = tensors.keys() - set(small)
    return [*tables, *[CopyNode(n, tensors[n], outward=outward) for n in sorted(alone)]]


class PlainGraph:
    """A graph as PyTorch instantiated it, without copies; PyTorch's ``replay`` takes 1 to 2 us longer."""

    def __init__(self, launch: Launch) -> None:
        self.inputs = 0
        self.outputs: tuple[Callable[[], torch.Tensor], ...] = ()
        self.known: dict[tuple[int, ...], Launch] = {(): launch}

    def aim(self, addresses: tuple[int, ...]) -> Launch | None:
        """What launches it."""
        return self.known.get(addresses)

    def release(self) -> None:
        """It is destroyed by who holds it."""
        self.known.clear()


def launcher(
    graph: torch.cuda.CUDAGraph,
    device: torch.device,
    inputs: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
    numbers: PatchedInstance | None,
    *,
    kept: bool,
) -> CopyingGraph | PlainGraph | None:
    """What launches a graph, with copies if it can have them; None if only PyTorch can, as before.

    Args:
        graph: The graph, instantiated, without random numbers.
        device: Where it was captured, which is the current device.
        inputs: Tensors to be filled first.
        outputs: Tensors to be copied last.
        kept: PyTorch has kept what was captured, and nobody is going to instantiate that again.
        numbers: The graph as PyTorch has instantiated it, if it has numbers that change.
    """
    api = driver()
    try:
        if api is None or not _works(api, device):
            return None
        if kept and (inputs or outputs):
            with suppress(DriverError):
                template, kernel = int(graph.raw_cuda_graph()), partial(_copy_kernel, api, device)
                return CopyingGraph(api, template, inputs, outputs, kernel, numbers)
        if numbers is not None:
            return PlainGraph(numbers.launch)
        return PlainGraph(partial(api.launch, c_void_p(int(graph.raw_cuda_graph_exec()))))
    except (DriverError, RuntimeError):  # the latter from PyTorch, if it has no memory to try it
        return None


@cache
def _works(api: Driver, device: torch.device) -> bool:
    """Whether copies do here what they are said to do: tried once in a process, on a graph of two copies."""
    return _is_right(api, [torch.zeros(64, device=device)], _no_kernel)


@cache
def _copy_kernel(api: Driver, device: torch.device, capacity: int) -> c_void_p:
    """The kernel that makes several copies, tried like that.

    Raises:
        DriverError: The driver cannot compile it, or it does not do what it should.
    """
    kernel = api.load(program(capacity), NAME)
    others = [other for other in CAPACITIES if other < capacity]
    middle = [torch.zeros(1 + size, device=device) for size in range(max(others, default=1) + 1)]
    if not _is_right(api, middle, lambda _: kernel):
        raise DriverError("copies were wrong")
    return kernel


def _no_kernel(_: int) -> c_void_p:
    raise DriverError("one copy needs no kernel")


def _is_right(api: Driver, middle: list[torch.Tensor], kernel: Callable[[int], c_void_p]) -> bool:
    """Whether a graph that takes tensors in and gives them out does so, at changing addresses."""
    template = api.new_graph()
    try:
        graph = CopyingGraph(api, template.value or 0, middle, middle, kernel, None)
        try:
            return all([_copies_right(graph, middle, value) for value in (1.0, 2.0, 3.0)])
        finally:
            torch.cuda.synchronize(middle[0].device)
            graph.release()
    finally:
        api.drop_graph(template)


def _copies_right(graph: CopyingGraph, middle: list[torch.Tensor], value: float) -> bool:
    sources = [torch.full_like(tensor, value + n) for n, tensor in enumerate(middle)]
    targets = [make() for make in graph.outputs]
    launch = graph.aim(tuple([tensor.data_ptr() for tensor in (*sources, *targets)]))
    if launch is None or launch(stream_handle(middle[0].device.index)):
        return False
    return all([source.equal(target) for source, target in zip(sources, targets, strict=True)])
