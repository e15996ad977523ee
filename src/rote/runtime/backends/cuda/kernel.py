"""Compiled kernels on a CUDA device: cubins, loaded and launched by the driver.

A kernel may not be unloaded while it runs, nor while a graph has it. So graphs hold theirs through their
session, and a kernel that nobody holds any more leaves its module to the backend (the garbage collector may
find it on any thread, in the middle of a capture), which unloads it when a recording has been destroyed or
memory is given back. Then nothing captures, and the device is waited for.

Triton's kernels take two pointers behind their own parameters, both null here; what needs more is not
compiled (:mod:`...compiling.worker`). How many parameters there are the driver knows from the kernel.
"""

from __future__ import annotations

import weakref
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from ctypes import POINTER, addressof, c_double, c_int64, c_void_p, cast
from functools import partial

import torch

from ....base import EnvironmentError_
from ...compiling import Binary
from ...pytorch import stream_handle
from ..protocol import check_kernel, check_launch
from .graphs import DriverError, LaunchShape, driver, known_driver

_WARP = 32
_FREE_SHARED = 48 << 10
"""Bytes of shared memory that every kernel may have."""


class Modules:
    """The modules of a device, and those among them that nobody uses any more."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._unused: list[c_void_p] = []

    def drop(self, module: c_void_p) -> None:
        """Unload a module at the next opportunity. May be called at any time, on any thread."""
        self._unused.append(module)

    def unload(self) -> None:
        """Unload what nobody uses. No capture may be open on the device."""
        api = driver()
        if api is None or not self._unused:
            return
        torch.cuda.synchronize(self.device)
        with torch.cuda.device(self.device):
            while self._unused:
                try:
                    api.unload(self._unused.pop())
                except DriverError:  # it stays loaded
                    return


class CudaKernel:
    """A cubin with one kernel.

    Raises:
        EnvironmentError_: The driver is missing or too old, or refused it.
    """

    def __init__(self, modules: Modules, binary: Binary) -> None:
        source = self.source = binary.source
        self.device = modules.device
        major, minor = torch.cuda.get_device_capability(self.device)
        check_kernel(source, 10 * major + minor)
        self._shape = LaunchShape(source.grid.count, _WARP * source.grid.warps, binary.shared_bytes)
        self._current = partial(stream_handle, self.device.index)
        self._api = known_driver()
        try:
            with self._in_context():
                module = self._api.load_module(binary.code)
                weakref.finalize(self, modules.drop, module).atexit = False
                self._function = self._api.function(module, binary.symbol)
                if self._shape.shared > _FREE_SHARED:
                    self._api.allow_shared(self._function, self._shape.shared)
        except DriverError as error:
            raise EnvironmentError_(f"kernel {binary.symbol} cannot be loaded: {error}") from error

    @contextmanager
    def _in_context(self) -> Generator[None]:
        """The device is the current one, and this thread has a context there."""
        with torch.cuda.device(self.device):
            if not self._api.has_context():
                torch.cuda.mem_get_info(self.device)  # makes one, and is allowed beside any capture
            yield

    def __call__(
        self, tensors: Sequence[torch.Tensor], reals: Sequence[float] = (), integers: Sequence[int] = ()
    ) -> None:
        """Launch it on the current stream; see :class:`..protocol.LoadedKernel`."""
        try:
            self.run(tensors, reals, integers)
        except DriverError as error:
            raise EnvironmentError_(f"kernel {self.source.name} cannot be launched: {error}") from error

    def run(self, tensors: Sequence[torch.Tensor], reals: Sequence[float], integers: Sequence[int]) -> None:
        """Launch it on the current stream, or into the graph that is captured there.

        Raises:
            DriverError: The driver refused.
            InternalError: The tensors or numbers are not those of the kernel.
        """
        check_launch(self.source, self.device, tensors, reals, integers)
        values = [
            *[c_void_p(tensor.data_ptr()) for tensor in tensors],
            *[c_double(real) for real in reals],
            *[c_int64(integer) for integer in integers],
            c_void_p(),
            c_void_p(),
        ]
        addresses = (c_void_p * len(values))(*[addressof(value) for value in values])
        with self._in_context():
            self._api.launch_kernel(
                self._function, self._shape, self._current(), cast(addresses, POINTER(c_void_p))
            )
