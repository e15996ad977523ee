"""Names that handlers go by: the rows of ``names.toml``, which says what they are."""

from __future__ import annotations

import tomllib
from pathlib import Path
from pkgutil import resolve_name

NAMES = {
    row: frozenset[str](names)
    for row, names in tomllib.loads(Path(__file__).with_suffix(".toml").read_text()).items()
}


def types_in(row: str) -> tuple[type, ...]:
    """The types that a row names."""
    return tuple([resolve_name(name) for name in NAMES[row]])
