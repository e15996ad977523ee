"""Kernels in Triton: played by its interpreter they calculate what their bodies say, and they compile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from tests.runtime.fusion import interpreter
from tests.runtime.fusion.evaluated import evaluate
from tests.runtime.fusion.programs import scene
from tests.runtime.fusion.test_groups import plan
from torch import Tensor

from rote.runtime.compiling import COMPILERS, Binary
from rote.runtime.fusion import NoKernelError, Written
from rote.runtime.fusion.triton import triton_source
from rote.testing import assert_same

pytest.importorskip("triton")

SCENES = 100


class Given(NamedTuple):
    """A kernel, and flat tensors that it reads."""

    kernel: Written
    tensors: list[Tensor]


def kernels() -> Iterator[Given]:
    for seed in range(SCENES):
        try:
            planned = plan(scene(seed))
        except NoKernelError:
            continue
        torch.manual_seed(seed)
        for step in planned.steps:
            if isinstance(step, Written) and not _rounds(step):
                reads = zip(step.body.reach, step.body.reads, strict=True)
                yield Given(step, [(torch.randn(most + 1) * 4).to(dtype) for most, dtype in reads])


def _rounds(kernel: Written) -> bool:
    """Whether there are numbers of 16 bits, to which the interpreter does not round, but cuts off."""
    return any([value.dtype is torch.bfloat16 for value in kernel.body.values])


def test_they_calculate_what_their_bodies_say(tmp_path):
    given = list(kernels())
    assert len(given) > SCENES // 3
    play(given, tmp_path)


def play(given: Sequence[Given], tmp_path: Path) -> None:
    """Play kernels, and compare what they make with what their bodies say."""
    written: list[dict[str, object]] = []
    for kernel, tensors in given:
        source = triton_source(kernel.body, [False] * (len(tensors) + len(kernel.stores)), 90)
        made = [torch.full((kernel.body.count,), 77).to(dtype) for dtype in kernel.body.writes]
        numbers = [*kernel.reals, *kernel.integers]
        given_to = {"tensors": [*tensors, *made], "numbers": numbers}
        text = {"text": source.text, "name": source.name, "programs": source.grid.count}
        written.append({**text, **given_to})
    played = interpreter.played(written, tmp_path)
    for number, ((kernel, tensors), after) in enumerate(zip(given, played, strict=True)):
        expected = evaluate(kernel.body, tensors, kernel.reals, kernel.integers)
        for got, wanted in zip(after[len(tensors) :], expected, strict=True):
            assert_same(got, wanted, f"kernel {number}")


def test_they_are_compiled_without_a_gpu():
    def rotated(x: Tensor, angle: Tensor) -> tuple[Tensor, ...]:
        turned = torch.cat((-x[..., 4:], x[..., :4]), -1)
        return (torch.nn.functional.silu(x) * angle.cos() + turned * angle.sin(), (x / 3) > angle)

    x = torch.randn(3, 5, 8).to(torch.bfloat16)
    (kernel,) = plan(scene(0)._replace(function=rotated, args=(x, x.float()))).steps
    assert isinstance(kernel, Written)
    source = triton_source(kernel.body, [True] * (len(kernel.reads) + len(kernel.stores)), 90)
    job = COMPILERS.get().submit([source])
    assert job.wait(120)
    (binary,) = job.results().values()
    assert isinstance(binary, Binary) and binary.code[:4] == b"\x7fELF", binary
