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
        further: Identities of tensors made outside that count besides: each process has a part of them, or
            others over their memory have counters of their own.
    """

    inputs: frozenset[int] | None
    tensors: frozenset[int] | None
    further: frozenset[int] = frozenset()

    @classmethod
    def of(cls, origins: set[Origin], storages: StorageTable, further: Iterable[int] = ()) -> Counted:
        """What a call has written; ``origins`` are storages whose :meth:`home <StorageTable.home>` counts."""
        handles = [
            storages.externals[number].untyped_storage()._cdata
            for kind, number in origins
            if kind == EXTERNAL
        ]
        inputs = frozenset(number for kind, number in origins if kind == INPUT)
        return cls(inputs, frozenset(handles), frozenset(further))


COUNTS_ALL = Counted(None, None)
