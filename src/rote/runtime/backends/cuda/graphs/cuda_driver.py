"""What is needed of the CUDA driver to put copies into a graph and to launch compiled kernels, by ctypes.

The driver and not the runtime: ``libcuda.so.1`` has one name wherever CUDA works, and an error of a driver
call stays with the caller, where one of the runtime would come up in PyTorch's next check. No package is
needed for it. ``cuda-bindings`` costs the same (0.9 to 1 us for setting a node's address on an H200's host,
1.8 us for a launch), so there is no second way.

Replays call the bare functions (:attr:`Driver.move_copy`, :attr:`Driver.set_kernel`, :attr:`Driver.launch`)
with prepared arguments; they return the driver's status, 0 for success. They let go of the interpreter's lock
like PyTorch's own replay: a launch waits if the queue is full, and what it waits for may need the lock.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from ctypes import (
    POINTER,
    addressof,
    byref,
    c_char_p,
    c_int,
    c_size_t,
    c_ubyte,
    c_uint,
    c_uint64,
    c_ulonglong,
    c_void_p,
)
from functools import cache
from typing import Any, NamedTuple

from .....base import EnvironmentError_

Node = int
"""Handle of a node in a graph."""

_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_DEVICE_MEMORY = 2  # CU_MEMORYTYPE_DEVICE
_AUTO_FREE_AND_PRIORITY = 1 | 8  # what PyTorch instantiates its graphs with
_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
NO_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT
_INVALID_VALUE = 1  # CUDA_ERROR_INVALID_VALUE


class DriverError(Exception):
    """A driver call failed; nobody has to know but who called.

    Attributes:
        status: What the driver returned; 0 if it was not asked.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class CopyShape(ctypes.Structure):
    """``CUDA_MEMCPY3D``, as it has been since CUDA 3.2."""

    _fields_ = (
        ("source_x", c_size_t), ("source_y", c_size_t), ("source_z", c_size_t), ("source_lod", c_size_t),
        ("source_type", c_uint), ("source_host", c_void_p), ("source", c_uint64),
        ("source_array", c_void_p), ("reserved0", c_void_p), ("source_pitch", c_size_t),
        ("source_height", c_size_t),
        ("target_x", c_size_t), ("target_y", c_size_t), ("target_z", c_size_t), ("target_lod", c_size_t),
        ("target_type", c_uint), ("target_host", c_void_p), ("target", c_uint64),
        ("target_array", c_void_p), ("reserved1", c_void_p), ("target_pitch", c_size_t),
        ("target_height", c_size_t),
        ("width", c_size_t), ("height", c_size_t), ("depth", c_size_t),
    )  # fmt: skip

    @classmethod
    def of(cls, source: int, target: int, nbytes: int) -> CopyShape:
        """A run of bytes, from one address on the device to another."""
        return cls(
            source_type=_DEVICE_MEMORY, source=source, source_pitch=nbytes, source_height=1,
            target_type=_DEVICE_MEMORY, target=target, target_pitch=nbytes, target_height=1,
            width=nbytes, height=1, depth=1,
        )  # fmt: skip


class KernelShape(ctypes.Structure):
    """``CUDA_KERNEL_NODE_PARAMS_v2``."""

    _fields_ = (
        ("function", c_void_p),
        ("blocks", c_uint), ("blocks_y", c_uint), ("blocks_z", c_uint),
        ("threads", c_uint), ("threads_y", c_uint), ("threads_z", c_uint),
        ("shared", c_uint), ("parameters", POINTER(c_void_p)), ("extra", c_void_p),
        ("kernel", c_void_p), ("context", c_void_p),
    )  # fmt: skip

    @classmethod
    def of(cls, function: c_void_p, blocks: int, threads: int, parameters: Sequence[Any]) -> KernelShape:
        """A launch of a kernel; its parameters are objects of ctypes, read where the launch is given away."""
        made = cls(function.value, blocks, 1, 1, threads, 1, 1)
        made.parameters = (c_void_p * len(parameters))(*[addressof(each) for each in parameters])
        made.kept = parameters
        return made

    @property
    def launch(self) -> tuple[int | None, ...]:
        """All but the parameters."""
        return (
            self.function, self.blocks, self.blocks_y, self.blocks_z, self.threads, self.threads_y,
            self.threads_z, self.shared, self.kernel, self.context,
        )  # fmt: skip

    def with_parameters(self, parameters: Sequence[Any]) -> KernelShape:
        """The same launch with other parameters, likewise."""
        function, *grid, kernel, context = self.launch
        made = type(self)(function, *grid, kernel=kernel, context=context)
        made.parameters = (c_void_p * len(parameters))(*[addressof(each) for each in parameters])
        made.kept = parameters
        return made


class LaunchShape(NamedTuple):
    """How a kernel is started: blocks, threads of each, and bytes of shared memory of each."""

    blocks: int
    threads: int
    shared: int


class _EdgeData(ctypes.Structure):
    """``CUgraphEdgeData``: programmatic launches mark their edges."""

    _fields_ = (("from_port", c_ubyte), ("to_port", c_ubyte), ("type", c_ubyte), ("reserved", c_ubyte * 5))


_SIZE, _HANDLES = POINTER(c_size_t), POINTER(c_void_p)
_INFO = (c_void_p, c_size_t, _SIZE, _SIZE)
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuCtxGetCurrent": (_HANDLES,),
    "cuThreadExchangeStreamCaptureMode": (POINTER(c_int),),
    "cuModuleLoadData": (_HANDLES, c_char_p),
    "cuModuleGetFunction": (_HANDLES, c_void_p, c_char_p),
    "cuModuleUnload": (c_void_p,),
    "cuFuncSetAttribute": (c_void_p, c_int, c_int),
    "cuLaunchKernel": (c_void_p, *[c_uint] * 7, c_void_p, _HANDLES, c_void_p),
    "cuGraphCreate": (_HANDLES, c_uint),
    "cuGraphDestroy": (c_void_p,),
    "cuGraphGetNodes": (c_void_p, _HANDLES, _SIZE),
    "cuGraphGetRootNodes": (c_void_p, _HANDLES, _SIZE),
    "cuGraphGetEdges_v2": (c_void_p, _HANDLES, _HANDLES, POINTER(_EdgeData), _SIZE),
    "cuGraphAddDependencies": (c_void_p, _HANDLES, _HANDLES, c_size_t),
    "cuGraphAddMemcpyNode": (_HANDLES, c_void_p, _HANDLES, c_size_t, POINTER(CopyShape), c_void_p),
    "cuGraphAddKernelNode_v2": (_HANDLES, c_void_p, _HANDLES, c_size_t, POINTER(KernelShape)),
    "cuGraphInstantiateWithFlags": (_HANDLES, c_void_p, c_ulonglong),
    "cuGraphExecDestroy": (c_void_p,),
    "cuGraphExecMemcpyNodeSetParams": (c_void_p, c_void_p, c_void_p, c_void_p),
    "cuGraphExecKernelNodeSetParams_v2": (c_void_p, c_void_p, c_void_p),
    "cuGraphLaunch": (c_void_p, c_void_p),
    "cuStreamBeginCapture_v2": (c_void_p, c_int),
    "cuStreamGetCaptureInfo_v2": (
        c_void_p, POINTER(c_int), POINTER(c_uint64), _HANDLES, POINTER(_HANDLES), _SIZE,
    ),
    "cuStreamEndCapture": (c_void_p, _HANDLES),
    "cuGraphKernelNodeGetParams_v2": (c_void_p, POINTER(KernelShape)),
    "cuGraphNodeGetDependencies": (c_void_p, _HANDLES, _SIZE),
    "cuFuncGetParamInfo": _INFO,
    "cuKernelGetParamInfo": _INFO,
}  # fmt: skip
"""Arguments of each function. The names without a version are, in the library, those of the first version;
``cuGraphGetEdges_v2`` came with CUDA 12.3; its first version refuses graphs with programmatic launches.
``cuFuncGetParamInfo`` came with CUDA 12.4."""


class Driver:
    """The functions of the driver library; an ``AttributeError`` says that the driver is too old.

    Attributes:
        move_copy: Gives a copy of an instantiated graph other addresses: graph, node, shape, context.
        set_kernel: Gives a kernel of an instantiated graph other parameters: graph, node, shape.
        launch: Launches an instantiated graph: graph, stream.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        for name, arguments in _SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, c_int
        self._library = library
        self.move_copy: Callable[..., int] = library.cuGraphExecMemcpyNodeSetParams
        self.set_kernel: Callable[..., int] = library.cuGraphExecKernelNodeSetParams_v2
        self.launch: Callable[..., int] = library.cuGraphLaunch

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise DriverError(f"{name} returned {status}", status)

    def context(self) -> c_void_p:
        """The current context; a :class:`DriverError` if this thread has none yet."""
        found = self._current()
        if not found.value:
            raise DriverError("this thread has no context")
        return found

    def has_context(self) -> bool:
        """Whether this thread has a context; in one that has none ``set_kernel`` ends the process."""
        return self._current().value is not None

    def _current(self) -> c_void_p:
        found = c_void_p()
        self._call("cuCtxGetCurrent", byref(found))
        return found

    @contextmanager
    def relaxed(self) -> Generator[None]:
        """A context in which this thread spoils no capture of another one.

        Without it, instantiating a graph invalidates every capture in the process that is in the global mode,
        which is PyTorch's default.
        """
        mode = c_int(_RELAXED)
        self._call("cuThreadExchangeStreamCaptureMode", byref(mode))
        try:
            yield
        finally:
            self._call("cuThreadExchangeStreamCaptureMode", byref(mode))

    def load(self, text: str, name: str) -> c_void_p:
        """A kernel of a program in PTX, compiled for the current device; it is never unloaded."""
        return self.function(self.load_module(text.encode()), name)

    def load_module(self, image: bytes) -> c_void_p:
        """A module of the current context: PTX, or a cubin."""
        module = c_void_p()
        with self.relaxed():
            self._call("cuModuleLoadData", byref(module), image)
        return module

    def unload(self, module: c_void_p) -> None:
        """Unload a module of the current context. None of its kernels may be running, nor be in a graph."""
        with self.relaxed():
            self._call("cuModuleUnload", module)

    def function(self, module: c_void_p, name: str) -> c_void_p:
        """A kernel of a module."""
        found = c_void_p()
        with self.relaxed():
            self._call("cuModuleGetFunction", byref(found), module, name.encode())
        return found

    def allow_shared(self, function: c_void_p, nbytes: int) -> None:
        """Let a kernel be launched with that much shared memory; 48 KiB need no leave."""
        self._call("cuFuncSetAttribute", function, _DYNAMIC_SHARED, nbytes)

    def launch_kernel(self, function: c_void_p, shape: LaunchShape, stream: int, parameters: Any) -> None:
        """Launch a kernel on a stream, or into the graph that is captured there.

        Args:
            parameters: An array of their addresses; they are read before this returns.
        """
        grid = shape.blocks, 1, 1, shape.threads, 1, 1, shape.shared
        self._call("cuLaunchKernel", function, *grid, stream, parameters, None)

    # ------------------------------------------------------------------ captures

    def begin_capture(self, stream: int) -> None:
        """Capture what is launched on a stream, whatever this thread does beside it."""
        self._call("cuStreamBeginCapture_v2", stream, _RELAXED)

    def end_capture(self, stream: int) -> c_void_p:
        """The graph that was captured; the caller destroys it."""
        made = c_void_p()
        self._call("cuStreamEndCapture", stream, byref(made))
        return made

    def drop_capture(self, stream: int) -> None:
        """End a capture, of which nothing is wanted any more; it may have failed."""
        made = c_void_p()
        self._library.cuStreamEndCapture(stream, byref(made))
        if made.value:
            self.drop_graph(made)

    def last_captured(self, stream: int) -> list[Node]:
        """The nodes of the graph being captured on a stream for which the next one there waits."""
        status, number, graph = c_int(), c_uint64(), c_void_p()
        nodes, count = _HANDLES(), c_size_t()
        pointers = byref(status), byref(number), byref(graph), byref(nodes), byref(count)
        self._call("cuStreamGetCaptureInfo_v2", stream, *pointers)
        return [each or 0 for each in nodes[: count.value]]

    def waits_for(self, node: Node) -> list[Node]:
        """The nodes that one waits for; programmatic launches are refused."""
        return self._handles("cuGraphNodeGetDependencies", c_void_p(node))

    def kernel_of(self, node: Node) -> KernelShape:
        """The launch that a node is; its parameters lie in the node."""
        shape = KernelShape()
        self._call("cuGraphKernelNodeGetParams_v2", node, byref(shape))
        return shape

    def parameter_sizes(self, shape: KernelShape) -> list[int]:
        """The bytes of each parameter of a launched kernel."""
        kernel, of_kernel = (shape.function, "cuFuncGetParamInfo"), (shape.kernel, "cuKernelGetParamInfo")
        handle, name = kernel if shape.function else of_kernel
        sizes: list[int] = []
        start, size = c_size_t(), c_size_t()
        while True:  # they are not counted anywhere: the one behind the last is refused
            status = getattr(self._library, name)(handle, len(sizes), byref(start), byref(size))
            if status == _INVALID_VALUE:
                return sizes
            if status:
                raise DriverError(f"{name} returned {status}", status)
            sizes.append(size.value)

    # ------------------------------------------------------------------ graphs

    def new_graph(self) -> c_void_p:
        """An empty graph."""
        made = c_void_p()
        self._call("cuGraphCreate", byref(made), 0)
        return made

    def drop_graph(self, graph: c_void_p) -> None:
        """Destroy a graph."""
        self._call("cuGraphDestroy", graph)

    def roots(self, graph: c_void_p) -> list[Node]:
        """The nodes that wait for none."""
        return self._handles("cuGraphGetRootNodes", graph)

    def count(self, graph: c_void_p) -> int:
        """How many nodes there are."""
        return self._count("cuGraphGetNodes", graph).value

    def ends(self, graph: c_void_p) -> list[Node]:
        """The nodes that none waits for."""
        edges = c_size_t(0)
        nodes = self._handles("cuGraphGetNodes", graph)
        self._call("cuGraphGetEdges_v2", graph, None, None, None, byref(edges))
        if not edges.value:
            return nodes
        before, after = (c_void_p * edges.value)(), (c_void_p * edges.value)()
        data = (_EdgeData * edges.value)()
        self._call("cuGraphGetEdges_v2", graph, before, after, data, byref(edges))
        waited_for = set(before)
        return [node for node in nodes if node not in waited_for]

    def _count(self, name: str, graph: c_void_p) -> c_size_t:
        count = c_size_t(0)
        self._call(name, graph, None, byref(count))
        return count

    def _handles(self, name: str, graph: c_void_p) -> list[Node]:
        count = self._count(name, graph)
        if not count.value:
            return []
        found = (c_void_p * count.value)()
        self._call(name, graph, found, byref(count))
        return list(found)

    def add_copy(self, graph: c_void_p, after: list[Node], shape: CopyShape, context: c_void_p) -> Node:
        """Add a copy that waits for some nodes."""
        return self._add("cuGraphAddMemcpyNode", graph, after, byref(shape), context)

    def add_kernel(self, graph: c_void_p, after: list[Node], shape: KernelShape) -> Node:
        """Add a launch of a kernel that waits for some nodes."""
        return self._add("cuGraphAddKernelNode_v2", graph, after, byref(shape))

    def _add(self, name: str, graph: c_void_p, after: list[Node], *what: Any) -> Node:
        made = c_void_p()
        waits = (c_void_p * len(after))(*after) if after else None
        self._call(name, byref(made), graph, waits, len(after), *what)
        return made.value or 0  # ctypes says None for a null handle, which no node has

    def add_edges(self, graph: c_void_p, before: Node, after: list[Node]) -> None:
        """Let nodes wait for another one."""
        if after:
            same = (c_void_p * len(after))(*[before] * len(after))
            others = (c_void_p * len(after))(*after)
            self._call("cuGraphAddDependencies", graph, same, others, len(after))

    def instantiate(self, graph: c_void_p) -> c_void_p:
        """Make a graph that can be launched, as PyTorch makes its own."""
        made = c_void_p()
        with self.relaxed():
            self._call("cuGraphInstantiateWithFlags", byref(made), graph, _AUTO_FREE_AND_PRIORITY)
        return made

    def destroy(self, instantiated: c_void_p) -> None:
        """Destroy a graph that could be launched; it must not be running."""
        self._call("cuGraphExecDestroy", instantiated)


def known_driver() -> Driver:
    """The driver of this machine, for whoever cannot do without.

    Raises:
        EnvironmentError_: There is none, or it is too old.
    """
    found = driver()
    if found is None:
        raise EnvironmentError_("compiled kernels need libcuda.so.1 of CUDA 12.4 or later")
    return found


@cache
def driver() -> Driver | None:
    """The driver of this machine; None without one, or if it is older than CUDA 12.4."""
    try:
        return Driver(ctypes.CDLL("libcuda.so.1"))
    except (OSError, AttributeError):
        return None
