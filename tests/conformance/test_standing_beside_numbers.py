"""Objects that say they are of another class are asked nothing by rote where numbers are followed."""

from __future__ import annotations

import collections
from types import FunctionType, SimpleNamespace

import numpy
import pytest
import torch

import rote

CALLS = 14
KINDS = {
    each.__name__: each
    for each in (
        torch.Tensor,
        numpy.ndarray,
        numpy.float64,
        dict,
        list,
        type,
        FunctionType,
        collections.deque,
    )
}


def standing(kind, log):
    """An object that says it is of another class, and logs what it is asked for."""

    class Standing:
        def __getattribute__(self, name):
            log.append(name)
            return kind if name == "__class__" else object.__getattribute__(self, name)

        def __getitem__(self, index):
            return index

        def __call__(self, value):
            return value * 2

        def __contains__(self, key):
            return key == 3

        def __mul__(self, other):
            return other

    return Standing()


def kept(box, x):
    box.kept = box.here
    return x * box.step


def asked(box, x):
    return x * box.here[box.step] if box.here is not None else x


def called(box, x):
    return x * box.here(box.step)


def looked_in(box, x):
    return x * (2 if box.step in box.here else 3) + len([box.here, box.step])


def multiplied(box, x):
    return x + (box.here * box.step) + min(box.step, 5)


def handed(box, x):
    box.last = {"here": box.here, "step": box.step}
    return x + len(list((box.here, box.step))) * box.step


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("use", [kept, asked, called, looked_in, multiplied, handed])
def test_they_are_asked_as_in_eager(use, kind, device):
    def play(wrap):
        log = []
        box = SimpleNamespace(here=standing(KINDS[kind], log), kept=None, last=None, step=0)

        def call(x):
            box.step += 1
            return use(box, x)

        step, found = wrap(call), []
        for number in range(CALLS):
            found += [step(torch.full((2,), number + 0.5, device=device)).tolist(), box.step, [*log]]
            log.clear()
        return found

    assert play(lambda call: rote.graph(call, keep=True)) == play(lambda call: call)
