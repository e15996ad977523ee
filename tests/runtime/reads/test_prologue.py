"""Calls of modules run a prologue while somebody wants that, and else their own code."""

from __future__ import annotations

import inspect
import threading
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from rote.runtime.arguments import NOT_MINE
from rote.runtime.reads import MODULE_CALL, WATCH
from rote.runtime.reads.bytecode.prologue import Answering, with_prologue

OWN = MODULE_CALL.__code__


class Adds(nn.Module):
    def forward(self, x: Any, y: Any = 0) -> Any:
        return x + y


class Fails(nn.Module):
    def forward(self) -> None:
        raise ValueError("inside")


@pytest.fixture(autouse=True)
def own_code_afterwards() -> Iterator[None]:
    yield
    assert MODULE_CALL.__code__ is OWN and WATCH.answering.of_thread is None


@pytest.fixture
def preceded() -> Iterator[Any]:
    """Calls of modules are asked about; a function that sets who is asked on this thread."""
    assert WATCH.precede(NOT_MINE)

    def answer(function: Any) -> None:
        WATCH.answering.of_thread = function

    yield answer
    WATCH.answering.of_thread = None
    WATCH.leave()


def test_nobody_is_asked(preceded: Any) -> None:
    assert MODULE_CALL.__code__ is not OWN and nn.Module.__call__ is MODULE_CALL
    assert Adds()(1, y=2) == 3


def test_who_answers(preceded: Any) -> None:
    module = Adds()
    asked: list[Any] = []

    def answer(*given: Any) -> Any:
        asked.append(given)
        return NOT_MINE if given[1] == (1,) else None

    preceded(answer)
    assert module(1) == 1 and module(2, y=3) is None
    assert asked == [(module, (1,), {}), (module, (2,), {"y": 3})]


def test_only_this_thread(preceded: Any) -> None:
    preceded(lambda *given: "answered")
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(Adds()(1)))
    thread.start()
    thread.join()
    assert found == [1] and Adds()(1) == "answered"


def test_as_often_as_it_was_asked_for(preceded: Any) -> None:
    code = MODULE_CALL.__code__
    assert WATCH.precede(NOT_MINE) and MODULE_CALL.__code__ is code
    WATCH.leave()
    assert MODULE_CALL.__code__ is code


def test_a_traced_call_runs_without(preceded: Any) -> None:
    preceded(lambda *given: "answered")
    module = Adds()
    trace = WATCH.begin(module)
    try:
        assert WATCH._swaps.is_instrumented(MODULE_CALL.__code__) and module(1) == 1
    finally:
        WATCH.end(trace)
    assert module(1) == "answered"


def test_it_comes_and_goes_while_a_call_is_traced() -> None:
    module = Adds()
    trace = WATCH.begin(module)
    try:
        module(1)
        assert WATCH.precede(NOT_MINE) and WATCH._swaps.is_instrumented(MODULE_CALL.__code__)
    finally:
        WATCH.end(trace)
    assert MODULE_CALL.__code__ is not OWN and not WATCH._swaps.is_instrumented(MODULE_CALL.__code__)
    trace = WATCH.begin(module)
    try:
        module(1)
        WATCH.leave()
        assert WATCH._swaps.is_instrumented(MODULE_CALL.__code__)
    finally:
        WATCH.end(trace)


def test_what_it_reads_does_not_depend_on_it(preceded: Any) -> None:
    """A guard that was made before holds afterwards."""
    module = Adds()
    trace = WATCH.begin(module)
    module(1)
    reads = [str(read) for read in WATCH.end(trace).reads]
    assert reads and not [each for each in reads if "_wrapped_call_impl.__code__" in each]


def test_lines_and_source(preceded: Any) -> None:
    with pytest.raises(ValueError, match="inside") as caught:
        Fails()()
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert frames[-1].line == 'raise ValueError("inside")'
    (line,) = [frame.line for frame in frames if frame.name == "_wrapped_call_impl"]
    assert line is not None and line.startswith("return self._call_impl(*args, **kwargs)")
    assert inspect.getsource(MODULE_CALL).lstrip().startswith("def _wrapped_call_impl")


def test_code_that_cannot_be_made() -> None:
    """Where the source is not that of the code, there is no prologue."""
    assert with_prologue(len, OWN, Answering(), NOT_MINE) is None
    assert with_prologue(MODULE_CALL, OWN, Answering(), NOT_MINE) is not None
    other = OWN.replace(co_consts=(*OWN.co_consts, "more"))
    assert with_prologue(MODULE_CALL, other, Answering(), NOT_MINE) is None


def test_code_of_somebody_else_stays() -> None:
    def other(self: Any, *args: Any, **kwargs: Any) -> str:
        return "other"

    assert WATCH.precede(NOT_MINE)
    MODULE_CALL.__code__ = other.__code__
    try:
        WATCH.leave()
        assert MODULE_CALL.__code__ is other.__code__ and Adds()(1) == "other"
    finally:
        MODULE_CALL.__code__ = OWN


def test_dynamo_prunes_it(preceded: Any) -> None:
    class Explicit(nn.Linear):
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return super().__call__(x) + 1

    preceded(lambda *given: pytest.fail("asked while compiling"))
    module = nn.Sequential(Explicit(3, 3))
    compiled = torch.compile(lambda x: module[0](x), backend="eager", fullgraph=True)
    with torch.no_grad():
        x = torch.ones(2, 3)
        found = compiled(x)
    WATCH.answering.of_thread = None
    with torch.no_grad():
        assert torch.equal(found, module(x))
    torch.compiler.reset()
