"""Host values: read from tensors into Python, drawn or clocked on the host, and constants."""

from __future__ import annotations

import random
import time
import types
from collections.abc import Iterator
from typing import Any

import numpy
import torch
from tests.footguns.case import Kind, Wrap, attempt, case, full, ramp

Items = Iterator[Any]


@case(Kind.REFUSED)
def item_in_a_branch(wrap: Wrap, device: torch.device) -> Items:
    """``.item()`` decides which way the code goes."""

    def fn(x):
        if x.sum().item() > 10:  # RT101 stops
            return x * 2
        return x - 1

    g = wrap(fn)
    for i in range(24):
        yield g(full(i % 4, device))


@case(Kind.REFUSED)
def item_in_a_number(wrap: Wrap, device: torch.device) -> Items:
    """``.item()`` becomes a factor, another one at every call."""
    g = wrap(lambda x: x / x.sum().item())  # RT304 on cuda stops
    for i in range(40):
        yield g(ramp(i + 1, device))


@case(Kind.REFUSED)
def item_in_a_loop_bound(wrap: Wrap, device: torch.device) -> Items:
    """A tensor says how many steps a solver takes."""

    def fn(x, steps):
        for _ in range(int(steps.item())):  # RT101 stops
            x = x - 0.1 * x.tanh()
        return x

    g = wrap(fn)
    for i in range(24):
        yield g(full(i, device), torch.tensor(1 + i % 3, device=device))


@case(Kind.REFUSED)
def if_tensor(wrap: Wrap, device: torch.device) -> Items:
    """A tensor is used as a condition."""

    def fn(x):
        if (x > 2).all():  # RT101 stops
            return x * 2
        return x + 100

    g = wrap(fn)
    for i in range(20):
        yield g(full(i % 5, device))


@case(Kind.REFUSED)
def early_exit(wrap: Wrap, device: torch.device) -> Items:
    """An iteration stops when the residual is small."""

    def fn(x):
        while x.abs().max() > 1:  # RT101 stops
            x = x / 2
        return x

    g = wrap(fn)
    for i in range(24):
        yield g(full(1 + 3 * (i % 3), device))


@case(Kind.REFUSED)
def check_that_raises(wrap: Wrap, device: torch.device) -> Items:
    """A check raises for some inputs; what was computed before it stays computed."""
    seen = torch.zeros(1, device=device)

    def fn(x):
        seen.add_(1)
        if x.isnan().any():  # RT101 stops
            raise ValueError("the input has a NaN")
        return x * 2

    g = wrap(fn)
    for i in range(18):
        yield attempt(g, full(float("nan") if i % 6 == 5 else i, device)), seen


@case(Kind.REFUSED)
def nonzero(wrap: Wrap, device: torch.device) -> Items:
    """The positions of the positive elements."""
    g, held = wrap(lambda x: (x > 0).nonzero().sum(0) + x[0, 0]), []  # RT111 stops
    for i in range(20):
        held.append(g(ramp(-(i % 4), device)))
        yield held[-1]
    yield held


@case(Kind.REFUSED)
def mask_written(wrap: Wrap, device: torch.device) -> Items:
    """Elements are replaced where a mask says so, by a tensor of as many elements."""

    def fn(x):
        y = x.clone()
        y[x > 2] = x[x > 2] * 10
        return y

    g = wrap(fn)
    for i in range(20):
        yield g(ramp(i % 4, device))


@case(Kind.REFUSED)
def unique(wrap: Wrap, device: torch.device) -> Items:
    """The distinct elements and how often they occur."""
    g = wrap(lambda x: x.unique(return_counts=True))  # RT111 stops
    for i in range(20):
        yield g(torch.tensor([1.0, 2.0, 2.0, i % 3], device=device))


@case(Kind.WRONG)
def tolist(wrap: Wrap, device: torch.device) -> Items:
    """Lengths are turned into a Python list that splits a batch."""
    g = wrap(lambda x, lengths: [part.sum() for part in x.split(lengths.tolist())])  # RT102 stops
    for i in range(20):
        n = 1 + i % 3
        yield g(ramp(i, device, 6), torch.tensor([n, 6 - n], device=device))


@case(Kind.WRONG, replays=None)
def through_numpy(wrap: Wrap, device: torch.device) -> Items:
    """A step of the computation is done with numpy."""

    def fn(x):
        array = numpy.sort((x * 2).cpu().numpy())  # stops
        return torch.from_numpy(array.copy()).to(device) + x  # stops

    g = wrap(fn)
    for i in range(12):
        yield g(full(i, device) * torch.tensor([3.0, -1.0, 2.0, 0.0], device=device))


@case(Kind.REFUSED)
def loss_logged(wrap: Wrap, device: torch.device) -> Items:
    """The loss of every call is appended to a log."""
    log: list[float] = []

    def fn(x):
        loss = x.square().mean()
        log.append(loss.item())  # RT307 stops
        return loss * 2

    g = wrap(fn)
    for i in range(12):
        yield g(full(i, device)), list(log)


@case(Kind.REFUSED)
def number_in_the_outputs(wrap: Wrap, device: torch.device) -> Items:
    """A count read from the device is returned as a Python number."""
    g = wrap(lambda x: (x * 2, int((x > 2).sum())))  # RT101 stops
    for i in range(20):
        yield g(ramp(i % 4, device))


@case(Kind.WRONG)
def python_random(wrap: Wrap, device: torch.device) -> Items:
    """A factor is drawn with ``random``."""
    g = wrap(lambda x: x * random.random())  # RT204 wrong
    for i in range(12):
        yield g(full(i + 1, device))


@case(Kind.WRONG)
def numpy_random(wrap: Wrap, device: torch.device) -> Items:
    """A crop is chosen with ``numpy.random``."""

    def fn(x):
        start = int(numpy.random.randint(0, 3))  # RT204 wrong
        return x[start : start + 3] * 2  # wrong

    g = wrap(fn)
    for i in range(12):
        yield g(ramp(i, device, 6))


@case(Kind.WRONG, replays=None)
def random_choice_of_a_branch(wrap: Wrap, device: torch.device) -> Items:
    """A layer is skipped with a probability, drawn on the host from a generator of its own."""
    o = types.SimpleNamespace(dice=random.Random(3))
    g = wrap(lambda x: x * 2 if o.dice.random() < 0.7 else x)  # RT201 wrong
    for i in range(30):
        yield g(full(i + 1, device))


@case(Kind.WRONG, replays=False)
def clock(wrap: Wrap, device: torch.device) -> Items:
    """A time stamp is put into the result: it has to be later than that of the call before."""
    g = wrap(lambda x: x.double() * 0 + time.perf_counter())  # RT218 wrong
    last = 0.0
    for _ in range(10):
        stamp = g(full(0, device))[0].item()
        yield stamp > last
        last = stamp


@case(Kind.WRONG)
def constant_made_inside(wrap: Wrap, device: torch.device) -> Items:
    """A constant is built from Python numbers in the middle of the computation, and written to."""

    def fn(x):
        weights = torch.tensor([1.0, 2.0, 3.0, 4.0], device=device)  # stops
        weights[0] = 5.0  # stops
        return weights.add_(x)

    g, held = wrap(fn), []
    for i in range(12):
        held.append(g(full(i, device)))
        yield held[-1]
    yield held


@case(Kind.WRONG)
def constant_from_a_list_that_changes(wrap: Wrap, device: torch.device) -> Items:
    """The numbers a constant is built from are changed outside."""
    values = [1.0, 2.0, 3.0, 4.0]
    g = wrap(lambda x: x * torch.tensor(values, device=device))  # stops
    for i in range(18):
        if i % 6 == 5:
            values[1] += 10
        yield g(full(i, device))


@case(Kind.WRONG)
def schedule_in_python(wrap: Wrap, device: torch.device) -> Items:
    """A denoising loop whose step sizes are computed in Python from the number of steps."""

    def fn(x, steps):
        for n in range(steps):
            time = torch.full((1,), 1 - n / steps, device=device)
            x = x - (x * time) / steps
        return x

    g = wrap(fn)
    for i in range(18):
        yield g(full(i, device), 4 if i % 6 < 3 else 2)


@case(Kind.REFUSED)
def comparison_of_tensors(wrap: Wrap, device: torch.device) -> Items:
    """``allclose`` and ``equal`` return Python truth values."""
    target = torch.zeros(4, device=device)

    def fn(x):
        if torch.equal(x, target):  # RT101 stops
            return x + 100
        return x * 2 if torch.allclose(x, x.mean()) else x * 3  # stops

    g = wrap(fn)
    for i in range(24):
        yield g(full(i // 2 % 3, device) if i % 2 else ramp(0, device, 4))


@case(Kind.REFUSED)
def tensor_in_a_text(wrap: Wrap, device: torch.device) -> Items:
    """A message with a tensor's value in it is returned."""
    g = wrap(lambda x: (x * 2, f"the sum is {x.sum():.2f}"))  # RT101 stops
    for i in range(18):
        yield g(full(i % 3, device))


@case(Kind.REFUSED)
def tensor_iterated(wrap: Wrap, device: torch.device) -> Items:
    """A loop over the rows of a tensor takes some of them."""
    g = wrap(lambda x: [row.sum() for row in x if row[0] > 1])  # RT101 stops
    for i in range(24):
        yield g(ramp(i % 3 - 1, device))


@case(Kind.REFUSED)
def table_looked_up(wrap: Wrap, device: torch.device) -> Items:
    """A tensor's value is the index into a Python list, which changes once."""
    table = [1.0, 5.0, 9.0]
    g = wrap(lambda x: x * table[int(x[0])])  # RT101 stops
    for i in range(36):
        if i == 15:
            table[1] = -1.0
        yield g(full(i % 3, device))


@case(Kind.REFUSED)
def factorization_that_fails(wrap: Wrap, device: torch.device) -> Items:
    """A Cholesky factorization raises for some inputs, and the next call is right again."""
    g, held = wrap(lambda x: torch.linalg.cholesky(x) * 2), []  # stops
    for i in range(14):
        held.append(attempt(g, torch.eye(3, device=device) * (-1 if i % 5 == 4 else i + 1)))
        yield held[-1]
    yield held


@case(Kind.WRONG, replays=None)
def random_state_of_numpy(wrap: Wrap, device: torch.device) -> Items:
    """A rare branch is drawn from a ``numpy.random.RandomState`` of its own."""
    dice = numpy.random.RandomState(1)
    g = wrap(lambda x: x * 2 if dice.rand() < 0.8 else x)  # RT201 wrong
    for i in range(30):
        yield g(full(i + 1, device))
