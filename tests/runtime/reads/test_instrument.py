"""Instrumented code gives what the original gives: values, exceptions, their lines."""

from __future__ import annotations

import argparse
import ast
import collections
import dataclasses
import difflib
import dis
import functools
import inspect
import json.decoder
import pickle
import statistics
import textwrap
import traceback
from types import CodeType, FunctionType

import pytest
import torch
from bytecode import Bytecode

from rote.runtime.reads.bytecode.instrument import OpaqueError, instrument
from rote.runtime.reads.handlers.notes import Notes
from rote.runtime.reads.watch import WATCH

from .programs import PROGRAMS, RAISING

MODULES = (
    argparse, ast, collections, dataclasses, difflib, functools, inspect, json.decoder, pickle, statistics, textwrap,
    torch.nn.functional, torch.nn.modules.module, torch.nn.modules.activation, torch.nn.modules.batchnorm,
    torch.nn.modules.container, torch.nn.modules.conv, torch.nn.modules.linear, torch.nn.modules.rnn,
    torch.nn.modules.transformer,
)  # fmt: skip


class Silent:
    """Notes that note nothing."""

    gather = staticmethod(Notes().gather)

    def __getattr__(self, name):
        return lambda *given: None


def codes_of(code: CodeType):
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from codes_of(each)


def instrumented(code: CodeType) -> CodeType:
    """Code and all code that stands in it."""
    made = instrument(code, Silent())
    return made.replace(
        co_consts=tuple(instrumented(each) if isinstance(each, CodeType) else each for each in made.co_consts)
    )


def copy_of(function: FunctionType) -> FunctionType:
    return FunctionType(
        instrumented(function.__code__),
        function.__globals__,
        None,
        function.__defaults__,
        function.__closure__,
    )


def traced(function, *args):
    trace = WATCH.begin(function)
    try:
        return function(*args)
    finally:
        WATCH.end(trace)


@pytest.mark.parametrize("n", [0, 1, 3, 4])
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_same_result(program, n):
    def outcome(call):
        try:
            return call()
        except Exception as error:
            return type(error), str(error)

    expected = outcome(lambda: program(n))
    assert outcome(lambda: copy_of(program)(n)) == expected
    assert outcome(lambda: traced(program, n)) == expected


@pytest.mark.parametrize("program", RAISING)
@pytest.mark.parametrize("how", ["copied", "traced"])
def test_the_same_traceback(program, how):
    def lines(call):
        with pytest.raises(Exception) as caught:
            call()
        chain = [caught.value, caught.value.__cause__, caught.value.__context__]
        return [
            [(each.name, each.lineno, each.end_lineno, each.colno, each.end_colno) for each in stack if each.filename == own]
            for stack in (traceback.extract_tb(error.__traceback__) for error in chain if error is not None)
        ]  # fmt: skip

    own = program.__code__.co_filename
    expected = lines(lambda: program(3))
    assert expected[0]
    assert lines(lambda: copy_of(program)(3) if how == "copied" else traced(program, 3)) == expected


def test_arguments_and_flags_stay():
    for program in PROGRAMS:
        code, made = program.__code__, instrument(program.__code__, Silent())
        for name in ("co_name", "co_qualname", "co_filename", "co_firstlineno", "co_flags",
                     "co_cellvars", "co_freevars", "co_argcount", "co_kwonlyargcount", "co_posonlyargcount"):  # fmt: skip
            assert getattr(made, name) == getattr(code, name), name
        assert inspect.getargs(made) == inspect.getargs(code)
        assert made.co_varnames == code.co_varnames


def functions_of(module):
    """All code of a module that Python functions run, and code within it."""
    found: dict[int, CodeType] = {}
    for value in vars(module).values():
        members = [value, *vars(value).values()] if isinstance(value, type) else [value]
        for each in members:
            function = inspect.unwrap(
                getattr(each, "__func__", getattr(each, "fget", each) or each), stop=None
            )
            if isinstance(function, FunctionType):
                found.update((id(code), code) for code in codes_of(function.__code__))
    return list(found.values())


@pytest.mark.sampled(4)
@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_code_of_libraries(module):
    codes = functions_of(module)
    assert len(codes) >= 3
    for code in codes:
        check(code, instrument(code, Silent()))


@pytest.mark.parametrize("program", [*PROGRAMS, *RAISING])
def test_code_of_programs(program):
    for code in codes_of(program.__code__):
        check(code, instrument(code, Silent()))


def check(code: CodeType, made: CodeType) -> None:
    units = len(made.co_code) // 2
    assert sum(1 for _ in made.co_positions()) == units, code
    ends = [end for _, end, _ in made.co_lines()]
    starts = [start for start, _, _ in made.co_lines()]
    assert starts == [0, *ends[:-1]] and ends[-1] == len(made.co_code), code
    assert {line for _, _, line in made.co_lines()} <= {line for _, _, line in code.co_lines()} | {None}, code
    assert handlers(made) == handlers(code), code
    left = iter(located(made))
    assert all(each in left for each in located(code)), code
    assert made.co_stacksize >= code.co_stacksize
    assert Bytecode.from_code(made).compute_stacksize() <= made.co_stacksize, code


def located(code: CodeType) -> list[tuple[str, dis.Positions | None]]:
    """The instructions in order with their places; those that are written in another way are left out."""
    return [
        (each.opname, each.positions) for each in dis.get_instructions(code)
        if each.opname not in ("EXTENDED_ARG", "KW_NAMES", "LOAD_METHOD")
    ]  # fmt: skip


def handlers(code: CodeType) -> set[tuple[int, bool]]:
    """At which depths of the stack exception handlers begin."""
    return {(entry.depth, entry.lasti) for entry in dis._parse_exception_table(code)}  # type: ignore[attr-defined]


@pytest.mark.parametrize("count", [1, 20, 60, 400, 1700])
def test_jumps_grow_with_what_lies_between(count):
    """Forward and backward, past one and two bytes of an argument, into a handler and over a whole loop."""
    body = [f"            total = total + n.real * {number % 7}" for number in range(count)]
    lines = [
        "def long(n):",
        "    total = 0",
        "    for each in range(n):",
        "        try:",
        "            if each == 1:",
    ]
    lines += [f"    {line}" for line in body] + ["            else:"] + [f"    {line}" for line in body]
    lines += ["            if each == 2: raise ValueError(total)", "        except ValueError as error:"]
    lines += [*body, "            total = total + error.args[0]", "    return total"]
    names = {}
    exec("\n".join(lines), names)
    long = names["long"]
    made = FunctionType(instrument(long.__code__, Silent()), names)
    assert [made(n) for n in range(5)] == [long(n) for n in range(5)]
    check(long.__code__, made.__code__)


def test_a_place_that_covers_many_units_is_split():
    def function(x):
        return x.a(x.b[x.c : x.d], *x.e, **x.f) + sum(
            x.g[number]
            for number in x.h
        )  # fmt: skip

    for code in codes_of(function.__code__):
        check(code, instrument(code, Silent()))


def test_code_of_coroutines_is_opaque():
    async def coroutine(x):
        await x

    with pytest.raises(OpaqueError, match="GET_AWAITABLE"):
        instrument(coroutine.__code__, Silent())


def test_a_note_comes_before_each_instruction_that_may_read():
    said = []

    class Told:
        def __getattr__(self, name):
            return lambda *given: said.append((name, *given))

    def function(x):
        return x.real[0:1] if x in (3,) else -x

    value = 4
    FunctionType(instrument(function.__code__, Told()), function.__globals__)(value)
    assert said == [("contains", value, (3,)), ("unary", value), ("given_back", -value)]


def factory(function):
    return function


def test_what_a_call_gives_is_no_empty_slot():
    """A decorator that another call has made lies where that call's empty slot was."""

    def decorated():
        @factory(len)
        def found(): ...

        return found

    with pytest.raises(TypeError, match="has no len"):
        traced(decorated)
    told = []

    class Told(Silent):
        def call(self, keywords, function, *args):
            told.append(function)

    with pytest.raises(TypeError, match="has no len"):
        FunctionType(instrument(decorated.__code__, Told()), globals())()
    assert told == [factory, len]


class Keywords:
    """Something with a method that takes arguments by their names."""

    def method(self, *args, **named):
        return args, named


def test_the_names_of_arguments_are_told_apart_from_them():
    """Where they lie differs between versions of Python, and so does the slot of a call that may be empty."""

    def function():
        found = Keywords()
        local = factory
        return (
            dict(a=1), local(function=2), factory(function=3), found.method(4, b=5), found.method(6, 7),
            max((8,), key=None), dict([(9, 10)], c=factory(function=11), d=12),
        )  # fmt: skip

    told = []

    class Told(Silent):
        def call(self, names, function, *args):
            self_told = [each for each in args if not isinstance(each, Keywords)]
            told.append((function.__name__, names, tuple(self_told)))

    code = instrument(function.__code__, Told())
    assert FunctionType(code, globals())() == function()
    assert told == [
        ("Keywords", (), ()), ("dict", ("a",), (1,)), ("factory", ("function",), (2,)),
        ("factory", ("function",), (3,)), ("method", ("b",), (4, 5)), ("method", (), (6, 7)),
        ("max", ("key",), ((8,), None)), ("factory", ("function",), (11,)),
        ("dict", ("c", "d"), ([(9, 10)], 11, 12)),
    ]  # fmt: skip
