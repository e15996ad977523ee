"""The Python code that a call runs, watched in a process without other tracers, and what that code names."""

from __future__ import annotations

import dis
import functools
import gc
import re
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from ..runtime.state import ExecutedCode, inner_code, mentions_of

_OF_GLOBALS = frozenset(
    {"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"}
)

_UNNAMED = frozenset({"", "__defaults__", "__kwdefaults__", "func", "args", "keywords"})
"""Slots that code reads by the names of parameters."""

_SUBSCRIPT = re.compile(r"\[.*?\]")

_SEARCHING = frozenset({
    "globals", "locals", "vars", "eval", "exec", "__dict__", "modules", "import_module", "__import__",
})  # fmt: skip
"""Names by which code reaches its own namespace, or its caller's."""

_FRAMES = frozenset({"f_globals", "__globals__"})
"""Names by which code reaches other namespaces."""


class WatchedCode(ExecutedCode):
    """Its base with ``sys.settrace`` where Python has no ``sys.monitoring``.

    A profile function gets each call and return, also of C functions; a trace function without lines gets
    only calls of Python functions, which makes the watched call about three times as fast. The caller's
    debugger is in another process.
    """

    def __init__(self) -> None:
        super().__init__()
        self.holders: dict[int, list[Any]] = {}  # slots for arguments that are compared by content

    def _start_profile(self) -> Callable[[], None] | None:
        seen: set[CodeType] = set()

        def called(frame: FrameType, event: str, argument: Any) -> None:
            code = frame.f_code
            if code not in seen:
                seen.add(code)
                self._note(code, frame)

        sys.settrace(called)
        return lambda: sys.settrace(None)

    def beside(self, seen: Mapping[int, Any]) -> Iterator[tuple[str, Any]]:
        """Functions that a backward ran, and owners of methods it ran, that a walk has not met, with names.

        PyTorch keeps some where only C++ finds them: the backward of an operator, hooks of the graph. A
        function is searched for once, by its code; one that dies with the call is left out.
        """
        met = {value.__code__ for value in seen.values() if type(value) is FunctionType}
        own = {inner for code in list(self.globals) for inner in inner_code(code)}
        known = met | own | self._beside.keys()
        unknown = [code for code in self._backwards if code.co_freevars and code not in known]
        self._beside.update({code: [] for code in unknown})
        for function in gc.get_referrers(*unknown) if unknown else ():
            if type(function) is FunctionType and function.__code__ in self._beside:
                self._beside[function.__code__].append(weakref.ref(function))
        for code, references in self._beside.items():
            for value in [reference() for reference in references]:
                if value is not None and id(value) not in seen and code not in met:
                    yield getattr(value, "__qualname__", type(value).__qualname__), value

    def reads(self) -> list[tuple[dict[str, Any], str]]:
        """Every global that the executed code may look up, as ``(globals, name)``, defined there or not.

        An attribute of the same name is no lookup: ``optimizer.step()`` in a script that counts ``step``. But
        if code of a namespace looks names up itself (``globals()["K"]``), every mentioned name of that
        namespace counts, also in strings.
        """
        codes = list(self.globals.items())
        searched = {id(names) for code, names in codes if not _SEARCHING.isdisjoint(mentions_of(code))}
        everywhere = any(not _FRAMES.isdisjoint(mentions_of(code)) for code, _ in codes)
        found: dict[tuple[int, str], tuple[dict[str, Any], str]] = {}
        for code, namespace in codes:
            for name in _globals_of(code):
                found.setdefault((id(namespace), name), (namespace, name))
            if everywhere or id(namespace) in searched:
                for name in mentions_of(code):
                    if name in namespace:
                        found.setdefault((id(namespace), name), (namespace, name))
        return list(found.values())

    def names(self, path: str, mentioned: set[str]) -> bool:
        """Whether the code, with its ``mentioned`` names, names a slot (by its path) or its container."""
        name = _SUBSCRIPT.sub("", path).rpartition(".")[2]
        return name in mentioned or name in _UNNAMED or any(name in code.co_freevars for code in self.globals)

    def modules(self) -> list[ModuleType]:
        """The Python modules that the executed code names: an import while it runs makes no global."""
        found: set[str] = set()
        for code, namespace in list(self.globals.items()):
            names, package = mentions_of(code), namespace.get("__package__")
            found |= names | ({f"{package}.{name}" for name in names} if package else set())
        return [sys.modules[name] for name in found & sys.modules.keys()]


@functools.lru_cache(maxsize=4096)
def _globals_of(code: CodeType) -> frozenset[str]:
    """The globals that code, and code defined in it, looks up; kept, as an instruction takes 2 us to read."""
    found = {each.argval for each in dis.get_instructions(code) if each.opname in _OF_GLOBALS}
    return frozenset(found.union(*map(_globals_of, inner_code(code))))
