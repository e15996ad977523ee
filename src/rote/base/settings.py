"""The environment: the variables that rote reads, and those a callable may read. No other file reads any."""

from __future__ import annotations

import os
from dataclasses import dataclass

ENVIRONMENT = os.environ
"""All variables, live."""

READERS = frozenset({"environ", "environb", "getenv", "getenvb"})
"""Names by which Python code reads variables."""

_TRUE = frozenset({"1", "true", "yes", "on"})


@dataclass(frozen=True)
class Settings:
    """Process-wide wishes.

    Attributes:
        disable: ``ROTE_DISABLE=1``: every wrapper is a plain call.
        strict: ``ROTE_STRICT=1``: every wrapper is strict.
    """

    disable: bool = False
    strict: bool = False


def read_settings() -> Settings:
    """Read the environment now."""
    return Settings(disable=_flag("ROTE_DISABLE"), strict=_flag("ROTE_STRICT"))


def _flag(name: str) -> bool:
    return os.environ.get(name, "").strip().lower() in _TRUE
