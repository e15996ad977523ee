"""All state programs."""

from __future__ import annotations

from types import ModuleType

from .program import StateProgram
from .programs import attributes, containers, names, protocols

GROUPS = (attributes, names, containers, protocols)


def _of(module: ModuleType) -> list[StateProgram]:
    return [value for value in vars(module).values() if isinstance(value, StateProgram)]


PROGRAMS = [program for group in GROUPS for program in _of(group)]
