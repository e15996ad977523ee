"""Rows for C callables that libraries ship, by entry points of the group ``rote.calls``.

An entry point gives a mapping from the word of a row to names, as ``calls.toml`` has them::

    [project.entry-points."rote.calls"]
    mylib = "mylib.rote_rows:ROWS"  # ROWS = {"pure": ["mylib._C.*"], "clock": ["mylib._C.now"]}

Loading imports the library, so it waits until a call meets a callable that rote does not know. An entry point
that fails to load, or gives no such mapping, is logged and left out.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.metadata import EntryPoint, entry_points
from typing import Any

GROUP = "rote.calls"

_log = logging.getLogger("rote")


@dataclass(frozen=True)
class RowNames:
    """Rows by name; the longest matching name wins."""

    exact: Mapping[str, str]  # rows by full names
    patterns: tuple[tuple[str, str], ...]  # names with ``*``, and their rows, the longest first

    @classmethod
    def of(cls, rows: Mapping[str, Collection[str]]) -> RowNames:
        """Build from names by row; if several rows have a full name, the last one wins."""
        given = [(name, row) for row, names in rows.items() for name in names]
        patterns = [pair for pair in given if "*" in pair[0]]
        exact = dict(pair for pair in given if "*" not in pair[0])
        return cls(exact, tuple(sorted(patterns, key=lambda pair: -len(pair[0]))))

    def find(self, name: str) -> str | None:
        """The row of a full name, None if there is none."""
        found = self.exact.get(name)
        if found is not None:
            return found
        whole = f"{name}."  # a class is what "module.Class.*" says of its methods
        fitting = (
            row
            for pattern, row in self.patterns
            if (name.startswith(pattern[: pattern.index("*")]) and fnmatchcase(name, pattern))
            or whole == pattern[:-1]
        )
        return next(fitting, None)


def checked(rows: Any, known: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Rows as somebody has written them.

    Raises:
        ValueError: It says something that cannot be, with what and what it may be.
    """
    if not isinstance(rows, Mapping):
        kind = type(rows).__name__
        raise ValueError(f'it is a {kind}, and has to be a mapping: {{"pure": ["mylib._C.*"]}}')
    found: dict[str, tuple[str, ...]] = {}
    for row, names in rows.items():
        if row not in known:
            raise ValueError(f"{row!r} is no row; the rows are {', '.join(known)}")
        if isinstance(names, str) or not isinstance(names, Collection):
            raise ValueError(f"the names of the row {row!r} have to be a list, not {names!r}")
        for name in names:
            if not _is_name(name):
                raise ValueError(
                    f"{name!r} in the row {row!r} is no full name; write it as Python knows it: "
                    '"module.function", "module.Class.method", "module.*" or "module.Class.*"'
                )
        found[row] = tuple(names)
    return found


def _is_name(name: Any) -> bool:
    """Whether a name begins with a module, and has a star at most in its last part."""
    if not isinstance(name, str):
        return False
    *parts, last = name.split(".")
    return bool(parts) and all(map(str.isidentifier, parts)) and last.replace("*", "x").isidentifier()


def load(known: Collection[str]) -> RowNames:
    """The rows of all libraries that are installed and ship some."""
    rows: dict[str, tuple[str, ...]] = {}
    for found in _loaded(known):
        for row, names in found.items():
            rows[row] = (*rows.get(row, ()), *names)
    return RowNames.of(rows)


def _loaded(known: Collection[str]) -> Iterator[dict[str, tuple[str, ...]]]:
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        try:
            yield checked(point.load(), known)
        except (Exception, SystemExit) as error:  # whatever runs when somebody's module is imported
            text = "the rows that %s ships for its C callables are left out (entry point %s = %s of %s): %s"
            said = f"{type(error).__name__}: {error}" if type(error) is not ValueError else str(error)
            _log.warning(text, _distribution(point), point.name, point.value, GROUP, said)


def _distribution(point: EntryPoint) -> str:
    found = point.dist
    return f"{found.name} {found.version}" if found is not None else "a distribution without a name"
