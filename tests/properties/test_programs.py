"""Random programs, random calls: graphed equals eager, in results, inputs and random state."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

from rote.testing import compare

pytest.importorskip("hypothesis")

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

_spec = importlib.util.spec_from_file_location("rote_test_programs", Path(__file__).with_name("programs.py"))
programs = sys.modules[_spec.name] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(programs)

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False")


def quickly(examples):
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


sequences = st.lists(st.integers(0, 3), min_size=6, max_size=12)


@quickly(150)
@given(programs.programs, st.integers(1, 3), sequences)
def test_graphed_equals_eager(program, count, sequence):
    with torch.no_grad():
        compare(programs.interpret(program), [programs.inputs(count, seed) for seed in sequence])


@quickly(40)
@given(programs.programs, st.integers(1, 3), sequences, st.integers(1, 3))
def test_checks_are_silent(program, count, sequence, every):
    with torch.no_grad():
        calls = [programs.inputs(count, seed) for seed in sequence]
        compare(programs.interpret(program), calls, verify=every)


@quickly(50)
@given(programs.programs, sequences)
def test_in_inference_mode(program, sequence):
    with torch.inference_mode():
        compare(programs.interpret(program), [programs.inputs(2, seed) for seed in sequence])


@quickly(50)
@given(programs.programs, sequences, st.integers(0, 8))
def test_inputs_that_overlap(program, sequence, shift):
    def call(seed):
        (base,) = programs.inputs(1, seed)
        flat = torch.cat([base.view(-1)] * 2)
        return flat[:12].view(3, 4), flat[shift : shift + 12].view(3, 4)

    with torch.no_grad():
        compare(programs.interpret(program), [call(seed) for seed in sequence])


@quickly(25)
@given(st.lists(programs.programs, min_size=2, max_size=3), sequences)
def test_several_programs_share_the_pool(several, sequence):
    """One wrapper, one key for each program: recordings alternate in the same memory."""
    known = [programs.interpret(program) for program in several]

    def fn(which, x, y):
        return known[which](x, y)

    with torch.no_grad():
        calls = [
            (which, *programs.inputs(2, seed)) for seed in sequence for which in range(len(several))
        ]  # fmt: skip
        compare(fn, calls)


@quickly(40)
@given(programs.programs, sequences)
def test_gradients_inside(program, sequence):
    """Autograd runs within the call; only its results leave."""
    run = programs.interpret(
        [step for step in program if step.kind not in ("in place", "write view")] or program[:0]
    )

    def fn(x, y):
        weight = x.detach().clone().requires_grad_()
        total = sum(value.sum() for value in run(weight, y))
        if not total.requires_grad:
            return total
        (gradient,) = torch.autograd.grad(total, [weight], allow_unused=True)
        return total.detach(), gradient

    compare(fn, [programs.inputs(2, seed) for seed in sequence])


@pytest.mark.cuda
@CUDA
@quickly(60)
@given(programs.programs, sequences)
def test_on_cuda(program, sequence):
    with torch.no_grad():
        calls = [tuple(x.cuda() for x in programs.inputs(2, seed)) for seed in sequence]
        compare(programs.interpret(program), calls)
