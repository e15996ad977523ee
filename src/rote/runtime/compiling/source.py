"""A kernel as text, and what a compiler makes of it."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Language(Enum):
    """What a kernel is written in."""

    CPP = "c++"
    TRITON = "triton"


@dataclass(frozen=True)
class Programs:
    """The programs of a kernel on a GPU; one on the host."""

    count: int = 1
    warps: int = 4


@dataclass(frozen=True)
class KernelSource:
    """A kernel as text. Equal sources are compiled once.

    The kernel takes the addresses of its tensors, then its real numbers, then its integers. In C++ it is

        extern "C" void NAME(void* const* tensors, const double* reals, const int64_t* integers)

    and in Triton a function ``NAME`` with one parameter for each tensor (a pointer), each real number (64
    bits) and each integer (64 bits), in this order. How many elements it computes stands in the text.

    Attributes:
        tensors: The element type of each tensor, as Triton names it: ``bf16``, ``fp16``, ``fp32``, ``fp64``,
            ``i1``, ``i8``, ``u8``, ``i16``, ``i32``, ``i64``.
        aligned: Which tensors begin at a multiple of 16 bytes in every call.
        reals: How many real numbers it takes.
        integers: How many integers it takes.
        grid: How it is started.
        capability: Compute capability of the GPU, such as 90; 0 for the host.
        in_place: A tensor that it writes may be one that it reads.
    """

    language: Language
    name: str
    text: str
    tensors: tuple[str, ...]
    aligned: tuple[bool, ...]
    reals: int = 0
    integers: int = 0
    grid: Programs = Programs()
    capability: int = 0
    in_place: bool = False


@dataclass(frozen=True)
class Binary:
    """A compiled kernel.

    Attributes:
        source: What it was made of.
        code: A shared object of the host, or a cubin.
        symbol: The function's name in it.
        shared_bytes: Shared memory of each program on a GPU, in bytes.
    """

    source: KernelSource
    code: bytes
    symbol: str
    shared_bytes: int = 0


@dataclass(frozen=True)
class CompileFailure:
    """Why there is no binary.

    Attributes:
        source: What was to be compiled.
    """

    source: KernelSource
    why: str


class Shelf(Protocol):
    """Keeps kernels, and what was proved of them. Whoever can write to it is trusted. Nothing here raises."""

    def find(self, source: KernelSource) -> Binary | None:
        """A kernel that was compiled earlier, by the compiler that there is now."""
        ...

    def keep(self, binary: Binary) -> None:
        """Keep a kernel."""
        ...

    def certifies(self, source: KernelSource, proved: str) -> bool:
        """Whether something was proved of a kernel."""
        ...

    def certify(self, source: KernelSource, proved: str) -> None:
        """Something was proved of a kernel."""
        ...


class Shelves:
    """The shelves of a process. All are looked at: a kernel is the same whoever asks for it."""

    def __init__(self) -> None:
        self._references: list[weakref.ref[Shelf]] = []

    def add(self, shelf: Shelf) -> None:
        """Use one from now on, as long as somebody has it."""
        if shelf not in self._shelves:
            self._references = [*map(weakref.ref, self._shelves), weakref.ref(shelf)]

    @property
    def _shelves(self) -> list[Shelf]:
        return [found for each in self._references if (found := each()) is not None]

    def find(self, source: KernelSource) -> Binary | None:
        """A kernel on one of them."""
        return next((found for each in self._shelves if (found := each.find(source)) is not None), None)

    def keep(self, binary: Binary) -> None:
        """Keep a kernel on all of them."""
        for each in self._shelves:
            each.keep(binary)

    def certifies(self, source: KernelSource, proved: str) -> bool:
        """Whether one of them has a certificate."""
        return any([each.certifies(source, proved) for each in self._shelves])

    def certify(self, source: KernelSource, proved: str) -> None:
        """Keep a certificate on all of them."""
        for each in self._shelves:
            each.certify(source, proved)


SHELVES = Shelves()
"""The one place where shelves are known."""
