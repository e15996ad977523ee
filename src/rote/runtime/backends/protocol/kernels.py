"""Compiled kernels, loaded on a device, and what is checked before one of them is launched.

A kernel gets addresses and nothing else, so what does not fit would write where it should not. All that can
be told from the tensors is compared with what the kernel was compiled for. How many elements it reads and
writes stands in its text, and is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, NoReturn, Protocol

import torch

from ....base import InternalError
from ...compiling import KernelSource

KERNEL = "rote::kernel"
"""The name of what runs a compiled kernel."""

ALIGNMENT = 16
"""Bytes at a multiple of which an aligned tensor begins."""

NAMES_OF_TYPES = {
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.bool: "i1",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
}
"""Types of elements, and how kernels name them."""

_TYPES = {name: dtype for dtype, name in NAMES_OF_TYPES.items()}


class LoadedKernel(Protocol):
    """A compiled kernel on a device."""

    @property
    def source(self) -> KernelSource:
        """What it was compiled from."""
        ...

    def __call__(
        self, tensors: Sequence[torch.Tensor], reals: Sequence[float] = (), integers: Sequence[int] = ()
    ) -> None:
        """Run it, on the host at once, on a GPU on the current stream.

        Args:
            tensors: Those that it reads, then those that it writes.

        Raises:
            InternalError: The tensors or numbers are not those of the kernel; nothing was launched.
            EnvironmentError_: The device refused the launch.
        """
        ...


class KernelLaunch(NamedTuple):
    """A launch of a kernel, which the backend of its session has loaded.

    Attributes:
        given: Tensors that it only reads.
        made: Tensors that it writes whole: memory that the session has made (``empty_strided``), or that
            somebody promises to keep as long as the session. None shares memory with one that is given.
    """

    kernel: LoadedKernel
    given: Sequence[torch.Tensor]
    made: Sequence[torch.Tensor]
    reals: Sequence[float] = ()
    integers: Sequence[int] = ()

    @property
    def tensors(self) -> list[torch.Tensor]:
        """Those that it reads, then those that it writes."""
        return [*self.given, *self.made]


def check_kernel(source: KernelSource, capability: int) -> None:
    """Compare what a kernel was compiled for with the compute capability of a device (0: the host).

    Raises:
        InternalError: It is for another device.
    """
    if source.capability != capability:
        _refuse(source, f"it is for compute capability {source.capability}, and the device has {capability}")


def check_launch(
    source: KernelSource,
    device: torch.device,
    tensors: Sequence[torch.Tensor],
    reals: Sequence[float],
    integers: Sequence[int],
) -> None:
    """Compare what a kernel is given with what it takes.

    Raises:
        InternalError: The message says what does not fit.
    """
    for what, found, wanted in (
        ("tensors", len(tensors), len(source.tensors)),
        ("real numbers", len(reals), source.reals),
        ("integers", len(integers), source.integers),
    ):
        if found != wanted:
            _refuse(source, f"it takes {wanted} {what} and was given {found}")
    for n, (tensor, kind, aligned) in enumerate(zip(tensors, source.tensors, source.aligned, strict=True)):
        if tensor.device != device:
            _refuse(source, f"tensor {n} is on {tensor.device}, and the kernel on {device}")
        if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
            _refuse(source, f"tensor {n} has no plain memory")
        if tensor.dtype is not _TYPES[kind]:
            _refuse(source, f"tensor {n} is {tensor.dtype}, and the kernel takes {_TYPES[kind]}")
        if aligned and tensor.data_ptr() % ALIGNMENT:
            _refuse(source, f"tensor {n} does not begin at a multiple of {ALIGNMENT} bytes as it should")


def check_apart(launch: KernelLaunch) -> None:
    """Compare the memory that a captured kernel is to read with that which it is to write.

    Raises:
        InternalError: A tensor that it writes shares memory with one that it reads. Where the kernel works in
            place it may be that tensor, and not another one in the same memory.
    """
    source = launch.kernel.source
    for mine in launch.made:
        others = [each for each in launch.given if _shares_memory(each, mine)]
        same = [_place_of(each) == _place_of(mine) for each in others]
        if others and not (source.in_place and all(same)):
            _refuse(source, "it is to write memory that it reads")


def _shares_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    storages = one.untyped_storage().data_ptr(), other.untyped_storage().data_ptr()
    return bool(one.numel() and other.numel()) and storages[0] == storages[1]


def _place_of(tensor: torch.Tensor) -> tuple[int, int, torch.dtype]:
    return tensor.data_ptr(), tensor.nbytes, tensor.dtype


def _refuse(source: KernelSource, why: str) -> NoReturn:
    raise InternalError(
        f"kernel {source.name} was not launched: {why}. This is a bug in rote; please report it."
    )
