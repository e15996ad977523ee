"""Programs as people write them: plain and graphed, each call is the same to the bit."""

from __future__ import annotations

import random
from typing import Any

import numpy
import pytest
import torch
from tests import packages

import rote
from rote.testing import assert_same

from . import (
    control,
    layers,
    libraries,
    operators,
    precision,
    randomness,
    samplers,
    state,
    streams,
    training,
    transformers,
    transforms,
    vision,
)
from .program import Made, Program, seen

TOPICS = (
    streams, precision, randomness, training, layers, operators, transforms, transformers, vision, control,
    samplers, state, libraries,
)  # fmt: skip
PROGRAMS = [each for topic in TOPICS for each in vars(topic).values() if isinstance(each, Program)]
CALLS = {"cpu": 25, "cuda": 59}
LEAST = 150

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False")


class Side:
    """One of two runs of a program that take turns: it has random generators of its own."""

    def __init__(self, program: Program, device: torch.device) -> None:
        _seed()
        self.made: Made = program.make(device)
        _seed()  # the first to be made may import what draws
        self._device = device
        self._keep()

    def _keep(self) -> None:
        self._python, self._numpy = random.getstate(), numpy.random.get_state(legacy=False)
        self._tensors = [torch.get_rng_state()]
        if self._device.type == "cuda":
            self._tensors.append(torch.cuda.get_rng_state())

    def drawn(self) -> Any:
        """Where the generators stand."""
        return self._tensors, self._python, self._numpy

    def turn(self, call: Any) -> Any:
        """The result of a call of its own."""
        random.setstate(self._python)
        numpy.random.set_state(self._numpy)
        torch.set_rng_state(self._tensors[0])
        if self._device.type == "cuda":
            torch.cuda.set_rng_state(self._tensors[1])
        result = call(*self.made.inputs())
        self._keep()
        return result


def _seed() -> None:
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)


def check(program: Program, device: torch.device) -> None:
    if "torchvision" in program.needs and packages.missing():
        pytest.skip(f"needs {packages.missing()}")
    for name in program.needs:
        pytest.importorskip(name)
    try:
        plain, graphed = Side(program, device), Side(program, device)
    except ModuleNotFoundError as error:
        pytest.skip(f"needs {error}")
    wrapped = rote.graph(graphed.made.call)
    tolerance = program.tolerance if device.type == "cuda" else 0.0
    calls, replayed = CALLS[device.type], 0  # until the last third of the calls
    for number in range(calls):
        if number == calls - calls // 3:
            replayed = wrapped.report().replayed
        expected, found = plain.turn(plain.made.call), graphed.turn(wrapped)
        assert_same(found, expected, f"result of call {number}", tolerance=tolerance)
        for mine, other in zip(graphed.made.state, plain.made.state, strict=True):
            assert_same(seen(mine), seen(other), f"state after call {number}", tolerance=tolerance)
        assert_same(graphed.drawn(), plain.drawn(), f"generators after call {number}")
        del expected, found
    report = wrapped.report()
    told = None if program.gpu_alone or device.type == "cpu" else program.on_gpu
    wanted = program.replays if told is None else told
    if wanted is not None:
        answers = (report.replayed - replayed) * 3 >= calls // 3
        assert answers is wanted, f"{report.replayed} replays\n{wrapped.explain()}"
    if program.code and told is None:
        assert program.code in {reason.code for reason in report.reasons}, wrapped.explain()
    wrapped.reset()


@pytest.mark.sampled(16)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "program", [each for each in PROGRAMS if not each.gpu_alone], ids=lambda program: program.label
)
def test_a_program(program: Program, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)  # or a plain call differs from itself
    check(program, device)


@GPU
@pytest.mark.cuda
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "program", [each for each in PROGRAMS if each.gpu_alone], ids=lambda program: program.label
)
def test_a_program_of_a_gpu(program: Program) -> None:
    check(program, torch.device("cuda"))


def test_the_programs() -> None:
    assert len({program.label for program in PROGRAMS}) == len(PROGRAMS) >= LEAST
    assert all(program.title.endswith(".") for program in PROGRAMS)
    assert all(program.replays is False for program in PROGRAMS if program.code)
    assert all(program.code for program in PROGRAMS if program.replays is False)
