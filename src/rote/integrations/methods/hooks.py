"""The attributes of another library's objects by which rote enters them. Each is looked for first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ...api import Graphed
from ...base import MisuseError

_ABSENT: Any = object()


@dataclass(frozen=True)
class Library:
    """A library whose objects are entered.

    Attributes:
        seen: Its name and the newest version that was read.
        remedy: What to do about an object that does not fit, in words.
    """

    seen: str
    remedy: Callable[[Any], str]


@dataclass(frozen=True)
class Hook:
    """One attribute.

    Attributes:
        library: Whose objects have it.
        name: The attribute.
        what: What it holds, for a message.
        kind: Its class; ``object`` for anything that can be called.
    """

    library: Library
    name: str
    what: str
    kind: type = object

    def of(self, owner: Any, caller: str) -> Any:
        """The value of the attribute.

        Args:
            owner: An object of the library's.
            caller: The function that asks.

        Raises:
            MisuseError: The attribute is not there, or holds something else.
        """
        found = getattr(owner, self.name, _ABSENT)
        fits = isinstance(found, self.kind) if self.kind is not object else callable(found)
        if found is not _ABSENT and fits:
            return found
        problem = "no such attribute" if found is _ABSENT else f"a {type(found).__name__}"
        raise MisuseError(
            f"{caller} needs {type(owner).__name__}.{self.name}, {self.what} in {self.library.seen}, and "
            f"finds {problem}; {self.library.remedy(owner)}"
        )

    def plain(self, owner: Any, caller: str) -> Any:
        """The same of a callable that is not graphed yet.

        Raises:
            MisuseError: As above, or it is graphed.
        """
        found = self.of(owner, caller)
        if graphed_in(found) is not None:
            name = f"{type(owner).__name__}.{self.name}"
            raise MisuseError(f"{caller}: {name} is graphed already; leave the second call out")
        return found


def graphed_in(value: Any) -> Graphed | None:
    """The graphed callable that a hook holds, or that lies in what it holds; None if there is none."""
    if isinstance(value, Graphed):
        return value
    found = getattr(value, "graphed", None)
    return found if isinstance(found, Graphed) else None


def held_by(owners: Iterable[Any], names: Iterable[str]) -> list[Graphed]:
    """The graphed callables in attributes of some objects, each once."""
    names = tuple(names)
    held = [graphed_in(getattr(owner, name, None)) for owner in owners for name in names]
    return list({id(each): each for each in held if each is not None}.values())
