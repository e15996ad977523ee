"""All state programs."""

from __future__ import annotations

from types import ModuleType

from .program import StateProgram
from .programs import (
    arguments,
    attributes,
    c_objects,
    classes,
    containers,
    effects,
    flow,
    lifetimes,
    modules,
    names,
    protocols,
    replays,
    special,
    surroundings,
)

GROUPS = (
    attributes,
    names,
    containers,
    protocols,
    classes,
    surroundings,
    arguments,
    c_objects,
    modules,
    effects,
    flow,
    lifetimes,
    special,
    replays,
)


def _of(module: ModuleType) -> list[StateProgram]:
    return [value for value in vars(module).values() if isinstance(value, StateProgram)]


PROGRAMS = [program for group in GROUPS for program in _of(group)]
