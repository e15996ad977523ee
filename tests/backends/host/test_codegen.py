"""What is compiled says what the statements say."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rote.backends.host import codegen
from rote.backends.host.codegen import BLOCK, Source
from rote.backends.host.lowering import Statement, Store

values = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3),
    st.lists(st.integers(0, 9), max_size=3), st.lists(st.floats(0, 1), min_size=1, max_size=2),
)  # fmt: skip
calls = st.tuples(
    st.lists(values, max_size=4),
    st.dictionaries(st.sampled_from(["dim", "out", "dtype"]), values),
    st.booleans(),
)


def comparable(value: Any) -> Any:
    """Lists of numbers come as tuples."""
    return tuple(value) if isinstance(value, list) else value


@settings(max_examples=60, deadline=None)
@given(st.lists(calls, max_size=3 * BLOCK))
def test_calls_come_in_order_with_their_operands_and_modes(wanted: list[Any]) -> None:
    done: list[Any] = []

    def call(*args: Any, **kwargs: Any) -> None:
        done.append((args, kwargs, torch.is_grad_enabled()))

    source = Source()
    for args, kwargs, grad in wanted:
        source.add(Statement(call, tuple(args), kwargs), grad=grad, inference=False)
    program = source.compile()
    expected = [
        (tuple(map(comparable, args)), {name: comparable(each) for name, each in kwargs.items()}, grad)
        for args, kwargs, grad in wanted
    ]
    before = torch.is_grad_enabled()
    for _ in range(2):
        done.clear()
        program()
        found = [(tuple(map(comparable, a)), {k: comparable(v) for k, v in o.items()}, g) for a, o, g in done]
        assert found == expected
        assert torch.is_grad_enabled() is before


def test_inference_mode_is_switched_where_it_changes() -> None:
    done: list[bool] = []
    source = Source()
    for inference in (False, True, True, False):
        statement = Statement(lambda: done.append(torch.is_inference_mode_enabled()), (), {})
        source.add(statement, grad=False, inference=inference)
    source.compile()()
    assert done == [False, True, True, False]
    assert not torch.is_inference_mode_enabled()


@pytest.mark.parametrize("length", [1, BLOCK - 1, BLOCK, 2 * BLOCK + 3])
def test_results_are_copied_where_they_belong(length: int) -> None:
    rows = torch.arange(4.0).expand(3, 4)
    pairs = [(torch.zeros(2), torch.zeros(2), torch.zeros(4)) for _ in range(length)]
    source = Source()
    for number, (one, other, flat) in enumerate(pairs):
        result = [(torch.full((2,), float(number)), torch.full((2,), -1.0))]
        stores = (Store((0, 0), one, None), Store((0, 1), other, None))
        source.add(Statement(lambda result=result: result, (), {}, stores), grad=False, inference=False)
        source.add(Statement(lambda: rows, (), {}, (Store((), flat, (4, 0)),)), grad=False, inference=False)
    source.compile()()
    for number, (one, other, flat) in enumerate(pairs):
        assert one.tolist() == [number, number] and other.tolist() == [-1, -1]
        assert flat.tolist() == [0, 1, 2, 3]


def test_blocks_of_one_pattern_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    def counted(text: str, *rest: Any) -> Any:
        compiled.append(text)
        return compile(text, *rest)

    monkeypatch.setattr(codegen, "compile", counted, raising=False)
    codegen._code.cache_clear()
    total = torch.zeros(())
    programs = []
    for step in (1.0, 2.0):
        source = Source()
        for _ in range(4 * BLOCK):
            source.add(Statement(total.add_, (step,), {}), grad=False, inference=False)
        programs.append(source.compile())
    for program in programs:
        program()
    assert total.item() == 3 * 4 * BLOCK
    assert len(compiled) == 2  # the switch of modes is a statement too, which leaves one for the last block


def test_kernels_may_import() -> None:
    source = Source()
    source.add(Statement(time.strptime, ("2024", "%Y"), {}), grad=False, inference=False)
    source.compile()()  # it imports from C, by the import function among its caller's globals
