"""Memory that a call gives to a storage from outside, and takes back: ``untyped_storage().resize_(...)``.

FSDP gathers a parameter into a storage that is empty before the call and behind it. What lies in it meanwhile
is the call's own: to give it memory is an operation that makes a storage, and to take that back ends its
life.
A replay has the memory where the recording has it, and leaves the storage from outside as it is.

That it is empty before the call is a condition (:class:`...pytorch.EmptyStorages`). One that holds memory
from outside is not resized in a call that is recorded, nor is one left at another size than it had.

What does not work: memory that is still there where the host reads a value, since Python that goes on from
there would find other memory in the storage than the replay has filled; memory that an operation between two
segments reads, which holds the tensor; results that have a history, which would find the storage empty.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch

from ....base import Site, user_site
from ....hazards import rules
from ....hazards.rules import Reason, reason
from ...program import Operation
from ...pytorch import plain_functions
from .cursor import Cursor, Mode
from .transfers import Steps

GIVES_MEMORY = torch.ops.aten.empty.memory_format
_OUTSIDE = "Take the memory of tensors before the call, and give it back behind it; or leave it to them."
_UNCOUNTED = "Write tensor.data, or under torch.autograd._unsafe_preserve_version_counter(tensor)."
_TOGETHER = "Take the whole step in one call, up to where the memory is given back."


class ResizedStorages:
    """The storages from outside that one attempt at a call has given memory to.

    Attributes:
        any: The line that was the first to do so.
    """

    def __init__(self, cursor: Cursor) -> None:
        self.any: Site | None = None
        self._cursor = cursor
        self._numbers: set[int | None] = set()  # of what they have been given, in the call
        # tensors on them that were written, by identity, with their version before
        self._written: dict[int, tuple[weakref.ref[torch.Tensor], int, Site]] = {}
        self._filled: dict[int, tuple[torch.UntypedStorage, Site]] = {}  # that have memory now, by handle

    def fill(
        self, steps: Steps, known: Any, storage: torch.UntypedStorage, nbytes: int
    ) -> torch.Tensor | None:
        """Give memory to an empty storage.

        Args:
            known: What is known of the operation that makes memory.

        Returns:
            Its result, if the call is followed.
        """
        cursor, site = self._cursor, user_site()
        self.any = self.any or site
        with plain_functions():
            if cursor.mode is Mode.RECORD:
                cursor.recorder.fill(cursor, storage, nbytes)
            else:
                cursor.quietly(partial(storage.resize_, nbytes))
            cursor.storages.forget(storage)
            self._filled[storage._cdata] = storage, site
            if cursor.blockers and cursor.mode is Mode.OBSERVE:
                return None
            made = cursor.quietly(partial(_bytes_of, storage))
        options = {"dtype": torch.uint8, "device": storage.device}
        operation, tensors, tokens, _ = steps.before(known, ([nbytes],), options)
        if cursor.mode is Mode.FOLLOW:
            was = cursor.expect(operation).results[0]
            cursor.storages.result(made, operation.name, operation.site, was.made)
            cursor.passed()
            self._numbers.add(was.made)
            return made
        steps.after(operation, known.facts, tensors, tokens, made)
        self._numbers.add(cursor.storages.number_of(storage))
        return made

    def empty(self, storage: torch.UntypedStorage) -> None:
        """Take the memory back that a storage was given."""
        cursor = self._cursor
        with plain_functions():
            if cursor.tape is not None:
                cursor.tape.session.disown(storage)
            cursor.storages.forget(storage)
            cursor.quietly(partial(storage.resize_, 0))
        self._filled.pop(storage._cdata, None)

    def read(self) -> None:
        """The host reads a value: what comes then is recorded or run behind a replay of what was before."""
        for _, site in self._filled.values():
            text = "the host reads a value while storages from outside have memory that the call gave them"
            self._block(text, site)
            return

    def write(self, written: Iterable[torch.Tensor]) -> None:
        """An operation is about to write operands, whose versions may change: replays count nothing here."""
        for tensor in written if self._filled else ():
            whole = tensor if tensor._base is None else tensor._base
            number = self._cursor.storages.number_of(whole.untyped_storage())
            if number in self._numbers and id(whole) not in self._written and not whole.is_inference():
                self._written[id(whole)] = weakref.ref(whole), whole._version, user_site()

    def stay(self, operation: Operation) -> None:
        """An operation is about to run between two segments."""
        for each in operation.tokens if self._filled else ():
            if each.made in self._numbers:
                text = f"{operation.name} runs between two segments, on memory that the call gave a storage"
                self._block(text, operation.site)

    def reasons(self, *, tracked: bool) -> Iterable[Reason]:
        """The call is over: why it cannot be recorded; ``tracked`` if a result has a history."""
        for _, site in self._filled.values():
            text = "the call gives memory to a storage from outside, and leaves it there"
            yield reason(rules.TENSOR_ESCAPES, text, site, _TOGETHER)
            return
        for reference, version, site in self._written.values():
            tensor = reference()
            if tensor is not None and tensor._version != version:
                text = "a tensor whose storage the call empties again has another version behind it"
                yield reason(rules.TENSOR_ESCAPES, text, site, _UNCOUNTED)
                return
        if tracked and self.any is not None:
            text = "a result has a history, and the call empties storages from outside that it had filled"
            yield reason(rules.TENSOR_ESCAPES, text, self.any, _TOGETHER)

    def _block(self, text: str, site: Site) -> None:
        self._cursor.block(reason(rules.TENSOR_ESCAPES, text, site, _OUTSIDE))


def _bytes_of(storage: torch.UntypedStorage) -> torch.Tensor:
    made = torch.empty(0, dtype=torch.uint8, device=storage.device)
    return made.set_(storage, 0, (storage.nbytes(),), (1,))
