"""What is run says what the steps say."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rote.runtime.backends.host.program import Modes, ReplayStep, Store, program

F32, F64 = torch.float32, torch.float64


def test_steps_run_in_order_each_under_its_modes() -> None:
    done: list[Any] = []

    def call(number: int, *, also: int) -> None:
        assert also == -number
        done.append((number, Modes.now()))

    modes = [
        Modes(False, False, F32),
        Modes(True, False, F32),
        Modes(True, False, F64),
        Modes(False, True, F64),
        Modes(False, True, F32),
        Modes(True, False, F32),
        Modes(True, False, F32),
    ]
    run = program((each, ReplayStep(call, (n,), {"also": -n})) for n, each in enumerate(modes))
    before = Modes.now()
    for _ in range(2):
        done.clear()
        run()
        assert done == list(enumerate(modes))
        assert Modes.now() == before


def test_modes_are_put_back_when_a_step_fails() -> None:
    def fails() -> None:
        raise ValueError

    before = Modes.now()
    with pytest.raises(ValueError):
        program([(Modes(not before.grad, True, F64), ReplayStep(fails, (), {}))])()
    assert Modes.now() == before


def test_results_are_copied_where_they_belong() -> None:
    rows = torch.arange(4.0).expand(3, 4)
    one, other, flat = torch.zeros(2), torch.zeros(2), torch.zeros(4)
    nested = [(torch.full((2,), 7.0), torch.full((2,), -1.0))]
    steps = [
        ReplayStep(lambda: nested, (), {}, (Store((0, 0), one, None), Store((0, 1), other, None))),
        ReplayStep(lambda: rows, (), {}, (Store((), flat, (4, 0)),)),
    ]
    program((Modes.now(), step) for step in steps)()
    assert one.tolist() == [7, 7] and other.tolist() == [-1, -1]
    assert flat.tolist() == [0, 1, 2, 3]


def test_no_graph_and_no_version() -> None:
    x = torch.ones(2, requires_grad=True)
    version = x._version
    program([(Modes(True, False, F32), ReplayStep(x.mul_, (2,), {}))])()
    assert x.tolist() == [2, 2] and x.is_leaf and x._version == version
