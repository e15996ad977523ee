"""Random callables between arrays, whose results the caller keeps and changes."""

from __future__ import annotations

import random

import numpy
import pytest
import torch
from tests.conformance.test_arrays_given import assert_alike, changed, numbers

import rote

pytestmark = pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")

TAKES = [
    torch.from_numpy,
    torch.as_tensor,
    torch.tensor,
    torch.Tensor,
    lambda a: torch.from_numpy(a[None]),
    lambda a: torch.from_numpy(a.T),
    lambda a: torch.as_tensor(a, dtype=torch.float64),
]
STEPS = [
    lambda t: t * 2,
    lambda t: t.add_(1),
    lambda t: t.reshape(-1)[:2],
    lambda t: torch.from_numpy(t.numpy()),
    lambda t: torch.tensor(t.numpy()),
    lambda t: t.sum(),
]
GIVES = [
    lambda t, a: t.numpy(),
    lambda t, a: (t, t.numpy()),
    lambda t, a: {"action": t.numpy(), "seen": a},
    lambda t, a: [t.reshape(-1)[1:].numpy(), t.numpy()],
    lambda t, a: (t.numpy()[None], a[..., None]),
    lambda t, a: (t.numpy(), t.add_(1)),
    lambda t, a: t.numpy().copy(),
]
SHAPES = [(4,), (3, 4), (2, 3, 4), ()]


class Program:
    """Two arguments on their ways through random steps, and something that is kept."""

    def __init__(self, seed, device):
        chance = random.Random(seed)
        self._ways = [
            (chance.choice(TAKES), chance.choices(STEPS, k=chance.randint(0, 3)), chance.choice(GIVES))
            for _ in range(2)
        ]
        self._keeps, self._device = chance.choice(["", "result", "argument", "log"]), device
        self.log, self.kept = [], None

    @torch.no_grad()
    def __call__(self, observation, other):
        found = []
        for array, (take, steps, give) in zip((observation["image"], other), self._ways, strict=True):
            tensor = take(array)
            for step in steps:
                tensor = step(tensor)
            found.append(give(tensor.to(self._device).cpu(), array))
        if self._keeps == "result":
            self.kept = found[0]
        if self._keeps == "argument":
            self.kept = other
        if self._keeps == "log":
            self.log.append(found[1])
        return found


def given(n, seed):
    chance = random.Random(seed)
    kind, shape = chance.choice(["float32", "float64", "uint8", "int64", "float16"]), chance.choice(SHAPES)
    made = [numbers(n + each, *shape, kind=kind) if shape else numbers(n, 1).reshape(()) for each in (0, 50)]
    made[1].flags.writeable = chance.random() < 0.8
    return {"image": made[0]}, made[0] if chance.random() < 0.1 else made[1]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(40))
def test_random_programs(device, seed):
    chance = random.Random(seed + 1)
    plain, graphed = Program(seed, device), Program(seed, device)
    g = rote.graph(graphed, keep=True)
    forms = [chance.randrange(1000) for _ in range(chance.randint(1, 2))]
    kept = []
    for n in range(16):
        one, other = given(n, forms[n % len(forms)]), given(n, forms[n % len(forms)])
        try:
            found = plain(*one)
        except (RuntimeError, IndexError, TypeError) as error:
            with pytest.raises(type(error)):
                g(*other)
            return
        kept = [*kept[-4:], ((found, one), (g(*other), other))]
        if chance.random() < 0.3:
            for parts in kept[-1]:
                for part in parts[0]:
                    if not isinstance(part, numpy.ndarray) or part.flags.writeable:
                        changed(part) if not isinstance(part, dict) else None
        for pair in kept:
            assert_alike(*pair)
        assert_alike([plain.kept, plain.log], [graphed.kept, graphed.log])
