"""What a walk of the state leaves out: attributes that no code of the call can have read.

That holds only as long as nothing gets at them behind the back of the walk. So a walk that leaves something
out asks of everything it meets whether it is code in C that reads attributes, and in the end whether an
object that it does not look into (the cache of a function, a view of bytes, a timer) holds what lies in an
attribute that was left out. Then it starts again and leaves out nothing.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch

from ..base.location import Site
from .readers import hidden_by, hides_reader, holds_any, is_python, is_reading_module, reads_attributes
from .reads import Reads, by_name_only

_INERT = (int, float, bool, str, bytes, complex, type(None), torch.Tensor, torch.dtype, torch.device)


class MetReaderError(Exception):
    """The walk met something that may have read what it left out."""


@dataclass
class LeftOut:
    """What was left out.

    Attributes:
        read_names: Names of attributes that were not, whether there are such or not.
        names: Names of those that were.
        containers: Identities of the namespaces and objects that they are slots of.
        owners: Identities of the objects whose attributes they are.
        reflected: Code that reads all attributes of an object, by the identity of its namespace.
    """

    read_names: set[str] = field(default_factory=set[str])
    names: set[str] = field(default_factory=set[str])
    containers: set[int] = field(default_factory=set[int])
    owners: set[int] = field(default_factory=set[int])
    reflected: dict[int, Site] = field(default_factory=dict[int, Site])

    def covers(self, reads: Reads) -> bool:
        """Whether nothing of what was read was left out. Then it is not left out from now on, either."""
        if reads.block is not None:
            return not self.names
        if not reads.names.isdisjoint(self.names) or not self.owners.isdisjoint(reads.objects):
            return False
        self.read_names |= reads.names
        return True


class Omission:
    """Decides what one walk leaves out.

    Args:
        reads: What was read.
    """

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self.found = LeftOut(set(reads.names))
        self.closed: list[Any] = []  # what the walk met and does not look into
        self._values: list[Any] = []
        self._by_name: dict[type, bool] = {}
        self._harmless: set[type] = {dict, list, tuple, set, frozenset, deque, OrderedDict, defaultdict}

    def concerns(self, value: Any, attributes: Any) -> bool:
        """Whether attributes of an object that no code names have no part in the call."""
        if attributes is not None and type(attributes) is not dict:
            return False
        kind = type(value)
        known = self._by_name.get(kind)
        if known is None:
            known = self._by_name[kind] = by_name_only(kind)
        site = self._reads.objects.get(id(value)) if known else None
        if site is not None:
            self.found.reflected[id(attributes)] = site
        return known and site is None

    def takes(self, owner: Any, container: Any, name: str, value: Any) -> bool:
        """Whether an attribute is left out; functions never are, since code in C may look them up.

        Args:
            owner: The object whose attribute it is.
            container: Its namespace, or the object itself for a slot.
            name: Its name.
            value: What lies there.
        """
        if name in self.found.read_names or name.startswith("__") or callable(value):
            return False
        self.found.owners.add(id(owner))
        self.found.containers.add(id(container))
        self.found.names.add(name)
        if not isinstance(value, _INERT):
            self._values.append(value)
        return True

    def meet(self, value: Any, name: Callable[[], str]) -> None:
        """Look at an object that the walk meets.

        Raises:
            MetReaderError: It is code in C that reads attributes.
        """
        kind = type(value)
        if kind in self._harmless:
            return
        if isinstance(value, ModuleType):
            if is_reading_module(value):
                raise MetReaderError(f"functions of {value.__name__} may read attributes unseen")
        elif reads_attributes(value) or hides_reader(value):
            raise MetReaderError(f"{name()} may read attributes unseen")
        if is_python(kind):  # of those in C it depends on the object
            self._harmless.add(kind)

    def look_behind(self, seen: Container[int]) -> None:
        """When the walk is over: whether what was left out can be reached in another way.

        Args:
            seen: Identities of what the walk has met.

        Raises:
            MetReaderError: It can.
        """
        if not self._values or not self.closed:
            return
        hidden = hidden_by(self.closed, seen)
        if hidden is None or (hidden and holds_any(self._values, hidden, seen)):
            raise MetReaderError("what lies in an attribute may be reached in another way")
