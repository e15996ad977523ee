"""In a process that has just begun: what Python and PyTorch fill once, for themselves, is nobody's effect."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

BEGIN = """
import typing, torch, rote
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""

END = """
g = rote.graph(fn)
for _ in range(6):
    g(torch.ones(2, 4))
print(g.report().replayed, *sorted({why.code for why in g.report().reasons}))
"""

PROGRAMS = {
    "a cache of typing": ("def fn(x):\n typing.Optional[int]\n return x * 2", "4"),
    "a step past the compiler": (
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


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_first_calls(name):
    text, expected = PROGRAMS[name]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + text + END],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == expected, done.stdout + done.stderr
