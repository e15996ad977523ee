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
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

STOPS, WRONG = "stops", "wrong"
_LABEL = re.compile(r"#.*?\b(stops|wrong)\b")

Built = tuple[Callable[..., Any], tuple[Any, ...]]


class Elsewhere(NamedTuple):
    """A label in a file that is not ours.

    Attributes:
        file: The file, from the package's folder on: ``torchvision/ops/boxes.py``.
        source: The line, without its indentation.
        label: What happens there.
    """

    file: str
    source: str
    label: str = STOPS

    @property
    def is_there(self) -> bool:
        """Whether the installed version of the package has the line."""
        package, _, rest = self.file.partition("/")
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            return False
        file = Path(spec.origin).parent / rest
        return file.exists() and any(line.strip() == self.source for line in file.read_text().splitlines())


def in_package(file: str, package: str | None) -> str:
    """A file's name from the package's folder on; its last part if it is not in the package."""
    parts = Path(file).parts
    if package not in parts:
        return parts[-1]
    return "/".join(parts[len(parts) - 1 - parts[::-1].index(package) :])


@dataclass(frozen=True)
class Case:
    """One callable.

    Attributes:
        build: Takes a device and gives the callable and its arguments, always the same ones.
        elsewhere: Labels in files that are not ours (a library's model).
        needs: A package without which the case is left out.
    """

    build: Callable[[Any], Built]
    elsewhere: tuple[Elsewhere, ...] = ()
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
    def is_taken(self) -> bool:
        """Whether it is a program of another suite."""
        return inspect.unwrap(self.build) is not self.build

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

    def labels_elsewhere(self) -> list[Elsewhere]:
        """Labels of lines that the installed version of the library has."""
        return [label for label in self.elsewhere if label.is_there]


class Group:
    """Collects the cases of a file."""

    def __init__(self) -> None:
        self.cases: list[Case] = []

    def __call__(self, build: Callable[[Any], Built]) -> Callable[[Any], Built]:
        """Add a case."""
        self.cases.append(Case(build))
        return build

    def library(
        self, *stops: tuple[str, str], wrong: tuple[tuple[str, str], ...] = (), needs: str = "transformers"
    ) -> Callable[[Callable[[Any], Built]], Callable[[Any], Built]]:
        """Add a case whose hazards, if any, stand in a library's files.

        Args:
            stops: File and line of those that stop a capture.
            wrong: Of those whose replay is wrong.
            needs: The library.
        """
        labels = [Elsewhere(*each) for each in stops] + [Elsewhere(*each, WRONG) for each in wrong]

        def add(build: Callable[[Any], Built]) -> Callable[[Any], Built]:
            self.cases.append(Case(build, tuple(labels), needs))
            return build

        return add
