"""The Python code that a call runs: the roots from which its state is found.

While a call is traced, each Python function that it enters outside PyTorch and the standard library is noted
with its globals. That is exact where a static scan would have to guess. Python 3.12 has ``sys.monitoring``
for this, at next to no cost. Before 3.12, Python calls a profiler (``sys.setprofile``) at every call and
return, also of rote's own functions, which are most of the functions in a traced call: that made such a call
three times as slow. So rote turns the profiler off before and behind the callable, for its bookkeeping around
an operation (:func:`our_profiler`), and already when it calls a function in C that can only lead there. It
turns the profiler on again while an operation runs whose kernel may be the user's Python code; PyTorch's own
kernels are not, unless somebody has replaced one.

Code run by other threads is not seen, nor is what the handler of a signal runs, which Python puts between any
two instructions. If another profiler is active, rote leaves it in place and does not
record the call.
"""

from __future__ import annotations

import functools
import gc
import inspect
import signal
import sys
import weakref
from _thread import get_ident
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, Protocol

import numpy
import torch
from torch.autograd.graph import disable_saved_tensors_hooks, saved_tensors_hooks
from torch.overrides import handle_torch_function
from torch.utils.checkpoint import checkpoint

from ...base import TORCH_NEEDS, Site, identity, is_internal, is_own, user_site
from ..objects import is_open
from ..pytorch import LAUNCHING, Contact, contact, hiding, in_backward, is_acting, is_worker, step_aside

_TOOLS = (4, 3)
"""The tool numbers of ``sys.monitoring`` that no convention assigns, the less used one first."""

_SEEDING = frozenset({
    "manual_seed", "manual_seed_all", "seed", "seed_all", "set_rng_state", "set_rng_state_all",
})  # fmt: skip


_OTHERS = sys.stdlib_module_names | frozenset(TORCH_NEEDS) | {__name__.partition(".")[0]}

_TORCH = Path(torch.__file__).parent
TORCHS_OWN = (
    f"{_TORCH}/_", f"{_TORCH}/distributed/tensor/_dispatch.py", f"{Path(numpy.__file__).parent}/",
)  # fmt: skip
"""Paths of PyTorch's private code and of numpy: it is called from C and reads no object of the user's.

That of sharded tensors finds out what an operation consists of, from how its operands are spread.
"""

_TREES = f"{_TORCH}/utils/_pytree.py"
"""Code that calls what it is given, for whoever has called it."""

PASSES_ON = frozenset({identity(handle_torch_function.__code__)})
"""Identities of code that only calls the handler of a function mode or a tensor subclass, as C does."""

_NAMED_TUPLE = "namedtuple_"
"""What the names of the modules begin with in which Python makes named tuples."""
_FROM_TEXT = "<string>"
"""The file of code that was made of text."""
_RUNTIME = ".".join(__name__.split(".")[:2]) + "."
"""What the names of the runtime's modules begin with."""

_FORBIDS = inspect.unwrap(disable_saved_tensors_hooks).__code__
_SAVING = {
    identity(code): code
    for code in (saved_tensors_hooks.__enter__.__code__, inspect.unwrap(checkpoint).__code__, _FORBIDS)
}
"""Code that replaces what a backward saves, by identity: hashing a code object reads all of it."""


class FollowedCode(Protocol):
    """The interface of what follows the code of a call; see :mod:`..reads`."""

    at_work: bool  # the code that runs now belongs to the follower, not to the call

    def original(self, code: CodeType) -> CodeType:
        """The code from which instrumented code was made; other code itself."""
        ...

    def is_tool(self, code: CodeType) -> bool:
        """Whether code runs for the follower only, never for a call."""
        ...

    def ran_apart(self, code: CodeType, frame: FrameType) -> bool:
        """Note that code was entered that does not note its reads; returns whether its reads matter."""
        ...

    def entered(self, code: CodeType, frame: FrameType) -> None:
        """Note that instrumented code was entered that C has called before."""
        ...


class ExecutedCode:
    """The code objects that a callable has run, each with its globals."""

    def __init__(self) -> None:
        # only code outside PyTorch and the standard library
        self.globals: dict[CodeType, dict[str, Any]] = {}
        self.resumed: set[CodeType] = set()  # the code of all generators that ran in the last call
        self.seeds: Site | None = None  # the line of the last call that set PyTorch's random state
        self.hooks = False  # the last call used checkpointing, or set or forbade saved-tensor hooks
        self.hiding: set[str] = set()  # operators whose kernels read state that no guard checks
        self.blind = False  # the last call could not be watched, because another profiler was active
        # the first code of the last call that acts on other processes
        self.contact: Contact | None = None
        # knows instrumented code, and is notified of other code
        self.followed: FollowedCode | None = None
        self._thread = 0
        self._stop: Callable[[], None] | None = None
        self._beside: dict[CodeType, list[weakref.ref[Any]]] = {}  # objects whose method a backward ran
        self._apart: dict[int, tuple[CodeType, list[weakref.ref[FunctionType]]]] = {}
        self._found_in: dict[int, dict[str, Any]] = {}  # globals of code that C called in the last call
        self._settled: dict[int, CodeType] = {}  # nothing is learned of another entry in this call
        self._handlers = frozenset[int]()  # the code of those that handle signals, by identity
        self._from: FrameType | None = None  # what runs the call; a signal that comes in the call lies above

    def __enter__(self) -> ExecutedCode:
        self.resumed.clear()
        self.contact = self.seeds = None
        self.hooks = False
        self._settled.clear()
        self._thread = get_ident()
        self._handlers = _handlers_of_signals()
        self._from = sys._getframe(1)
        self._stop = self._start_monitoring() if hasattr(sys, "monitoring") else self._start_profile()
        self.blind = self._stop is None
        return self

    def __exit__(self, *exc: object) -> None:
        stop, self._stop, self._from = self._stop, None, None
        if stop is not None:
            stop()
        self._settled.clear()

    def _start_profile(self) -> Callable[[], None] | None:
        if sys.getprofile() is not None:
            return None
        sys.setprofile(self._profile)

        def stop() -> None:
            if our_profiler() is None:  # the call has set another profiler
                self.blind = True
            sys.setprofile(None)

        return stop

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or identity(frame.f_code) in self._settled:
            return
        followed = self.followed
        if followed is None or not followed.at_work:
            self._note(frame.f_code, frame)

    def _start_monitoring(self) -> Callable[[], None] | None:
        monitoring: Any = sys.monitoring  # pyright: ignore[reportAttributeAccessIssue]
        tool = _take_tool(monitoring)
        if tool is None:
            return None
        names = monitoring.events

        def entered(code: CodeType, offset: int) -> Any:
            followed = self.followed
            if followed is not None and followed.at_work:  # asked first: true of most code in a traced call
                return monitoring.DISABLE if followed.is_tool(code) else None
            frame = sys._getframe(1)
            counts = self._note(code, frame)
            again = not counts or (identity(code) in _SAVING and _called_by_us(frame))
            return None if again else monitoring.DISABLE

        def thrown(code: CodeType, offset: int, error: BaseException) -> None:
            if self.followed is None or not self.followed.at_work:
                self._note(code, sys._getframe(1))

        # A generator may have started before the call, so resuming counts as entering.
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
        """Note that code was entered; False if a later entry from elsewhere may have to be noted again."""
        if get_ident() != self._thread and not is_worker():
            return False  # another thread runs it
        own = is_own(entered.co_filename) or (entered.co_filename == _FROM_TEXT and self._is_ours(frame))
        if own and not entered.co_flags & inspect.CO_GENERATOR:  # most of it
            self._settled[identity(entered)] = entered
            return True
        if self._handlers and _interrupts(frame, self._handlers, self._from):
            return False
        followed, counts = self.followed, True
        code = entered if followed is None else followed.original(entered)
        if code is entered and followed is not None and not _runs_apart(frame, followed):
            counts = followed.ran_apart(code, frame)
            self._found_in[identity(code)] = frame.f_globals
        elif code is not entered and followed is not None and identity(code) in self._apart:
            followed.entered(code, frame)
            counts = False  # several classes may have this code, and each matters
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
            if code is _FORBIDS:
                step_aside()
        if code.co_name == "<module>" or is_internal(code.co_filename) or code in self.globals:
            if counts and not saves:  # noting it again in this call says nothing new
                self._settled[identity(entered)] = entered
            return counts
        package = _package(frame)
        if package.startswith(_NAMED_TUPLE) or any(
            getattr(callback, "__code__", None) is code for callback in gc.callbacks
        ):
            return counts
        # Code made by exec, such as a dataclass's methods, has no file, so the package tells the owner.
        if package not in _OTHERS:
            self.globals[code] = frame.f_globals
            if in_backward():
                self._note_owner(code, frame)
        return counts

    def _is_ours(self, frame: FrameType) -> bool:
        """Whether code that was made of text is a method of a dataclass or a named tuple of the runtime's."""
        if str(frame.f_globals.get("__name__", "")).startswith(_RUNTIME):
            return True
        return self.followed is not None and self.followed.is_tool(frame.f_code)

    def _note_owner(self, code: CodeType, frame: FrameType) -> None:
        """Note the ``self`` of code that a backward runs: perhaps only C++ refers to it."""
        if code.co_argcount and code.co_varnames[0] == "self":
            owner = frame.f_locals.get("self")
            if is_open(type(owner)) and type(owner).__weakrefoffset__:
                self._beside.setdefault(code, []).append(weakref.ref(owner))

    def note_apart(self, codes: Iterable[CodeType]) -> None:
        """Find the functions of code that C called, so that the next call can follow them."""
        unknown = {identity(code): code for code in codes if identity(code) not in self._apart}
        for code in unknown.values():
            self._apart[identity(code)] = code, []
        for function in gc.get_referrers(*unknown.values()) if unknown else ():
            if type(function) is FunctionType and identity(function.__code__) in unknown:
                self._apart[identity(function.__code__)][1].append(weakref.ref(function))
        for code in unknown.values():  # the collector does not report frozen objects (gc.freeze)
            if not self._apart[identity(code)][1]:
                functions = _by_name(code, self._found_in.get(identity(code), {}))
                self._apart[identity(code)][1].extend(weakref.ref(function) for function in functions)
        self._found_in.clear()

    def owners(self) -> list[tuple[str, Any]]:
        """Objects whose methods a backward ran, with names: perhaps only C refers to them."""
        held = [reference() for references in self._beside.values() for reference in references]
        return [(type(value).__qualname__, value) for value in held if value is not None]

    def apart(self) -> list[FunctionType]:
        """Functions that C called in earlier calls."""
        held = [reference() for _, references in self._apart.values() for reference in references]
        return [function for function in held if function is not None]

    def ran(self, function: Any) -> bool:
        """Whether the code of a function or callable object ran."""
        while isinstance(function, (functools.partial, MethodType)):
            function = function.func if isinstance(function, functools.partial) else function.__func__
        code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
        return code in self.globals

    def add_function(self, function: Any) -> None:
        """Add a function that is known to run: the callable itself."""
        code = getattr(function, "__code__", None)
        if code is not None and not is_internal(code.co_filename):
            self.globals.setdefault(code, function.__globals__)

    def mentioned(self) -> set[str]:
        """Every name and string in the executed code; any of them could name an attribute that it reads."""
        return set[str]().union(*map(mentions_of, list(self.globals)))


PROFILE = ExecutedCode._profile  # pyright: ignore[reportPrivateUsage]
"""The function of the bound method that rote sets as a profiler."""
get_profile: Callable[[], Any] = functools.partial(sys.getprofile)
set_profile: Callable[[Any], None] = functools.partial(sys.setprofile)
"""Those of ``sys`` behind ``partial``: no profiler is called for what that calls."""


def _take_tool(monitoring: Any) -> int | None:
    """Take a free tool number; None if none is free, or if another thread of rote has one."""
    owners = [monitoring.get_tool(tool) for tool in _TOOLS]
    if "rote" in owners or None not in owners:
        return None
    tool = _TOOLS[owners.index(None)]
    try:
        monitoring.use_tool_id(tool, "rote")
    except ValueError:  # another thread has just taken it
        return None
    return tool


def our_profiler() -> Any:
    """The profiler with which :class:`ExecutedCode` watches this thread; None if there is no such profiler.

    The caller may turn it off with ``sys.setprofile(None)`` while it is the current one.
    """
    profiler = get_profile()
    return profiler if type(profiler) is MethodType and profiler.__func__ is PROFILE else None


def _by_name(code: CodeType, namespace: dict[str, Any]) -> list[FunctionType]:
    """The functions with this code in a module, or at the path of the code's qualified name."""
    found: Any = None
    beside = [each for each in list(namespace.values()) if type(each) is FunctionType]
    for part in code.co_qualname.split("."):
        found = namespace.get(part)
        namespace = dict(vars(found)) if isinstance(found, type) else {}
    function = getattr(found, "__func__", found) if type(found) in (staticmethod, classmethod) else found
    named = [function] if type(function) is FunctionType else []
    return list({id(each): each for each in (*beside, *named) if each.__code__ is code}.values())


_handler_of: Callable[[int], Any] = getattr(sys.modules.get("_signal"), "getsignal", signal.getsignal)
"""Python's own, without words for numbers: it takes a twentieth of the time."""


def _handlers_of_signals() -> frozenset[int]:
    found = [_handler_of(number) for number in range(1, signal.NSIG)]
    return frozenset(
        [identity(each.__code__) for each in found if isinstance(each, (FunctionType, MethodType))]
    )


def _interrupts(frame: FrameType, handlers: frozenset[int], last: FrameType | None) -> bool:
    """Whether code runs for the handler of a signal, which is given the frame that it interrupts.

    The handler of a signal that came before the call lies below the frame ``last``, and runs the call.
    """
    at: FrameType | None = frame
    while at is not None and at is not last:
        if identity(at.f_code) in handlers:
            given = at.f_locals.values()
            given = [*given, *[part for each in given if isinstance(each, tuple) for part in each]]
            if any([each is at.f_back for each in given]):
                return True
        at = at.f_back
    return False


def _runs_apart(frame: FrameType, followed: FollowedCode) -> bool:
    """Whether library code or rote's own runs for rote or a compiled region, not for code that is followed.

    The Python code of a compiled region lies in Inductor's files.
    """
    at: FrameType | None = frame
    passing = True  # so far only library code, and code that libraries have made from text
    while at is not None:
        code = at.f_code
        known = identity(code) in PASSES_ON or is_own(code.co_filename)
        if (known or code.co_filename.startswith(TORCHS_OWN)) and passing:
            return True
        if identity(code) in LAUNCHING:
            return True
        if followed.original(code) is not code and code.co_filename != _TREES:
            return False
        passing = passing and (is_internal(code.co_filename) or _is_librarys_text(at))
        at = at.f_back
    return False


def _is_librarys_text(frame: FrameType) -> bool:
    """Whether code was made from text for a library: methods of named tuples, or of its dataclasses."""
    package = _package(frame)
    of_library = package == torch.__name__ or package in _OTHERS or package.startswith(_NAMED_TUPLE)
    return frame.f_code.co_filename.startswith("<") and of_library


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _is_importing(frame: FrameType) -> bool:
    """Whether library code runs because a module is being imported."""
    at: FrameType | None = frame
    while at is not None and is_internal(at.f_code.co_filename):
        if at.f_code.co_name == "<module>":
            return True
        at = at.f_back
    return False


def _called_by_us(frame: FrameType) -> bool:
    """Whether rote itself entered the code: recordings set saved-tensor hooks of their own."""
    return frame.f_back is not None and is_own(frame.f_back.f_code.co_filename)


@functools.lru_cache(maxsize=4096)
def mentions_of(code: CodeType) -> frozenset[str]:
    """Every name and string in code, and in the code defined in it."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return frozenset(_strings(code.co_consts)).union(code.co_names, *map(mentions_of, inner))


def _strings(constants: Iterable[Any]) -> Iterator[str]:
    for constant in constants:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, (tuple, frozenset)):  # a loop may go over constant names
            yield from _strings(constant)
