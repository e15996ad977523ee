"""Which attributes a traced call may have read.

What no code that ran can have read has no part in what the call did. So it need not be the same at a replay:
by induction, a call in a state whose *read* part is that of the recorded one takes the same way, and reads
nothing else. :mod:`.reflection` says of each code object what it may read; here that is put together while
the call runs, with the objects and names that are known when a function is entered.

What it cannot know makes everything count as read: code in C that is not known, code that runs on threads
that are not watched, functions that PyTorch compiles (their guards read attributes in C++).
"""

from __future__ import annotations

import weakref
from functools import cached_property
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FrameType, ModuleType
from typing import Any, NamedTuple

import torch

from ..base.location import Site, is_internal, is_own
from .bytecode import FORMATS, REFLECTIVE, CodeFacts, Place, fixed_parameters, strings
from .origin import module_of
from .owners import is_user
from .readers import BUILTINS, is_python, is_reading_module, reads_attributes
from .reflection import facts_of

ALWAYS = frozenset({
    "write", "writelines", "flush", "read", "readline", "readinto", "close", "closed", "fileno", "seek",
    "tell", "isatty", "encoding", "errors", "mode", "name", "newlines", "keys", "items", "values", "append",
    "send", "throw", "utcoffset", "dst", "tzname", "fromutc",
})  # fmt: skip
"""Attributes that Python itself reads in C, without being named by who makes it do so."""

_APART = (str(Path(__file__).parents[1] / "backends") + "/", str(Path(__file__).with_name("modes.py")))
"""Code of ours that makes libraries work on no object of the user's: captures, the stance of the compiler."""
_PACKAGE = __name__.partition(".")[0] + "."
_THREADS = frozenset({"Thread", "Event", "Condition", "Semaphore", "BoundedSemaphore", "Barrier", "Timer"})
_HARMLESS = frozenset({"__init__", "is_set", "isSet", "is_alive", "name", "ident", "daemon", "getName"})
_HANDING_ON = ("/concurrent/futures/", "/queue.py", "/asyncio/", "/multiprocessing/")
_COMPILED = ("/torch/_dynamo/eval_frame.py",)
_NOT_COMPILED = (
    "DisableContext", "_TorchDynamoContext.__init__", "_maybe_set_eval_frame", "_callback_from_stance",
    "innermost_fn", "nothing", "always_false", "_set_stance",
)  # fmt: skip
_AUDITED_IN = ("2.11.", "2.12.", "2.13.", "2.15.")
_SAVING = ("/torch/serialization.py", "/pickle.py")
_DELEGATING = (weakref.ProxyType, weakref.CallableProxyType, super)
_MISSING: Any = object()


class Block(NamedTuple):
    """Why every attribute counts as read.

    Attributes:
        site: The line, if there is one.
        text: What is done there.
    """

    site: Site | None
    text: str


class Reads:
    """The attributes that were read in one call, or in several.

    Attributes:
        names: By these names, of whatever object.
        objects: Of these objects every one, by identity, with the line.
        paths: Names of attributes by which such an object was found.
        stored: Names of attributes that were stored.
        holders: The objects whose attributes these are.
        changed: Objects of which any attribute may have been stored.
        block: Every attribute of any object counts as read.
    """

    def __init__(self) -> None:
        self.names: set[str] = set(ALWAYS)
        self.objects: dict[int, Site] = {}
        self.paths: set[str] = set()
        self.stored: set[str] = set()
        self.holders: set[int] = set()
        self.changed: set[int] = set()
        self.block: Block | None = None

    def stop(self, site: Site | None, text: str) -> None:
        """Every attribute counts as read from now on."""
        if self.block is None:
            self.block = Block(site, text)

    def settle(self) -> None:
        """The call is over: what was found in an attribute has to have been there all the time."""
        if self.block is not None:  # then it is known already, and no name need be
            return
        moved = self.paths & self.stored
        if moved or not self.holders.isdisjoint(self.changed):
            name = min(moved or self.paths)
            self.stop(None, f"what lies in an attribute {name!r} is read by computed names, and it is stored")

    def joined(self, other: Reads | None) -> Reads:
        """What was read here or there."""
        both = Reads()
        for part in (self, other) if other is not None else (self,):
            both.names |= part.names
            both.objects |= part.objects
            both.block = both.block or part.block
        return both


class Reading:
    """Notes what is read while a call runs: told of each code object that is entered.

    Attributes:
        reads: What the call has read so far.
        open: Places, by the identity of their code, that count if a builtin function is called there.
    """

    def __init__(self) -> None:
        self.reads = Reads()
        self.open: dict[int, tuple[Place, ...]] = {}
        self._known: dict[int, tuple[CodeType, CodeFacts]] = {}  # what it names keeps its identity
        self._entered: set[int] = set()
        self._kinds: dict[type, bool] = {}

    def begin(self) -> None:
        """A call begins."""
        self.reads = Reads()
        self.open.clear()
        self._entered.clear()
        self._kinds.clear()

    def enter(self, code: CodeType, frame: FrameType) -> bool:
        """Note code that is entered; whether it has to be noted at each entry."""
        known = self._known.get(id(code))
        facts = known[1] if known is not None else self._meet(code, frame)
        if id(code) not in self._entered:
            if facts.names and _runs_apart(frame):
                return True
            self._entered.add(id(code))
            self._first(facts, code, frame)
        if facts.whole or facts.named:
            self._at_entry(facts, frame)
            return True
        return False

    def reach(self, code: CodeType, offset: int, function: Any, *first: Any) -> None:
        """A function in C is called by code in :attr:`open`.

        Args:
            code: The code.
            offset: Of the instruction.
            function: What is called.
            first: Its first argument, if that can be told.
        """
        place = next((each for each in self.open[id(code)] if each.calls and offset in each.calls), None)
        if place is None:
            return
        if type(function) is BuiltinFunctionType and function in BUILTINS:
            if first:
                self._whole(first[0], place.site)
                self.reads.changed.add(id(first[0]))
            else:
                self.reads.stop(place.site, place.text)
        elif getattr(function, "__name__", "") in FORMATS:
            owner = getattr(function, "__self__", None)
            text = owner if isinstance(owner, str) else first[0] if first else None
            if isinstance(text, str):
                self.reads.names.update(strings((text,)))

    # ------------------------------------------------------------------ code

    def _meet(self, code: CodeType, frame: FrameType) -> CodeFacts:
        """What is to be known of code, the first time that it is met."""
        if _is_ours(code, frame):
            facts = CodeFacts(frozenset())
        else:
            facts = _audited(code) or facts_of(code)
            why = _why_not_seen(code) or _foreign_global(code, frame.f_globals)
            if why is None and facts.free and not _is_around(frame.f_back, code, facts.free):
                why = "reads by computed names"
            if why is not None:
                site = Site(code.co_filename, code.co_firstlineno, code.co_name)
                facts = facts._replace(open=(*facts.open, Place(site, why)))
        self._known[id(code)] = code, facts
        return facts

    def _first(self, facts: CodeFacts, code: CodeType, frame: FrameType) -> None:
        """Code runs for the first time in the call."""
        reads = self.reads
        reads.names |= facts.names
        reads.stored |= facts.stored
        if facts.open:
            for place in facts.open:
                if place.calls is None:
                    reads.stop(place.site, place.text)
            self.open[id(code)] = facts.open
        for name in facts.named_globals:  # of a library they stay what they are
            site = Site(code.co_filename, code.co_firstlineno, code.co_name)
            of_user = is_user(str(frame.f_globals.get("__name__", "")))
            self._take_name(None if of_user else frame.f_globals.get(name), site)

    def _take_name(self, name: Any, site: Site, *, stored: bool = False) -> None:
        """An attribute is read by a name that is a value."""
        if not isinstance(name, str) or name in REFLECTIVE or name in FORMATS:
            self.reads.stop(site, "reads by a name that is computed")
        else:
            self.reads.names.add(str.__str__(name))
            if stored:
                self.reads.stored.add(str.__str__(name))

    def _at_entry(self, facts: CodeFacts, frame: FrameType) -> None:
        variables = frame.f_locals
        site = Site(frame.f_code.co_filename, frame.f_code.co_firstlineno, frame.f_code.co_name)
        for name in facts.named:
            self._take_name(variables.get(name), site, stored=facts.stores_by_name)
        for first, *path in facts.whole:
            target = variables.get(first, _MISSING)
            for name in path:
                self.reads.holders.add(id(target))
                target = _plain_attribute(target, name)
            if target is _MISSING:
                self.reads.stop(site, "reads by computed names")
            else:
                self.reads.paths.update(path)
                self._whole(target, site)
                if (first, *path) in facts.changed:
                    self.reads.changed.add(id(target))

    def _whole(self, target: Any, site: Site) -> None:
        kind = type(target)
        if kind in _DELEGATING or isinstance(target, (type, ModuleType)):
            self.reads.stop(site, "reads by computed names from what may lead to other objects")
            return
        counts = self._kinds.get(kind)
        if counts is None:
            counts = self._kinds[kind] = is_python(kind)
        if counts:
            self.reads.objects.setdefault(id(target), site)


def _is_ours(code: CodeType, frame: FrameType) -> bool:
    """Code of the recorder, which reads no attributes of users' objects by name."""
    if code.co_filename == "<string>":  # the methods of dataclasses are made from text
        module = str(frame.f_globals.get("__name__", ""))
        return module.startswith(_PACKAGE) and not module.startswith(_PACKAGE + "quant.")
    return is_own(code.co_filename) and "/quant/" not in code.co_filename


def _runs_apart(frame: FrameType) -> bool:
    """Whether library code runs for code of ours that hands it no object of the user's."""
    at: FrameType | None = frame
    while at is not None and is_internal(at.f_code.co_filename):
        if is_own(at.f_code.co_filename):
            return at.f_code.co_filename.startswith(_APART)
        at = at.f_back
    return False


def _audited(code: CodeType) -> CodeFacts | None:
    """Code of libraries that takes hold of all attributes, and looks at one only, which its caller names."""
    module = code is torch.nn.Module.__setattr__.__code__ and torch.__version__.startswith(_AUDITED_IN)
    if module or code is cached_property.__get__.__code__:
        return facts_of(code)._replace(whole=(), changed=frozenset())
    return None


def _why_not_seen(code: CodeType) -> str | None:
    """Why code makes others read attributes that are not seen, if it does."""
    file, name = code.co_filename, code.co_qualname
    if file.endswith(_COMPILED) and not name.startswith(_NOT_COMPILED):
        return "runs a compiled function"
    if file.endswith(_SAVING):
        return "saves objects"
    if any(part in file for part in _HANDING_ON):
        return "hands work on"
    if file.endswith("/logging/__init__.py") and name == "Logger.callHandlers":
        return "calls handlers of a logger"
    if file.endswith("/threading.py"):
        owner, _, method = name.partition(".")
        if owner in _THREADS and method not in _HARMLESS:
            return "hands work to a thread"
    return None


def _foreign_global(code: CodeType, namespace: dict[str, Any]) -> str | None:
    """A global of a library's code that reads attributes under another name; the user's are walked."""
    if is_user(str(namespace.get("__name__", ""))):
        return None
    for name in code.co_names:
        value = namespace.get(name, _MISSING)
        if value is _MISSING or name in REFLECTIVE:
            continue
        if isinstance(value, ModuleType):
            if is_reading_module(value):
                return f"uses {value.__name__}"
        elif type(value) is type(getattr) and (value in BUILTINS or reads_attributes(value)):
            return f"uses {name}"
    return None


def _is_around(frame: FrameType | None, inner: CodeType, free: tuple[str, ...]) -> bool:
    """Whether a frame's code has a comprehension in it, and the variables are its parameters for good."""
    if frame is None or not any(constant is inner for constant in frame.f_code.co_consts):
        return False
    return fixed_parameters(frame.f_code).issuperset(free)


def _plain_attribute(owner: Any, name: str) -> Any:
    """What lies in an attribute, if to read it runs no code; missing otherwise."""
    kind = type(owner)
    if owner is _MISSING or isinstance(owner, (type, ModuleType)):
        return _MISSING
    if kind.__getattribute__ is not object.__getattribute__ or any(name in vars(cls) for cls in kind.__mro__):
        return _MISSING
    attributes = getattr(owner, "__dict__", None)
    if not isinstance(attributes, dict):
        return _MISSING
    found = attributes.get(name, _MISSING)
    if (
        found is _MISSING
        and isinstance(owner, torch.nn.Module)
        and kind.__getattr__ is torch.nn.Module.__getattr__
    ):
        found = attributes.get("_modules", {}).get(name, _MISSING)
    return found


def by_name_only(kind: type) -> bool:
    """Whether attributes of instances of a class are read by what :mod:`.reflection` knows of, only."""
    for cls in kind.__mro__:
        module = module_of(cls)
        if (
            cls is not object
            and not is_user(module)
            and not module.startswith(("torch.nn.", "typing", "abc"))
        ):
            return False
    return is_python(kind)
