"""Patterns over the dotted names of layers.

A pattern is a glob over the whole name (``*.mlp.down_proj``; ``*`` crosses dots), or, after ``re:``, a
regular expression that may match anywhere in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from ...base import OptionError

REGULAR = "re:"


def matches(pattern: str, name: str) -> bool:
    """Whether a layer's name fits a pattern."""
    if pattern.startswith(REGULAR):
        return re.search(pattern[len(REGULAR) :], name) is not None
    return fnmatchcase(name, pattern)


def first_match(patterns: Iterable[str], name: str) -> str | None:
    """The first pattern that fits a name."""
    return next((pattern for pattern in patterns if matches(pattern, name)), None)


def check_patterns(field: str, patterns: Sequence[str]) -> None:
    """Raise an OptionError for a pattern that is no string, empty, or no regular expression."""
    for pattern in patterns:
        if not isinstance(pattern, str) or not pattern:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(
                f"{field}: {pattern!r} must be a pattern over layer names, as '*.mlp.down_proj'"
            )
        if pattern.startswith(REGULAR):
            try:
                re.compile(pattern[len(REGULAR) :])
            except re.error as error:
                raise OptionError(f"{field}: {pattern!r} is no regular expression: {error}") from error


def check_all_used(field: str, patterns: Iterable[str], names: Sequence[str]) -> None:
    """Raise an OptionError for a pattern that fits none of the names; it shows what names look like."""
    for pattern in patterns:
        if not any(matches(pattern, name) for name in names):
            shown = ", ".join(map(repr, names[:3])) + (", ..." if len(names) > 3 else "")
            raise OptionError(
                f"{field}: {pattern!r} matches none of the {len(names)} linear layers "
                f"({shown or 'there are none'})"
            )
