"""What keys have in common that differ in whole numbers and in sizes of tensors alone.

``docs/call.md`` says what is recorded then. One recorded call shows what two calls of one key show: that
nothing is initialised any more, and that operations come again. Where keys differ in a number that calls may
turn out not to depend on, one of them has to be recorded first: then one recording may do for all of them.
"""

from __future__ import annotations

import weakref

from ..arguments import Call, Key, may_follow
from ..recording import Recording

MOST_VAIN = 2
"""Calls in a row that did something else."""


class OtherLengths:
    """The keys of one call at other lengths."""

    def __init__(self) -> None:
        self._model: weakref.ref[Recording] | None = None
        self._key: Key | None = None
        self._in_vain = 0

    def model(self, call: Call) -> Recording | None:
        """What the first call of a further key is compared with; None if it is to be observed."""
        found = self._model() if self._model is not None and self._in_vain < MOST_VAIN else None
        if found is None or self._key is None or not found.root.complete:
            return None
        return found if found.recorded or not may_follow(self._key, call) else None

    def add(self, recording: Recording, key: Key) -> None:
        """The call of a key was observed, or recorded."""
        if recording.serves_as_model:
            self._model, self._key = weakref.ref(recording), key

    def compare(self, *, like: bool) -> None:
        """A first call was like that of another key, or not."""
        self._in_vain = 0 if like else self._in_vain + 1
