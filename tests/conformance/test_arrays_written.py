"""Memory of numpy arrays that operations write and that becomes tensors again, in one call, in any order."""

from __future__ import annotations

import itertools
import random

import numpy
import pytest
import torch

import rote

CALLS = 7
PROGRAMS = 40
WRITES = ("over.add_(1)", "over.copy_(over * 2 + n)", "over[1:3] = n + 2", "torch.from_numpy(held).mul_(2)")
READS = (
    "found += torch.tensor(held)",
    "found += torch.tensor(held[1:3]).sum()",
    "found += torch.as_tensor(held) + 1",
    "found += torch.from_numpy(held) * 2",
    "found += over * 3",
)
HOMES = {
    "state": ("held = numpy.ones(4, numpy.float32)\nover = torch.from_numpy(held)", "", "x, n"),
    "reset": ("held = numpy.ones(4, numpy.float32)\nover = torch.from_numpy(held)", "", "x, n"),
    "memory of a tensor": ("over = torch.ones(4)\nheld = over.numpy()", "", "x, n"),
    "made inside": (
        "held = None",
        "held = numpy.ones(4, numpy.float32)\nover = torch.from_numpy(held)",
        "x, n",
    ),
    "argument": ("held = numpy.ones(4, numpy.float32)\ngiven = torch.from_numpy(held)", "", "x, n, over"),
    "argument now and then": (
        "held = numpy.ones(4, numpy.float32)\ngiven = torch.from_numpy(held)",
        "",
        "x, n, over",
    ),
}


def _programs():
    dice = random.Random(0)
    every = [each for each in itertools.product((*WRITES, *READS), repeat=3) if set(each) & set(READS)]
    return dice.sample(every, PROGRAMS)


def _play(wrap, home, statements, device):
    made, inside, parameters = HOMES[home]
    lines = ["found = torch.zeros(4)", *inside.split("\n"), *statements]
    lines += ["return x + found.to(x.device)"]
    text = f"{made}\ndef fn({parameters}):\n" + "".join(f"    {line}\n" for line in lines if line)
    names = {"torch": torch, "numpy": numpy, "__name__": "scene"}
    exec(compile(text, "<scene>", "exec", dont_inherit=True), names)
    call, seen = wrap(names["fn"]), []
    for number in range(CALLS):
        if home == "reset":
            names["held"][:] = number % 2
        given = [names["given"]] if parameters.endswith("over") else []
        if home == "argument now and then" and number in (2, 3, 4):
            given = [torch.full((4,), 5.0)]
        result = call(torch.ones(4, device=device), torch.tensor(float(number % 3)), *given)
        held = names["held"]
        seen.append((result.tolist(), None if held is None else held.tolist()))
    return seen, text


@pytest.mark.sampled(2)
@pytest.mark.parametrize("home", HOMES)
def test_in_any_order(device, home):
    for statements in _programs():
        wanted, text = _play(lambda function: function, home, statements, device)
        found, _ = _play(rote.graph, home, statements, device)
        assert found == wanted, text


def test_copies_of_what_was_written_replay(device):
    held = numpy.zeros(4, numpy.float32)

    def fn(x):
        torch.from_numpy(held).add_(1)
        return x * torch.tensor(held).to(x.device)

    g = rote.graph(fn)
    for number in range(CALLS):
        assert g(torch.ones(4, device=device)).tolist() == [number + 1.0] * 4
    assert g.report().replayed >= CALLS - 3


def test_an_argument_that_lies_in_an_array_is_refused(device, reason):
    held = numpy.zeros(4, numpy.float32)
    given = torch.from_numpy(held)
    g = rote.graph(lambda x: x.add_(1) * torch.tensor(held))
    for number in range(CALLS):
        assert g(given).tolist() == [(number + 1.0) ** 2] * 4
    found = reason(g, "RT503")
    assert found.message == "args[0] lies in a numpy array that becomes a tensor"
