"""From statements to Python functions, with everything bound.

A generated function, one line per call, beats a loop over (function, operands) pairs by a third: there are
no tuples to unpack and no indices to look up. ``fx.GraphModule`` does not: it fetches each tensor by
attribute and is slower than the loop.

To compile a line takes ten times as long as to make its operands, so lines are compiled once for all
recordings. What a line says depends only on how many operands a call has, on their names and on what is
copied from its result: some ten kinds make up every model. So statements go into *blocks* of sixteen, the
code of a block is remembered by the kinds of its lines, and a function is made of that code with operands of
its own as the default values of its parameters. Calling it costs 0.1 us a block. A function for each
statement would be compiled even less often, but would cost that for each; one function for a whole segment
is a new text every time.

The functions run below autograd and version counting, as a CUDA replay does: they build no graph, and
``tensor._version`` counts only what the user writes. Inference mode and grad mode are as they were at
capture, and are switched only where they change.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import count
from types import CodeType, FunctionType
from typing import Any, cast

import torch

from .compat import below_tracking, grad_setter, inference_guard
from .lowering import Statement

BLOCK = 16
"""Statements of one function."""

Kind = tuple[int, tuple[str, ...], tuple[tuple[tuple[int, ...], bool], ...]]
"""All that the text of a statement depends on: the number of positional operands, the names of the others,
and of each result that is copied its path and whether it is copied as it lies in memory."""

Program = Callable[[], None]


class Source:
    """The functions of one segment under construction."""

    def __init__(self) -> None:
        self._runs: list[tuple[bool, list[Program]]] = []
        self._kinds: list[Kind] = []
        self._values: list[Any] = []
        self._globals = {"__builtins__": builtins}  # kernels that import something look for it here
        self._grad: bool | None = None
        self._inference: bool | None = None
        self._set_grad = grad_setter()

    def add(self, statement: Statement, *, grad: bool, inference: bool) -> None:
        """Append one statement, and before it whatever switches to the modes it was captured under."""
        if inference is not self._inference:
            self._close()
            self._runs.append((inference, []))
            self._inference, self._grad = inference, None
        if grad is not self._grad:
            self._append(Statement(self._set_grad, (grad,), {}))
            self._grad = grad
        self._append(statement)

    def compile(self) -> Program:
        """The finished program."""
        self._close()
        runs, below, in_inference = self._runs, below_tracking(), inference_guard()

        def replay() -> None:
            for inference, blocks in runs:
                with in_inference(inference), below():
                    for block in blocks:
                        block()

        return replay

    def _append(self, statement: Statement) -> None:
        call, args, kwargs, stores = statement
        values = self._values
        values.append(call)
        values += [_bound(each) if type(each) is list else each for each in args]
        if kwargs:
            values += [_bound(each) if type(each) is list else each for each in kwargs.values()]
        copied: tuple[tuple[tuple[int, ...], bool], ...] = ()
        if stores:
            copied = tuple([(store.path, store.span is not None) for store in stores])
            for store in stores:
                values.append(store.target.copy_)
                if store.span is not None:
                    elements, offset = store.span
                    values.extend((torch.as_strided, (elements,), (1,), offset))
        self._kinds.append((len(args), tuple(kwargs), copied))
        if len(self._kinds) == BLOCK:
            self._close()

    def _close(self) -> None:
        """Make a function of the statements that are waiting for one."""
        if self._kinds:
            code = _code(tuple(self._kinds))
            block = FunctionType(code, self._globals, code.co_name, tuple(self._values))
            self._runs[-1][1].append(cast("Program", block))
            self._kinds, self._values = [], []


def _bound(value: list[Any]) -> Any:
    """Numbers as a tuple: it takes PyTorch less time to read."""
    return tuple(value) if all([type(each) is int or type(each) is bool for each in value]) else value


@lru_cache(maxsize=1024)
def _code(kinds: tuple[Kind, ...]) -> CodeType:
    """The code of a block: a function whose parameters are all that its statements mention, in order."""
    names = (f"v{number}" for number in count())
    used: list[str] = []
    lines = [line for kind in kinds for line in _lines(kind, _noting(names, used))]
    namespace: dict[str, Any] = {}
    text = f"def replay({', '.join(used)}):\n " + "\n ".join(lines)
    exec(compile(text, "<host segment>", "exec"), namespace)
    return namespace["replay"].__code__


def _noting(names: Iterator[str], used: list[str]) -> Iterator[str]:
    for name in names:
        used.append(name)
        yield name


def _lines(kind: Kind, names: Iterator[str]) -> list[str]:
    positional, keywords, stores = kind
    call = next(names)
    operands = [next(names) for _ in range(positional)] + [f"{key}={next(names)}" for key in keywords]
    call = f"{call}({', '.join(operands)})"
    if not stores:
        return [call]
    if len(stores) == 1:
        return [_store(stores[0], call, names)]
    return [f"r = {call}", *[_store(each, "r", names) for each in stores], "del r"]


def _store(store: tuple[tuple[int, ...], bool], result: str, names: Iterator[str]) -> str:
    path, spanned = store
    copy, value = next(names), result + "".join([f"[{n}]" for n in path])
    if spanned:
        value = f"{next(names)}({value}, {next(names)}, {next(names)}, {next(names)})"
    return f"{copy}({value})"
