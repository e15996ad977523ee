"""Which of the caller's tensors a way through a call writes so that autograd counts a version."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .storages import EXTERNAL, INPUT, Origin, StorageTable


class Counted(NamedTuple):
    """The writes that change a version; ``None`` stands for all writes.

    Batch norm writes its statistics without a change: a result that has saved them may wait for its backward
    while the next call writes them. Other ways through the same call may write other tensors.

    Attributes:
        inputs: First members of groups of arguments.
        tensors: Storage handles of tensors made outside.
        sharded: Identities of tensors made outside of which each process has a part.
    """

    inputs: frozenset[int] | None
    tensors: frozenset[int] | None
    sharded: frozenset[int] = frozenset()

    @classmethod
    def of(cls, origins: set[Origin], storages: StorageTable, sharded: Iterable[int] = ()) -> Counted:
        """What a call has written; ``origins`` are the storages that operations declared to write."""
        handles = [
            storages.externals[number].untyped_storage()._cdata
            for kind, number in origins
            if kind == EXTERNAL
        ]
        inputs = frozenset(number for kind, number in origins if kind == INPUT)
        return cls(inputs, frozenset(handles), frozenset(sharded))


COUNTS_ALL = Counted(None, None)
