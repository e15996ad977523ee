"""Storages outside that a call gives memory to: empty when it begins, which is a condition."""

from __future__ import annotations

import weakref
from types import FrameType
from typing import Protocol

import torch

EMPTY = ""
"""What :class:`EmptyStorages` says while all are empty."""


class CallRun(Protocol):
    """What runs a traced call, for the notes of it."""

    def has_made(self, storage: torch.UntypedStorage) -> bool:
        """Whether the call has made a storage."""
        ...

    def resize(self, storage: torch.UntypedStorage, nbytes: int) -> bool:
        """Give memory to an empty storage from outside, or take it back; False if no replay can do that."""
        ...

    def runs_script(self) -> None:
        """TorchScript is about to run, which may launch kernels that it has fused, past the dispatcher."""

    def makes(self, kind: type, frame: FrameType | None) -> None:
        """The next call in a frame makes an instance of a class of tensors."""


class NoRun:
    """There is no call, or it is over."""

    def has_made(self, storage: torch.UntypedStorage) -> bool:
        """Not known."""
        return False

    def resize(self, storage: torch.UntypedStorage, nbytes: int) -> bool:
        """Nothing is recorded."""
        return False

    def runs_script(self) -> None:
        """Nothing is recorded."""

    def makes(self, kind: type, frame: FrameType | None) -> None:
        """Nothing is recorded."""


NO_RUN = NoRun()


class EmptyStorages:
    """Storages, weakly, that were empty before a call; asked, whether they still are."""

    def __init__(self) -> None:
        self._storages: dict[int, weakref.ref[torch.UntypedStorage]] = {}  # by handle

    def __call__(self) -> str:
        """Nothing, or what has become of one."""
        for reference in self._storages.values():
            storage = reference()
            if storage is None:
                return "a storage that is gone"
            if nbytes := storage.nbytes():
                return f"a storage of {nbytes} bytes"
        return EMPTY

    def add(self, storage: torch.UntypedStorage) -> None:
        """One that is empty, and was when the call began."""
        self._storages[storage._cdata] = weakref.ref(storage)

    def has(self, storage: torch.UntypedStorage) -> bool:
        """Whether a storage is one of them."""
        reference = self._storages.get(storage._cdata)
        return reference is not None and reference() is storage

    def any(self) -> bool:
        """Whether there is any."""
        return bool(self._storages)
