"""In a process that has just begun: what Python and PyTorch fill once, for themselves, is nobody's effect."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PLAY = """
import os, sys, traceback, typing, torch, rote

def play(text):
    space = {"torch": torch, "typing": typing}
    exec(text, space)
    g = rote.graph(space["fn"])
    for _ in range(6):
        g(torch.ones(2, 4))
    print(g.report().replayed, *sorted({why.code for why in g.report().reasons}), flush=True)

for text in sys.argv[1:]:
    child = os.fork()
    if not child:
        try:
            play(text)
        except BaseException:
            traceback.print_exc()
        os._exit(0)
    os.waitpid(child, 0)
    print(flush=True)
"""
"""Plays each program in a process that has imported rote, and done nothing else."""

PROGRAMS = {
    "a cache of typing": ("def fn(x):\n typing.Optional[int]\n return x * 2", "4"),
    "a step past the compiler": (
        "model = torch.nn.Linear(4, 4)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "def fn(x):\n optimizer.zero_grad()\n model(x).sum().backward()\n optimizer.step()\n return x * 2",
        "3",  # gradients are there from the second call on
    ),
    "a seed for devices that have not started": (
        "def fn(x):\n torch.manual_seed(1)\n return x * 2",
        "0 RT208",
    ),
    "a module of PyTorch's that acts is imported": (
        "def fn(x):\n import torch.distributed.algorithms.join\n return x * 2",
        "4",
    ),
    "a cache of one's own": (
        "import functools\n@functools.cache\ndef scale():\n return 2.0\ndef fn(x):\n return x * scale()",
        "3 RT201",
    ),
}


@pytest.fixture(scope="module")
def played():
    """What each program has printed, and what went wrong in any."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", PLAY, *(text for text, _ in PROGRAMS.values())],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [each.strip() for each in done.stdout.split("\n\n")]
    return dict(zip(PROGRAMS, lines, strict=False)), done.stderr


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_first_calls(played, name):
    said, errors = played
    assert said.get(name) == PROGRAMS[name][1], f"{said}\n{errors}"
