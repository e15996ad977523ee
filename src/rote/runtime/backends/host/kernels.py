"""Compiled kernels on the host: shared objects, called by ctypes.

A shared object is loaded from a file that is removed at once. It has a name that no other had: the loader
takes what it has loaded under the same name, whatever lies there now (``/proc/self/fd/N`` of a file in memory
is such a name, so it will not do). It is unloaded when nobody holds the kernel any more; tapes hold theirs.
A call lets go of the interpreter's lock.
"""

from __future__ import annotations

import ctypes
import tempfile
import weakref
from collections.abc import Callable, Sequence
from ctypes import addressof, c_double, c_int64, c_void_p

import torch

from ....base import EnvironmentError_
from ...compiling import Binary
from ..protocol import check_kernel, check_launch

_HOST = torch.device("cpu")


class HostKernel:
    """A shared object with one function.

    Raises:
        EnvironmentError_: It cannot be written, or loaded.
    """

    def __init__(self, binary: Binary) -> None:
        check_kernel(binary.source, 0)
        self.source = binary.source
        library = _loaded(binary)
        self._function: Callable[..., None] = _function(library, binary.symbol)
        weakref.finalize(self, _unload, library._handle).atexit = False

    def __call__(
        self, tensors: Sequence[torch.Tensor], reals: Sequence[float] = (), integers: Sequence[int] = ()
    ) -> None:
        """Run it now; see :class:`...protocol.LoadedKernel`."""
        check_launch(self.source, _HOST, tensors, reals, integers)
        self.bound(tensors, reals, integers)()

    def bound(
        self, tensors: Sequence[torch.Tensor], reals: Sequence[float], integers: Sequence[int]
    ) -> HostLaunch:
        """What runs it with these, any number of times. Nothing is checked."""
        return HostLaunch(self, self._function, tuple(tensors), tuple(reals), tuple(integers))


class HostLaunch:
    """A call of a kernel with everything bound."""

    __slots__ = ("_addresses", "_at", "_function", "_held", "_numbers", "_tensors")

    def __init__(
        self,
        kernel: HostKernel,
        function: Callable[..., None],
        tensors: tuple[torch.Tensor, ...],
        reals: tuple[float, ...],
        integers: tuple[int, ...],
    ) -> None:
        numbers = (c_double * len(reals))(*reals), (c_int64 * len(integers))(*integers)
        self._function = function
        self._tensors = tensors
        self._addresses = (c_void_p * len(tensors))()
        self._at = addressof(self._addresses)
        self._numbers = addressof(numbers[0]), addressof(numbers[1])
        self._held = kernel, numbers

    def __call__(self) -> None:
        """Call it. Tensors are where they are now: memory of others may have been moved."""
        self._addresses[:] = [tensor.data_ptr() for tensor in self._tensors]
        self._function(self._at, *self._numbers)


def _loaded(binary: Binary) -> ctypes.CDLL:
    try:
        with tempfile.NamedTemporaryFile(prefix="rote-", suffix=".so") as file:
            file.write(binary.code)
            file.flush()
            return ctypes.CDLL(file.name)
    except OSError as error:
        raise EnvironmentError_(f"kernel {binary.source.name} cannot be loaded: {error}") from error


def _function(library: ctypes.CDLL, symbol: str) -> Callable[..., None]:
    try:
        found = library[symbol]
    except AttributeError as error:
        raise EnvironmentError_(
            f"kernel {symbol} cannot be loaded: it is not in the shared object"
        ) from error
    found.argtypes = (c_void_p, c_void_p, c_void_p)  # a number is an address, without an object of ctypes
    found.restype = None
    return found


def _unload(handle: int) -> None:
    close = ctypes.CDLL(None).dlclose
    close.argtypes = (c_void_p,)
    close(handle)
