"""What a traced call was seen to read and to write outside of itself."""

from __future__ import annotations

from dataclasses import dataclass
from types import CodeType
from typing import Any, NamedTuple

from ....base import Site
from ...pytorch import Contact
from ...state import Reads


class Effect(NamedTuple):
    """One thing outside of the call that is not what it was before.

    Attributes:
        name: What the user would write.
        was: Text of what was there.
        now: Text of what is there.
        site: The line that wrote it.
        address: Kind of the slot, identity of its container, key.
        given: It is in an argument that is taken apart.
    """

    name: str
    was: str
    now: str
    site: Site
    address: tuple[str, int, Any]
    given: bool = False

    def __str__(self) -> str:
        return f"{self.name} was {self.was} and is {self.now}"


class UnseenCode(NamedTuple):
    """Something that the call did and nobody can say of what it depends on.

    Attributes:
        name: The callable, or the code.
        text: What is said of it.
        site: The line.
        unknown: It is a callable or a class in C that is in no row of the table.
    """

    name: str
    text: str
    site: Site
    unknown: bool = False


class Setting(NamedTuple):
    """The call sets the state of a random generator.

    Attributes:
        address: Where the generator lies.
        outside: It was made outside.
        state: What it is set to, if that is a tensor.
        site: The line.
    """

    address: int
    outside: bool
    state: Any
    site: Site


class Output(NamedTuple):
    """What the call wrote for somebody to read, and a replay does not write.

    Attributes:
        what: The function that wrote it, or the library.
        site: The line.
    """

    what: str
    site: Site


@dataclass(frozen=True)
class Noted:
    """All that was noted of one call.

    Attributes:
        reads: What it read, in order.
        effects: What it left behind.
        unseen: What is not known of it.
        late: Python code that ran without being followed, since C called it; it is followed the next time.
        output: What it wrote to the standard streams.
        draws: The line that drew first from Python's or numpy's global generator.
        missing: Attributes of arguments that it read and its key does not have; that of the next call has.
        scripts: Functions and methods of TorchScript that it called.
        contact: What in C it called first that acts on other processes.
    """

    reads: Reads
    effects: tuple[Effect, ...]
    unseen: tuple[UnseenCode, ...]
    late: tuple[CodeType, ...]
    output: tuple[Output, ...] = ()
    draws: Site | None = None
    missing: tuple[str, ...] = ()
    scripts: tuple[Any, ...] = ()
    contact: Contact | None = None
