"""Where random generators lie outside that are replaced: state that the key looks at, as at an argument.

A slot in which calls find another generator than before is such a place. Then it is no condition which object
lies in it: the recording draws from one of its own, as for arguments. Slots are attributes of objects,
globals and variables of functions around.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import CellType
from typing import Any, NamedTuple

import torch

from ..state import ATTRIBUTE, CELL, ITEM, lying_in


class GeneratorPlace(NamedTuple):
    """A slot outside; its container is asked for, and may be gone."""

    kind: str
    container: Callable[[], Any]
    key: Any
    name: str

    def now(self) -> torch.Generator | None:
        """The generator that lies there; None if there is none."""
        container = self.container()
        try:
            found = lying_in(self.kind, container, self.key) if container is not None else None
        except (KeyError, IndexError, ValueError, AttributeError):
            return None
        return found if type(found) is torch.Generator else None


def place_of(kind: str, container: Any, key: Any, owner: Any, name: str) -> GeneratorPlace | None:
    """The slot, if it can be looked at without keeping alive what is large.

    If the container is the dict of an object's attributes, ``owner`` is that object.
    """
    whose = container if owner is None else owner
    if kind == CELL and type(container) is CellType:
        return GeneratorPlace(kind, lambda: container, key, name)
    if kind == ITEM and owner is None and _is_namespace(container):
        return GeneratorPlace(kind, lambda: container, key, name)
    if isinstance(whose, type) or not type(whose).__weakrefoffset__:
        return None
    alive = weakref.ref(whose)
    if kind == ITEM and table_of(whose) is container:
        return GeneratorPlace(kind, lambda: table_of(alive()), key, name)
    return GeneratorPlace(kind, alive, key, name) if kind == ATTRIBUTE and whose is container else None


def table_of(value: Any) -> dict[str, Any] | None:
    """The dict with an object's attributes; None if it has slots alone."""
    try:
        return object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None


def _is_namespace(value: Any) -> bool:
    """Whether a dict is one of globals."""
    return type(value) is dict and "__name__" in value and "__builtins__" in value


class Places:
    """The slots that are known, of which keys look at the open ones."""

    def __init__(self) -> None:
        self.open: tuple[GeneratorPlace, ...] = ()
        self._met: dict[tuple[str, int, Any], tuple[GeneratorPlace, Callable[[], Any]]] = {}

    def meet(self, address: tuple[str, int, Any], place: GeneratorPlace, generator: torch.Generator) -> bool:
        """A call finds a generator in a slot; returns whether another one was met there before.

        The address is the kind, container and key of the slot.
        """
        known = self._met.get(address)
        same_slot = known is not None and known[0].container() is place.container()
        self._met[address] = place, reference(generator)
        if known is None or not same_slot or known[1]() is generator:
            return False
        self.open = (*self.open, place)
        return True

    def clear(self) -> None:
        """Forget everything."""
        self.open = ()
        self._met.clear()


def reference(generator: torch.Generator) -> Callable[[], Any]:
    """Refers to a generator, weakly where PyTorch's can be."""
    return weakref.ref(generator) if type(generator).__weakrefoffset__ else lambda: generator
