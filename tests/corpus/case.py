"""What a case of the corpus is: a callable with its arguments, and labels on its lines.

A line that ends in ``# stops`` fails a capture by hand; one that ends in ``# wrong`` captures, and the replay
then gives something else than the plain call: both the line whose effect on Python is lost (``self.n += 1``)
and the one whose operation has the old value in it (``x / self.n``). Lines without a label do neither. The
labels are what really happens on a GPU: :mod:`.truth` captures every case there and compares.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STOPS, WRONG = "stops", "wrong"
_LABEL = re.compile(r"#.*?\b(stops|wrong)\b")

Built = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True)
class Case:
    """One callable.

    Attributes:
        build: Takes a device and gives the callable and its arguments, always the same ones.
        expected: Labels in files that are not ours (a library's model): file name and source line.
        needs: A package without which the case is left out.
    """

    build: Callable[[Any], Built]
    expected: tuple[tuple[str, str], ...] = ()
    needs: str | None = None

    @property
    def name(self) -> str:
        """In words."""
        return self.build.__name__.replace("_", " ")

    @property
    def group(self) -> str:
        """The module it stands in."""
        return self.build.__module__.rpartition(".")[2]

    @property
    def file(self) -> str:
        """Where it stands."""
        return str(Path(inspect.getfile(inspect.unwrap(self.build))).resolve())

    @property
    def span(self) -> range:
        """Its lines."""
        lines, first = inspect.getsourcelines(self.build)
        return range(first, first + len(lines))

    def labels(self) -> dict[int, str]:
        """What happens, by line."""
        lines, first = inspect.getsourcelines(self.build)
        found = {first + number: _LABEL.search(line) for number, line in enumerate(lines)}
        return {number: match.group(1) for number, match in found.items() if match}


class Group:
    """Collects the cases of a file."""

    def __init__(self) -> None:
        self.cases: list[Case] = []

    def __call__(self, build: Callable[[Any], Built]) -> Callable[[Any], Built]:
        """Add a case."""
        self.cases.append(Case(build))
        return build

    def library(
        self, *expected: tuple[str, str], needs: str = "transformers"
    ) -> Callable[[Callable[[Any], Built]], Callable[[Any], Built]]:
        """Add a case whose hazards, if any, stand in a library's files."""

        def add(build: Callable[[Any], Built]) -> Callable[[Any], Built]:
            self.cases.append(Case(build, expected, needs))
            return build

        return add
