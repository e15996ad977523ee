"""Environment variables; no other file reads any."""

from __future__ import annotations

import os
from dataclasses import dataclass

ENVIRONMENT = os.environ
"""All variables, as they are now."""

READERS = frozenset({"environ", "environb", "getenv", "getenvb"})
"""Names by which Python code reads variables."""

_TRUE = frozenset({"1", "true", "yes", "on"})


@dataclass(frozen=True)
class Settings:
    """Settings of the process.

    Attributes:
        disable: ``ROTE_DISABLE=1``: every wrapper is a plain call.
        strict: ``ROTE_STRICT=1``: every wrapper is strict.
        read_words: ``ROTE_READ_WORDS=0``: guards ask each tensor instead of reading many of them in memory.
    """

    disable: bool = False
    strict: bool = False
    read_words: bool = True


def read_settings() -> Settings:
    """Read the environment now."""
    return Settings(
        disable=_flag("ROTE_DISABLE"),
        strict=_flag("ROTE_STRICT"),
        read_words=_flag("ROTE_READ_WORDS", default="1"),
    )


def _flag(name: str, default: str = "") -> bool:
    return os.environ.get(name, default).strip().lower() in _TRUE


def read_duquant() -> dict[str, str]:
    """The variables of the quantization by full name: ``ROTE_DUQUANT_*``, and ``OPENPI_DUQUANT_*``.

    Public scripts for policies set the latter. The quantization checks them.
    """
    prefixes = ("ROTE_DUQUANT_", "OPENPI_DUQUANT_")
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith(prefixes)}
