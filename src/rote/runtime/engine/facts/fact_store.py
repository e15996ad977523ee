"""Where facts are kept; :mod:`rote.plans` has them in a directory, and the user's option joins the two."""

from __future__ import annotations

from collections.abc import Mapping
from types import CodeType
from typing import Any, Protocol

from .facts import KeyFacts
from .texts import KeyName

RanCode = Mapping[CodeType, Mapping[str, Any]]
"""Code that calls have run, with its globals."""


class FactStore(Protocol):
    """Keeps the facts of one callable. Nothing here raises: what cannot be kept or read is said in a note."""

    def find(self, key: KeyName) -> KeyFacts | None:
        """What is known of a key, in so far as it may hold for this process."""
        ...

    def keep(self, key: KeyName, facts: KeyFacts, codes: RanCode) -> None:
        """Keep what this process has found; ``codes`` are what its calls have run."""
        ...

    def note(self, text: str) -> None:
        """The report says this once."""
        ...

    def hide(self, text: str) -> str:
        """What stands for a text that is not to be kept: a digest and a length."""
        ...
