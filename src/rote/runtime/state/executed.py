"""Which Python code a call runs: the roots from which its state is found.

While a call is traced, each Python function it enters outside PyTorch and the standard library is noted with
its globals. That is exact where a static scan would have to guess. Python 3.12 has ``sys.monitoring`` for
this, at next to no cost. Before, ``sys.setprofile`` is asked at every call and return, of rote's own
functions too, which are most of them in a traced call: it made such a call three times as slow. So rote steps
out of its sight for its bookkeeping around an operation (:func:`our_profiler`), and before that when a
function in C is called that can only lead there. It steps back into it while an operation runs whose kernel
may be Python code of the user's, which of PyTorch's own none is unless somebody has replaced one.

It does not see code run by other threads, and it stands aside when another profiler is active; such a call is
not recorded.
"""

from __future__ import annotations

import functools
import gc
import inspect
import sys
import weakref
from _thread import get_ident
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, Protocol

import numpy
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import handle_torch_function
from torch.utils.checkpoint import checkpoint

from ...base import TORCH_NEEDS, Site, identity, is_internal, is_own, user_site
from ..objects import is_open
from ..pytorch import Contact, contact, hiding, in_backward, is_acting, is_worker, run_compiled

_TOOLS = (4, 3)
"""The tool numbers of ``sys.monitoring`` that are nobody's by convention, the less usual one first."""

_SEEDING = frozenset({
    "manual_seed", "manual_seed_all", "seed", "seed_all", "set_rng_state", "set_rng_state_all",
})  # fmt: skip


_OTHERS = sys.stdlib_module_names | frozenset(TORCH_NEEDS) | {__name__.partition(".")[0]}

TORCHS_OWN = (f"{Path(torch.__file__).parent}/_", f"{Path(numpy.__file__).parent}/")
"""What PyTorch keeps to itself: the dispatcher calls it, and it looks at no object of the user's."""

PASSES_ON = frozenset({identity(handle_torch_function.__code__)})
"""Code by its identity that only calls what a function mode or a class of tensors has, as C does."""

_SAVING = {
    identity(code): code
    for code in (saved_tensors_hooks.__enter__.__code__, inspect.unwrap(checkpoint).__code__)
}
"""Code that takes over what a backward keeps, by its identity: hashing code takes as long as its text."""


class FollowedCode(Protocol):
    """What follows the code of a call; see :mod:`..reads`."""

    at_work: bool  # what runs at the moment runs for the one who follows, and not for the call

    def original(self, code: CodeType) -> CodeType:
        """What code was before it was made to tell what it reads."""
        ...

    def is_tool(self, code: CodeType) -> bool:
        """Whether code runs for the one who follows, and never for a call."""
        ...

    def ran_apart(self, code: CodeType, frame: FrameType) -> bool:
        """Code was entered that does not tell what it reads; whether that counts."""
        ...

    def entered(self, code: CodeType, frame: FrameType) -> None:
        """Code was entered that C has called before, and that tells what it reads now."""
        ...


class ExecutedCode:
    """The code objects a callable was seen to run, each with the globals it reads."""

    def __init__(self) -> None:
        # the code, outside PyTorch and the standard library
        self.globals: dict[CodeType, dict[str, Any]] = {}
        self.resumed: set[CodeType] = set()  # the code of generators that ran in the last call, anybody's
        self.seeds: Site | None = None  # the line that set PyTorch's random state
        self.hooks = False  # the code checkpointed, or set saved-tensor hooks
        self.hiding: set[str] = set()  # operators whose kernels read what no guard looks at
        self.blind = False  # the last call could not be watched, because another profiler was active
        # code of the last call that acts on other processes, the first that ran
        self.contact: Contact | None = None
        # tells what code was before it was made to tell what it reads, and is told of other code
        self.followed: FollowedCode | None = None
        self._thread = 0
        self._stop: Callable[[], None] | None = None
        self._backwards: set[CodeType] = set()
        self._beside: dict[CodeType, list[weakref.ref[Any]]] = {}  # functions, and objects whose method ran
        self._apart: dict[int, tuple[CodeType, list[weakref.ref[FunctionType]]]] = {}
        self._found_in: dict[int, dict[str, Any]] = {}  # globals of such code, in the last call
        self._settled: dict[int, CodeType] = {}

    def __enter__(self) -> ExecutedCode:
        self.resumed.clear()
        self.contact = None
        self._settled.clear()
        self._thread = get_ident()
        self._stop = self._start_monitoring() if hasattr(sys, "monitoring") else self._start_profile()
        self.blind = self._stop is None
        return self

    def __exit__(self, *exc: object) -> None:
        stop, self._stop = self._stop, None
        if stop is not None:
            stop()
        self._settled.clear()

    def _start_profile(self) -> Callable[[], None] | None:
        if sys.getprofile() is not None:
            return None
        sys.setprofile(self._profile)

        def stop() -> None:
            if our_profiler() is None:  # somebody else came in between
                self.blind = True
            sys.setprofile(None)

        return stop

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call":
            return
        followed = self.followed
        if followed is not None and followed.at_work:
            return
        if identity(frame.f_code) not in self._settled:
            self._note(frame.f_code, frame)

    def _start_monitoring(self) -> Callable[[], None] | None:
        monitoring: Any = sys.monitoring  # pyright: ignore[reportAttributeAccessIssue]
        tool = _take_tool(monitoring)
        if tool is None:
            return None
        names = monitoring.events

        def entered(code: CodeType, offset: int) -> Any:
            followed = self.followed
            if followed is not None and followed.at_work:  # first of all: most code of a traced call
                return monitoring.DISABLE if followed.is_tool(code) else None
            frame = sys._getframe(1)
            counts = self._note(code, frame)
            again = not counts or (identity(code) in _SAVING and _called_by_us(frame))
            return None if again else monitoring.DISABLE

        def thrown(code: CodeType, offset: int, error: BaseException) -> None:
            if self.followed is None or not self.followed.at_work:
                self._note(code, sys._getframe(1))

        # Resumed are generators, which may have been started before.
        callbacks = {names.PY_START: entered, names.PY_RESUME: entered, names.PY_THROW: thrown}

        def stop() -> None:
            monitoring.set_events(tool, 0)
            for event in callbacks:
                monitoring.register_callback(tool, event, None)
            monitoring.free_tool_id(tool)

        for event, callback in callbacks.items():
            monitoring.register_callback(tool, event, callback)
        monitoring.set_events(tool, names.PY_START | names.PY_RESUME | names.PY_THROW)
        monitoring.restart_events()
        return stop

    def _note(self, entered: CodeType, frame: FrameType) -> bool:
        """Note that code was entered; False if it may count when it is entered from elsewhere."""
        if get_ident() != self._thread and not is_worker():
            return False  # another thread's
        followed, counts = self.followed, True
        code = entered if followed is None else followed.original(entered)
        if code is entered and followed is not None and not _runs_apart(frame, followed):
            counts = followed.ran_apart(code, frame)
            self._found_in[identity(code)] = frame.f_globals
        elif code is not entered and followed is not None and identity(code) in self._apart:
            followed.entered(code, frame)
            counts = False  # each class that has it matters
        if code.co_flags & inspect.CO_GENERATOR:
            self.resumed.add(code)
        if (
            code.co_name in _SEEDING
            and code.co_filename.endswith("random.py")
            and "torch" in code.co_filename
        ):
            self.seeds = self.seeds or user_site(frame)
        if self.contact is None and is_acting(code) and not _is_importing(frame):
            self.contact = contact(code, user_site(frame))
        if not is_internal(code.co_filename) and (operator := hiding(code, frame)) is not None:
            self.hiding.add(operator)
        saves = identity(code) in _SAVING
        if saves and not _called_by_us(frame):
            self.hooks = True
        if code.co_name == "<module>" or is_internal(code.co_filename) or code in self.globals:
            if counts and not saves:  # to note it again in this call would say nothing new
                self._settled[identity(entered)] = entered
            return counts
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package.startswith("namedtuple_") or any(
            getattr(callback, "__code__", None) is code for callback in gc.callbacks
        ):
            return counts
        # Code made by exec, of a dataclass for instance, has no file that would say whose it is.
        if package not in _OTHERS:
            self.globals[code] = frame.f_globals
            if in_backward():
                self._note_owner(code, frame)
        return counts

    def _note_owner(self, code: CodeType, frame: FrameType) -> None:
        """Note what a backward runs, and the object whose method it is: PyTorch may keep it out of sight."""
        self._backwards.add(code)
        if code.co_argcount and code.co_varnames[0] == "self":
            owner = frame.f_locals.get("self")
            if is_open(type(owner)) and type(owner).__weakrefoffset__:
                self._beside.setdefault(code, []).append(weakref.ref(owner))

    def note_apart(self, codes: Iterable[CodeType]) -> None:
        """Find the functions of code that C called, so that they can be followed in the next call."""
        unknown = {identity(code): code for code in codes if identity(code) not in self._apart}
        for code in unknown.values():
            self._apart[identity(code)] = code, []
        for function in gc.get_referrers(*unknown.values()) if unknown else ():
            if type(function) is FunctionType and identity(function.__code__) in unknown:
                self._apart[identity(function.__code__)][1].append(weakref.ref(function))
        for code in unknown.values():  # the collector does not tell of what it was told to leave alone
            if not self._apart[identity(code)][1]:
                functions = _by_name(code, self._found_in.get(identity(code), {}))
                self._apart[identity(code)][1].extend(weakref.ref(function) for function in functions)
        self._found_in.clear()

    def owners(self) -> list[tuple[str, Any]]:
        """Objects whose methods ran in earlier calls, with names: C may hold them where nobody else does."""
        held = [reference() for references in self._beside.values() for reference in references]
        return [(type(value).__qualname__, value) for value in held if value is not None]

    def apart(self) -> list[FunctionType]:
        """The functions that C called in earlier calls."""
        held = [reference() for _, references in self._apart.values() for reference in references]
        return [function for function in held if function is not None]

    def ran(self, function: Any) -> bool:
        """Whether the code of a function ran, or of a callable object that stands for one."""
        while isinstance(function, (functools.partial, MethodType)):
            function = function.func if isinstance(function, functools.partial) else function.__func__
        code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
        return code in self.globals

    def add_function(self, function: Any) -> None:
        """Add a function that is known to run (the callable itself)."""
        code = getattr(function, "__code__", None)
        if code is not None and not is_internal(code.co_filename):
            self.globals.setdefault(code, function.__globals__)

    def mentioned(self) -> set[str]:
        """Every name and string in the executed code: what it could read an attribute by."""
        return set[str]().union(*map(mentions_of, list(self.globals)))


PROFILE = ExecutedCode._profile  # pyright: ignore[reportPrivateUsage]
"""What a profiler of ours is a method with."""
_get_profile: Callable[[], Any] = functools.partial(sys.getprofile)  # of whose call the profiler is not told


def _take_tool(monitoring: Any) -> int | None:
    """A tool number that is ours from now on; None if there is none, or another thread of ours has one."""
    owners = [monitoring.get_tool(tool) for tool in _TOOLS]
    if "rote" in owners or None not in owners:
        return None
    tool = _TOOLS[owners.index(None)]
    try:
        monitoring.use_tool_id(tool, "rote")
    except ValueError:  # somebody else was quicker
        return None
    return tool


def our_profiler() -> Any:
    """The profiler by which :class:`ExecutedCode` watches this thread; None if it has none, or another way.

    Who has it may step out of its sight with ``sys.setprofile(None)``, as long as it is the current one.
    """
    profiler = _get_profile()
    return profiler if type(profiler) is MethodType and profiler.__func__ is PROFILE else None


def _by_name(code: CodeType, namespace: dict[str, Any]) -> list[FunctionType]:
    """The functions with this code that lie in its module, or where its name says."""
    found: Any = None
    beside = [each for each in list(namespace.values()) if type(each) is FunctionType]
    for part in code.co_qualname.split("."):
        found = namespace.get(part)
        namespace = dict(vars(found)) if isinstance(found, type) else {}
    function = getattr(found, "__func__", found) if type(found) in (staticmethod, classmethod) else found
    named = [function] if type(function) is FunctionType else []
    return list({id(each): each for each in (*beside, *named) if each.__code__ is code}.values())


def _runs_apart(frame: FrameType, followed: FollowedCode) -> bool:
    """Whether library code, or our own, runs for code of ours and not for code that is followed."""
    if _runs_compiled(frame, followed):
        return True
    at: FrameType | None = frame
    while at is not None:
        code = at.f_code
        known = identity(code) in PASSES_ON or is_own(code.co_filename)
        if known or code.co_filename.startswith(TORCHS_OWN):
            return True
        made = code.co_filename.startswith("<")  # from text, as the methods of named tuples are
        if followed.original(code) is not code or not (made or is_internal(code.co_filename)):
            return False
        at = at.f_back
    return False


def _runs_compiled(frame: FrameType, followed: FollowedCode) -> bool:
    """Whether code runs for a compiled region: Inductor writes its Python code into files of its own."""
    at: FrameType | None = frame
    while at is not None and followed.original(at.f_code) is at.f_code:
        if at.f_code is run_compiled.__code__:
            return True
        at = at.f_back
    return False


def _is_importing(frame: FrameType) -> bool:
    """Whether library code runs because its module, or one that needs it, is imported just now."""
    at: FrameType | None = frame
    while at is not None and is_internal(at.f_code.co_filename):
        if at.f_code.co_name == "<module>":
            return True
        at = at.f_back
    return False


def _called_by_us(frame: FrameType) -> bool:
    """Recordings set saved-tensor hooks of their own."""
    return frame.f_back is not None and is_own(frame.f_back.f_code.co_filename)


@functools.lru_cache(maxsize=4096)
def mentions_of(code: CodeType) -> frozenset[str]:
    """Every name and every string in code and in what is defined in it."""
    return frozenset(_strings(code.co_consts)).union(code.co_names, *map(mentions_of, inner_code(code)))


def _strings(constants: Iterable[Any]) -> Iterator[str]:
    for constant in constants:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, (tuple, frozenset)):  # what a loop goes over
            yield from _strings(constant)


def inner_code(code: CodeType) -> list[CodeType]:
    """The code that is defined in code."""
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]
