"""Which tensors of the caller's a way through a call writes, so that autograd counts a version of them."""

from __future__ import annotations

from typing import NamedTuple

from .storages import EXTERNAL, INPUT, Origin, StorageTable


class Counted(NamedTuple):
    """What is written with a change of version; ``None`` stands for all that is written.

    Batch norm writes its statistics without one: a result that has saved them may wait for its backward while
    the next call writes them. Other ways through the same call may write other tensors.

    Attributes:
        inputs: First members of groups of arguments.
        tensors: Storage handles of tensors made outside.
    """

    inputs: frozenset[int] | None
    tensors: frozenset[int] | None

    @classmethod
    def of(cls, origins: set[Origin], storages: StorageTable) -> Counted:
        """What a call has written.

        Args:
            origins: The storages that operations declared to write.
            storages: The storages of the call.
        """
        handles = [
            storages.externals[number].untyped_storage()._cdata
            for kind, number in origins
            if kind == EXTERNAL
        ]
        return cls(frozenset(number for kind, number in origins if kind == INPUT), frozenset(handles))


COUNTS_ALL = Counted(None, None)
