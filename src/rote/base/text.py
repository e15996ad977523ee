"""Texts that have to fit in."""

from __future__ import annotations


def cut(text: str, width: int) -> str:
    """A text that is no longer than a width: of a longer one the beginning, and three dots."""
    return text if len(text) <= width else f"{text[: width - 3]}..."
