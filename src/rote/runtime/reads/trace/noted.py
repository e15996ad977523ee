"""What a traced call was seen to read and to write outside of itself."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from types import CodeType
from typing import Any, NamedTuple
from weakref import ref

import torch

from ....base import Site
from ...pytorch import Contact
from ...state import Address, Reads


class Effect(NamedTuple):
    """One slot outside of the call that has changed."""

    name: str  # what the user would write
    was: str  # text of what was there
    now: str  # text of what is there
    site: Site  # the line that wrote it
    address: tuple[str, int, Any]  # kind of the slot, identity of its container, key
    given: bool = False  # it is in an argument that is taken apart
    numbers: tuple[Address, ...] = ()  # slots that hold other numbers of Python's than before
    window: ref[deque[Any]] | None = None  # what is filled, and keeps its length once it is full
    holds: bool = False  # more than plain values lies there that did not before

    def __str__(self) -> str:
        return f"{self.name} was {self.was} and is {self.now}"


class UnseenCode(NamedTuple):
    """Something the call did whose dependencies are unknown."""

    name: str  # the callable, or the code
    text: str
    site: Site
    unknown: bool = False  # it is a callable or a class in C that is in no row of the table


class Setting(NamedTuple):
    """The call sets the state of a random generator."""

    address: int  # where the generator lies
    outside: bool  # it was made outside
    state: Any  # what it is set to, if that is a tensor
    given: bool  # that tensor was made outside as well
    site: Site


class Output(NamedTuple):
    """Output of the call that a replay does not repeat."""

    what: str  # the function that wrote it, or the library
    site: Site


@dataclass(frozen=True)
class Noted:
    """All that was noted of one call."""

    reads: Reads  # what it read, in order
    effects: tuple[Effect, ...]  # what it left behind
    unseen: tuple[UnseenCode, ...]  # what is not known of it
    # Python code that ran without being followed, since C called it; it is followed the next time
    late: tuple[CodeType, ...]
    output: tuple[Output, ...] = ()  # what it wrote to the standard streams
    draws: Site | None = None  # the line that drew first from Python's or numpy's global generator
    reads_arrays: bool = False  # it reads numbers of arrays among the arguments, or writes some
    # attributes of arguments that it read and its key does not have; that of the next call has
    missing: tuple[str, ...] = ()
    scripts: tuple[Any, ...] = ()  # functions and methods of TorchScript that it called
    contact: Contact | None = None  # what in C it called first that acts on other processes
    # notes have a part in what runs: it called what switches Dynamo on or off, or made tensors of a class
    steered: bool = False
    trusts: bool = False  # it ran code of which it is only said what it does, or that PyTorch interprets
    tells_tensors: bool = False  # it asked whether an argument is another tensor
    buckets: frozenset[int] = frozenset()  # storages of the reducers in it, by their handles
    gathers: bool = False  # it gives memory to storages from outside, or runs forwards of FSDP's
    turns: bool = False  # slots outside come to hold something else, perhaps only for a while
    # functions with a cache that it asks by tensors of its own, and these: nobody else can ask by them
    cached: tuple[tuple[Any, tuple[ref[torch.Tensor], ...]], ...] = ()
