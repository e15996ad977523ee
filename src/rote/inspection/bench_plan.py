"""What a benchmark is to measure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .contenders import Contender

Command = Callable[[str, Path], Sequence[str]]
"""Gives the command line of a worker, for a contender and the folder of eager's results."""


@dataclass(frozen=True)
class Plan:
    """What to measure.

    Attributes:
        target: As the user wrote it.
        arguments: Those of the target, ``name=value``.
        contenders: Eager first.
        command: Starts a worker.
        seconds: For the timed calls of all contenders together.
        limit_s: For one answer of a contender: its first calls together, or one turn.
        cold: Compilers begin with empty caches on disk.
    """

    target: str
    arguments: tuple[str, ...]
    contenders: tuple[Contender, ...]
    command: Command
    seconds: float = 20.0
    limit_s: float = 300.0
    cold: bool = True
