"""The functions that a traced call runs: they are followed, and what makes them what they are is read."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from types import CodeType, FunctionType, GeneratorType, MethodType
from typing import Any

from ....base import identity, is_own
from ...objects import is_bound_method, members
from ...pytorch import LEFT_ALONE, Switch
from ...state import ATTRIBUTE, ITEM, PASSES_ON
from ..bytecode import MODULE_CALL
from ..table import lookup
from .kinds import C_FUNCTIONS, is_readable
from .outside import Outside

_CALL = getattr(operator, "call", None)
"""The function of C that calls what others give it; Python has it since 3.11."""


class Callables:
    """What one call calls.

    Attributes:
        called: Callables, by their identity, of which nothing is new when they are called again.
        settled: Attributes of which classes have said all when another instance is asked, and what is left to
            note.
        handed: Code that functions in C run or iterate over, by identity: they look into what it gives back.
        has_switched: The call has run a wrapper that switches Dynamo on or off.
    """

    def __init__(self, outside: Outside) -> None:
        self.called: set[int] = set()
        self.settled: dict[tuple[type, str], str] = {}
        self.handed: dict[int, CodeType] = {}
        # classes of objects that functions in C were given, and whether they may call these
        self._handed: set[tuple[type, bool]] = set()
        self._calls_members = False
        self.has_switched = False
        self._outside = outside
        self._switches: list[Switch] = []  # what the wrappers around the code that runs say to Dynamo

    def run(self, function: Any) -> None:
        """Something is about to be called: if it is Python code, it is followed."""
        bound = is_bound_method(function) or issubclass(type(function), (staticmethod, classmethod))
        target = function.__func__ if bound else function
        if type(target) is FunctionType:
            if target is not function and identity(function) in self._outside:
                find = self._outside.find_part if type(function) is MethodType else self._outside.find
                find(target, function, "")
            self._follow(target)

    def hand(self, value: Any, *, calls: bool = True) -> None:
        """A function in C gets something that it may run or iterate over, and looks into what that gives.

        Without ``calls`` it is a member of what that gets, or what code gives back to it: these are compared,
        hashed or added, and ``operator.call`` alone calls them.
        """
        kind = type(value)
        self._calls_members = self._calls_members or value is _CALL
        calls = calls or self._calls_members
        if issubclass(kind, partial):
            self.hand(value.func)
        elif issubclass(kind, (MethodType, *C_FUNCTIONS)):
            self.hand(value.__func__ if kind is MethodType else getattr(value, "__self__", None))
        elif kind in (FunctionType, GeneratorType):
            code = value.__code__ if kind is FunctionType else value.gi_code
            original = self._outside.running.swaps.original(code)
            self.handed[identity(original)] = original
        elif is_readable(value):
            for each in _held_in(value).values():
                if lookup.can_change(type(each)):
                    self.hand(each, calls=False)
        if (kind, calls) not in self._handed and lookup.can_change(kind):
            self._handed.add((kind, calls))
            for method in lookup.special_methods(kind):
                if calls or method is not lookup.find(kind, "__call__").value:
                    self.hand(method)

    def _follow(self, function: FunctionType) -> None:
        code, running = function.__code__, self._outside.running
        known = running.swaps.is_instrumented(code)
        apart = identity(code) in PASSES_ON or is_own(code.co_filename)
        if not known and (apart or running.rows.is_pure(function)):
            running.trusts = running.trusts or not apart
            return
        which = identity(function)
        if which in self._outside and which not in self.called:
            self.called.add(which)
            self._read(function)
        switch = self.switched
        compiles = switch is not None and switch.backend is not None
        chooses = compiles and not LEFT_ALONE.runs_as_it_is(running.swaps.original(code))
        if not known or chooses:
            numbers = self._outside.followed.numbers
            tracks = numbers is not None and numbers.follows
            why = running.swaps.replace(function, chooses=chooses, tracks=tracks)
            if why is not None:
                name = f"{function.__module__}.{function.__qualname__}"
                running.refuse(name, f"runs {name}, which cannot be followed: {why}")

    def _read(self, function: FunctionType) -> None:
        """What is read of a function when it is called."""
        outside = self._outside
        if function is not MODULE_CALL:  # that may get a prologue at any time
            code = outside.running.swaps.original(function.__code__)
            outside.read(ATTRIBUTE, function, "__code__", code, ".__code__")
        outside.read(ATTRIBUTE, function, "__defaults__", function.__defaults__, ".__defaults__")
        for index, value in enumerate(function.__defaults__ or ()):
            outside.find_part(value, function, f".__defaults__[{index}]")
        outside.read(ATTRIBUTE, function, "__kwdefaults__", function.__kwdefaults__, ".__kwdefaults__")
        for key, value in (function.__kwdefaults__ or {}).items():
            outside.read(ITEM, function.__kwdefaults__, key, value, f"[{key!r}]")
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            outside.find_part(cell, function, f".{name}")

    @property
    def switched(self) -> Switch | None:
        """What the innermost wrapper around the code that runs says to Dynamo; None without one."""
        return self._switches[-1] if self._switches else None

    def switch(self, switch: Switch) -> None:
        """A wrapper is entered that switches Dynamo on or off."""
        self._switches.append(switch)
        self.has_switched = True
        self.forget()  # of each function that is called now it matters what Dynamo would run

    def switch_back(self, function: Any) -> None:
        """What a wrapper has called is over."""
        if self._switches and self._switches[-1].function is function:
            self._switches.pop()
            self.forget()

    def forget(self) -> None:
        """What is called is looked at anew."""
        self.settled.clear()
        self.called.clear()


def _held_in(container: Any) -> dict[type, Any]:
    """What lies in a container and in containers inside, at any depth: one object of each class."""
    found, met, left = dict[type, Any](), set[int](), [container]
    while left:
        part = left.pop()
        if is_readable(part):
            if identity(part) not in met:
                met.add(identity(part))
                left.extend(members.values(part) if issubclass(type(part), dict) else members.keys(part))
        else:
            found[type(part)] = part
    return found


def names_of(kind: type, code: CodeType, original: Callable[[CodeType], CodeType]) -> list[str]:
    """Under which names a class and its bases have a method of this code."""
    named = [pair for each in lookup.bases(kind) for pair in lookup.namespace(each).items()]
    found = [(name, getattr(value, "__func__", value)) for name, value in named if not lookup.is_in_c(value)]
    return [name for name, value in found if type(value) is FunctionType and original(value.__code__) is code]
