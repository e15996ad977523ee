"""The attributes of another library's objects by which rote enters them. Each is looked for first."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...api import Graphed
from ...base import MisuseError
from .torch_private import as_written

_log = logging.getLogger("rote")
_ABSENT: Any = object()


@dataclass(frozen=True)
class Library:
    """A library whose objects are entered.

    Attributes:
        seen: Its name and the newest version that was read.
        uncompiled: What in its configuration leaves methods as they are written.
        wrappers: Attributes by which wrappers of its objects are known.
        otherwise: What to do about any other object that does not fit, in words.
    """

    seen: str
    uncompiled: str
    wrappers: Mapping[str, str]
    otherwise: Callable[[Any], str]

    def remedy(self, owner: Any) -> str:
        """What to do about an object that does not fit, in words."""
        for name, wrapper in self.wrappers.items():
            if hasattr(owner, name):
                return f"pass what the {wrapper} wraps, its {name}"
        return self.otherwise(owner)


@dataclass(frozen=True)
class Hook:
    """One attribute.

    Attributes:
        library: Whose objects have it.
        what: What it holds, for a message.
        kind: Its class; ``object`` for anything that can be called.
    """

    library: Library
    name: str
    what: str
    kind: type = object

    def of(self, owner: Any, caller: str) -> Any:
        """The value of the attribute.

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

    def replace(self, owner: Any, make: Callable[[Callable[..., Any]], Any], caller: str) -> None:
        """Put what is made of a method in its place; of a compiled one, of the method as it is written."""
        method = getattr(owner, self.name)
        written = as_written(method)
        setattr(owner, self.name, make(method if written is None else written))
        if written is not None:
            _log.warning(
                "%s records %s as it is written, with the results of eager, and leaves out %s's torch.compile"
                " around it; %s in the configuration says the same",
                caller,
                getattr(written, "__name__", self.name),
                self.library.seen.split()[0],
                self.library.uncompiled,
            )


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
