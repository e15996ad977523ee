"""Short texts."""

from __future__ import annotations


def cut(text: str, width: int) -> str:
    """The text; if it is longer than a width, its beginning and three dots."""
    return text if len(text) <= width else f"{text[: width - 3]}..."
