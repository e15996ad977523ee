"""Short texts."""

from __future__ import annotations


def cut(text: str, width: int) -> str:
    """The text; if it is longer than a width, its beginning and three dots."""
    return text if len(text) <= width else f"{text[: width - 3]}..."


def in_one_line(error: BaseException) -> str:
    """The class of an exception, and the first line of its text if it has one."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
