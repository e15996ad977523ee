"""Where compiled kernels are kept for later processes; :mod:`rote.plans` has them in a folder."""

from __future__ import annotations

import weakref
from typing import Protocol

from .source import Binary, KernelSource


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
