"""Inputs: mutated, aliased, of another layout, type, shape or device, and Python values among them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy
import torch
from tests.footguns.case import Kind, Wrap, attempt, case, full, ramp
from torch import nn

Items = Iterator[Any]


@case(Kind.WRONG)
def mutated(wrap: Wrap, device: torch.device) -> Items:
    """An argument is changed in place: the caller's tensor has to change."""
    g = wrap(lambda x: x.mul_(2).sum())
    for i in range(10):
        x = full(i, device)
        yield g(x), x


@case(Kind.WRONG)
def mutated_through_a_view(wrap: Wrap, device: torch.device) -> Items:
    """A row of an argument is filled through a view of it."""

    def fn(x):
        row = x.view(3, 2)[1]
        row.fill_(-1)
        return x.sum(0)

    g = wrap(fn)
    for i in range(10):
        x = ramp(i, device)
        yield g(x), x


@case(Kind.WRONG, replays=None)
def cache_as_argument_mutated(wrap: Wrap, device: torch.device) -> Items:
    """The key-value cache is an argument that is written in place, call after call."""
    cache, position = torch.zeros(12, 4, device=device), torch.zeros(1, dtype=torch.int64, device=device)

    def fn(x, cache, position):
        cache.index_copy_(0, position, x[None])
        position.add_(1)
        return cache.sum(0)

    g = wrap(fn)
    for i in range(12):
        yield g(full(i, device), cache, position), cache, position


@case(Kind.WRONG, replays=None)
def mutated_and_returned(wrap: Wrap, device: torch.device) -> Items:
    """An argument is changed in place and returned; the same tensor is passed again and again."""
    g, x = wrap(lambda x: x.add_(1)), torch.zeros(4, device=device)
    for _ in range(10):
        out = g(x)
        yield out is x, x


@case(Kind.WRONG, replays=None)
def arguments_that_share_memory(wrap: Wrap, device: torch.device) -> Items:
    """One argument is a slice of the other, and the slice is written to."""

    def fn(whole, part):
        part.add_(1)
        return whole * 2

    g = wrap(fn)
    for i in range(12):
        x = ramp(i, device, 6)
        yield g(x, x[2:4] if i % 4 < 2 else ramp(0, device, 2)), x


@case(Kind.WRONG, replays=None)
def arguments_that_overlap(wrap: Wrap, device: torch.device) -> Items:
    """Two windows of one tensor overlap, and the first is written to."""

    def fn(a, b):
        a.mul_(2)
        return b + 1

    g = wrap(fn)
    for i in range(10):
        x = ramp(i, device, 6)
        yield g(x[0:4], x[2:6]), x


@case(Kind.WRONG)
def same_tensor_twice_and_then_not(wrap: Wrap, device: torch.device) -> Items:
    """One tensor is passed in both places, later two different ones."""

    def fn(a, b):
        a.mul_(2)
        return a + b

    g = wrap(fn)
    for i in range(16):
        x, y = full(i, device), full(10 * i, device)
        yield g(x, x if i < 8 else y), x


@case(Kind.WRONG)
def expanded_and_transposed(wrap: Wrap, device: torch.device) -> Items:
    """Arguments of one shape and different strides; the result's strides follow them."""
    layouts = [
        lambda x: x,
        lambda x: x.t().contiguous().t(),
        lambda x: x[:1].expand(3, 3),
        lambda x: torch.cat([x, x], 1)[:, ::2],
    ]
    g = wrap(lambda x: (x * 2, x.stride(0)))
    for i in range(24):
        yield g(layouts[i % 4](ramp(i, device, 3, 3)))


@case(Kind.WRONG)
def misaligned(wrap: Wrap, device: torch.device) -> Items:
    """Slices that start at odd addresses, where wide loads are not allowed; their results are held."""
    base, held = torch.arange(80.0, device=device), []
    g = wrap(lambda x: x * 2 + 1)
    for i in range(10):
        held.append(g(base[i : i + 64]))
        yield held[-1]
    yield held


@case(Kind.WRONG)
def types_in_turn(wrap: Wrap, device: torch.device) -> Items:
    """The same shape in float32, float64 and int64."""
    g = wrap(lambda x: x * 2)
    for i in range(18):
        yield g(full(i + 0.5, device).to([torch.float32, torch.float64, torch.int64][i % 3]))


@case(Kind.WRONG)
def smaller_last_batch(wrap: Wrap, device: torch.device) -> Items:
    """The last batch of every epoch has a single row, which broadcasts into a buffer of four."""
    m = nn.Linear(3, 2).to(device).requires_grad_(False)
    g = wrap(lambda x: m(x).sum(0))
    for i in range(24):
        yield g(ramp(i, device, 1 if i % 6 == 5 else 4, 3))


@case(Kind.REFUSED)
def many_shapes(wrap: Wrap, device: torch.device) -> Items:
    """Fifteen sequence lengths, each seen a few times."""
    g = wrap(lambda x: x.softmax(0))
    for i in range(60):
        yield g(ramp(0, device, 1 + i % 15) / 4)  # RT306


@case(Kind.REFUSED)
def list_of_changing_length(wrap: Wrap, device: torch.device) -> Items:
    """A list of one to three tensors."""
    g = wrap(lambda items: torch.stack(items).sum(0))
    for i in range(18):
        yield g([full(i + n, device) for n in range(1 + i % 3)])


@case(Kind.WRONG)
def python_number(wrap: Wrap, device: torch.device) -> Items:
    """A number among the arguments changes."""
    g = wrap(lambda x, scale=1.0: x * scale)
    for i in range(18):
        yield g(full(i, device), scale=[1.0, 2.0, 0.5][i % 3])


@case(Kind.WRONG)
def equal_numbers_of_different_types(wrap: Wrap, device: torch.device) -> Items:
    """1, 1.0 and True compare equal and give results of different types; so do 0.0 and -0.0."""
    g = wrap(lambda x, n: (x * n, 1 / (x * n)))
    for i in range(20):
        yield g(torch.arange(1, 5, device=device) + i, [1, 1.0, 0.0, -0.0][i % 4])


@case(Kind.WRONG)
def flag_and_string(wrap: Wrap, device: torch.device) -> Items:
    """A flag and a string choose a branch."""

    def fn(x, *, causal=False, reduce="sum"):
        x = x.cumsum(0) if causal else x
        return getattr(x, reduce)()

    g = wrap(fn)
    for i in range(24):
        yield g(full(i, device), causal=i % 2 == 1, reduce="mean" if i % 4 > 1 else "sum")


@case(Kind.WRONG)
def optional_mask(wrap: Wrap, device: torch.device) -> Items:
    """The mask is sometimes a tensor and sometimes None."""
    g = wrap(lambda x, mask=None: x.sum() if mask is None else (x * mask).sum())
    for i in range(16):
        yield g(full(i, device), None if i % 4 < 2 else full(i % 3, device))


@case(Kind.RIGHT)
def order_of_keywords(wrap: Wrap, device: torch.device) -> Items:
    """Keywords in another order, which a callable that takes any may look at."""
    g = wrap(lambda **named: torch.cat(list(named.values())))
    for i in range(12):
        a, b = full(i, device), full(-i, device)
        yield g(a=a, b=b) if i % 2 else g(b=b, a=a)


@case(Kind.WRONG)
def dict_with_another_key(wrap: Wrap, device: torch.device) -> Items:
    """A batch is a dict whose entry has another name now."""
    g = wrap(lambda batch: batch["x"] * 2 if "x" in batch else batch["y"] * 3)
    for i in range(16):
        yield g({"x" if i % 4 < 2 else "y": full(i, device)})


@case(Kind.WRONG)
def moved_inside(wrap: Wrap, device: torch.device) -> Items:
    """The argument is on the CPU and moved to the device by the callable."""
    g, held = wrap(lambda x: (x.to(device) * 2).to("cpu")), []  # RT121 on cuda
    for i in range(10):
        held.append(g(full(i, torch.device("cpu"))))
        yield held[-1]
    yield held


@case(Kind.WRONG)
def pinned_buffer_refilled(wrap: Wrap, device: torch.device) -> Items:
    """One staging buffer is refilled for every call, and its contents are copied inside without waiting."""
    buffer, held = torch.zeros(4), []
    if device.type == "cuda":
        buffer = buffer.pin_memory()
    g = wrap(lambda x: x.to(device, non_blocking=True) + 1)
    for i in range(10):
        buffer.fill_(i)
        held.append(g(buffer))
        yield held[-1]
    yield held


@case(Kind.RIGHT)
def numpy_memory_changed(wrap: Wrap, device: torch.device) -> Items:
    """A numpy array outside, on which the callable builds its tensor, is changed between calls."""
    table = numpy.ones(4, dtype=numpy.float32)
    g = wrap(lambda x: x * torch.from_numpy(table).to(device))
    for i in range(14):
        if i in (5, 9):
            table[:] = i
        yield g(full(i, device))


@case(Kind.RIGHT)
def numpy_argument(wrap: Wrap, device: torch.device) -> Items:
    """A numpy array is an argument, refilled between the calls."""
    array = numpy.ones(4, dtype=numpy.float32)
    g = wrap(lambda x, a: x + torch.as_tensor(a, device=device))
    for i in range(14):
        array[:] = i // 4
        yield g(full(i, device), array)


@case(Kind.WRONG)
def refilled_in_place(wrap: Wrap, device: torch.device) -> Items:
    """The caller's input is always the same tensor with new values; results are held."""
    x, g, held = torch.zeros(4, device=device), wrap(lambda x: x.exp()), []
    for i in range(10):
        x.fill_(i / 4)
        held.append(g(x))
        yield held[-1]
    yield held


@case(Kind.WRONG, replays=False)
def resized_out_argument(wrap: Wrap, device: torch.device) -> Items:
    """The result goes to an empty ``out=`` tensor, which is resized."""
    g = wrap(lambda x, out: torch.add(x, 1, out=out))  # RT504
    for i in range(10):
        out = torch.empty(0, device=device)
        yield attempt(g, full(i, device), out), out


@case(Kind.WRONG, replays=False)
def transposed_in_place(wrap: Wrap, device: torch.device) -> Items:
    """``x.t_()`` changes the strides of the caller's tensor."""
    g = wrap(lambda x: x.t_() * 2)  # RT504
    for i in range(10):
        x = ramp(i, device)
        yield g(x), x


@case(Kind.WRONG, replays=False)
def container_filled(wrap: Wrap, device: torch.device) -> Items:
    """The callable puts its results into a dict and a list that were passed in."""

    def fn(x, table, items):
        table["y"] = x * 2
        items.append(x + 1)
        return x

    g, table, items = wrap(fn), {}, []
    for i in range(10):
        g(full(i, device), table, items)  # RT306
        yield table, items


@case(Kind.WRONG)
def view_or_copy(wrap: Wrap, device: torch.device) -> Items:
    """``reshape`` returns a view of some arguments and a copy of others; the caller writes to the result."""
    g = wrap(lambda x: x.reshape(-1)[:2])
    for i in range(12):
        x = ramp(i, device) if i % 2 else ramp(i, device).t()
        g(x).add_(100)
        yield x


@case(Kind.WRONG)
def module_as_argument(wrap: Wrap, device: torch.device) -> Items:
    """The module is an argument, two of them in turn; a weight of one is replaced."""
    a, b = (nn.Linear(3, 3).to(device).requires_grad_(False) for _ in range(2))
    g = wrap(lambda m, x: m(x))
    for i in range(24):
        if i == 10:
            a.weight = nn.Parameter(a.weight * 2, requires_grad=False)
        yield g(a if i % 4 < 2 else b, ramp(i, device))


@case(Kind.RIGHT)
def parameter_as_argument(wrap: Wrap, device: torch.device) -> Items:
    """A parameter is an argument, two of them in turn; the memory of one is rebound."""
    a, b = (nn.Parameter(torch.randn(3, 3, device=device), requires_grad=False) for _ in range(2))
    g = wrap(lambda w, x: x @ w)
    for i in range(24):
        if i == 10:
            a.data = a.data * 2
        yield g(a if i % 4 < 2 else b, ramp(i, device))


@case(Kind.WRONG)
def slices_and_special_numbers(wrap: Wrap, device: torch.device) -> Items:
    """A slice and a NaN are arguments: NaN is not equal to itself."""
    g = wrap(lambda x, where, fill: x[where].masked_fill(x[where] > 2, fill))
    for i in range(24):
        where = slice(0, 2) if i % 4 < 2 else slice(1, None)
        yield g(ramp(i % 3, device), where, float("nan") if i % 2 else float("inf"))


@case(Kind.WRONG, replays=False)
def function_as_argument(wrap: Wrap, device: torch.device) -> Items:
    """A new lambda is an argument at every call, with another number in its closure now and then."""
    g = wrap(lambda f, x: f(x))
    for i in range(16):
        yield g((lambda scale: lambda x: x * scale)(i // 4), full(i, device))  # RT306


@case(Kind.REFUSED)
def empty_batch(wrap: Wrap, device: torch.device) -> Items:
    """Every third batch is empty."""
    m = nn.Linear(3, 3).to(device).requires_grad_(False)
    g = wrap(lambda x: (m(x), x.sum()))
    for i in range(18):
        yield g(ramp(i, device, 0 if i % 3 == 2 else 2, 3))


@case(Kind.WRONG)
def freed_and_reused(wrap: Wrap, device: torch.device) -> Items:
    """The argument is freed after the call, and another tensor takes its memory; results are held."""
    g, held = wrap(lambda x: x * 2), []
    for i in range(12):
        x = full(i, device, size=1024)
        held.append(g(x))
        del x
        other = full(-1, device, size=1024)
        yield held[-1][:4], other[:4]
    yield [y[:4] for y in held]


@case(Kind.REFUSED)
def window_of_tensors(wrap: Wrap, device: torch.device) -> Items:
    """A list of the last three inputs is the argument: the tensors move through its places."""
    window: list[torch.Tensor] = []
    g = wrap(lambda xs: torch.stack(xs).mean(0))
    for i in range(14):
        window = [*window, full(i, device)][-3:]
        yield g(window)


@case(Kind.WRONG)
def name_in_the_batch(wrap: Wrap, device: torch.device) -> Items:
    """Every batch carries a name of its own, which the callable returns."""
    g = wrap(lambda batch: (batch["x"] * 2, batch["name"]))
    for i in range(14):
        yield g({"x": full(i, device), "name": f"sample {i}"})


@case(Kind.RIGHT)
def eager_part_between_two_graphs(wrap: Wrap, device: torch.device) -> Items:
    """A model is broken at a part that stays eager, whose result is dropped after the second graph."""
    m = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).to(device).requires_grad_(False)
    front, back = wrap(m[0]), wrap(lambda y: m[1](y).tanh())
    for i in range(12):
        y = front(ramp(i, device, 3, 4)).clone()
        y = y + i  # the eager part: new memory, and the last one's may be another's by now
        yield back(y).clone()


@case(Kind.RIGHT)
def static_buffer_replaced(wrap: Wrap, device: torch.device) -> Items:
    """The buffer that a loop fills is replaced by an equal one, as when a larger batch has come and gone."""
    g, buffer = wrap(lambda x: x * 2 + 1), torch.zeros(3, 4, device=device)
    for i in range(16):
        if i in (6, 11):
            buffer = torch.empty_like(buffer)
        buffer.copy_(ramp(i, device, 3, 4))
        yield g(buffer).clone()
