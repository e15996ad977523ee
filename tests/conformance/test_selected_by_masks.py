"""What a mask selects is written back through it: replayed, and as in eager whatever else is done with it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import rote
from rote.runtime.capture.path import Mode
from rote.runtime.capture.tracer import Tracer
from rote.testing import assert_same

CALLS = 10


def shifted(x: Tensor, m: Tensor, y: Tensor) -> None:
    x[m] = x[m] * 2 - y[m]


def own_sum(x: Tensor, m: Tensor, y: Tensor) -> None:
    x[m] += y[m]


def own_product(x: Tensor, m: Tensor, y: Tensor) -> None:
    x[m] *= 2


def other_source(x: Tensor, m: Tensor, y: Tensor) -> None:
    x[m] = y[m]


def named(x: Tensor, m: Tensor, y: Tensor) -> None:
    found = y[m]
    found += 1
    found.mul_(-0.0).neg_()
    x[m] = found


def in_a_loop(x: Tensor, m: Tensor, y: Tensor) -> None:
    for n in range(3):
        m = m & (x.view(*m.shape, -1)[..., 0] < n)
        x[m] = 1 - y[m] / 3


def twice(x: Tensor, m: Tensor, y: Tensor) -> None:
    found = y[m]
    x[m] = found
    x[m] = x[m] - found


def with_a_number(x: Tensor, m: Tensor, y: Tensor) -> None:
    x[m] = x[m] * y.sum() + y[m].abs().clone()


def own_shift(x: Tensor, m: Tensor, y: Tensor) -> None:
    x[1:][m[1:]] = 1.5
    low, half = x[1:], m[1:].clone()
    low[half] = x[:-1][half] * 2  # the source lies in the memory of the target


def a_view(x: Tensor, m: Tensor, y: Tensor) -> None:
    part, half = x[1:], m[1:].clone()
    part[half] = y[1:][half]


def transposed(x: Tensor, m: Tensor, y: Tensor) -> None:
    if x.dim() == m.dim() == 2:
        turned = m.t()
        x.t()[turned] = y.t()[turned]
    else:
        x[m] = y[m]


def compared_twice(x: Tensor, m: Tensor, y: Tensor) -> None:
    high = y.view(*m.shape, -1)[..., 0]
    x[high > 0] = 1 - y[high > 0]
    x[high < 0] += y[high < 0]
    x[~m] = y[~m]


BACK = (
    compared_twice,
    shifted, own_sum, own_product, other_source, named, in_a_loop, twice, with_a_number, own_shift, a_view,
    transposed,
)  # fmt: skip
"""Programs that select by a mask only to write back."""


def changed_between(x: Tensor, m: Tensor, y: Tensor) -> None:
    found = y[m]
    m.logical_not_()
    m.logical_not_()
    x[m] = found


def other_mask(x: Tensor, m: Tensor, y: Tensor) -> None:
    found, same = y[m], m.clone()
    x[same] = found


def source_changed(x: Tensor, m: Tensor, y: Tensor) -> None:
    found = y[m]
    y.add_(1)
    x[m] = found


def swapped(x: Tensor, m: Tensor, y: Tensor) -> None:
    found = x[m]
    x[m] = y[m]
    y[m] = found


def looked_at(x: Tensor, m: Tensor, y: Tensor) -> Any:
    found = y[m]
    x[m] = found
    return found.shape[0], len(found), tuple(found.size()), found.numel()


def looked_at_first(x: Tensor, m: Tensor, y: Tensor) -> Any:
    found = y[m]
    x[m] = found * found.shape[0]
    return None


def returned(x: Tensor, m: Tensor, y: Tensor) -> Any:
    found = y[m] * 2
    x[m] = found
    return found


def returned_view(x: Tensor, m: Tensor, y: Tensor) -> Any:
    found = y[m]
    x[m] = found
    return [found[:1], found.detach(), found.data]


def reduced(x: Tensor, m: Tensor, y: Tensor) -> Any:
    x[m] = x[m] - y[m].mean()
    return y[m].sum()


def read_between(x: Tensor, m: Tensor, y: Tensor) -> Any:
    found = y[m]
    large = bool(y.sum() > 0)
    x[m] = found if large else found * 2
    return large


def branch_keeps(x: Tensor, m: Tensor, y: Tensor) -> Any:
    found = y[m]
    if y.sum() > 0.5:
        return found
    x[m] = found
    return None


def rounded(x: Tensor, m: Tensor, y: Tensor) -> None:
    x[m] = torch.exp(y[m]).sqrt()  # a kernel may give an element other bits in another place


def weighted_by_place(x: Tensor, m: Tensor, y: Tensor) -> None:
    found = y[m]
    x[m] = found * torch.linspace(0, 1, found.shape[0], device=x.device).view(-1, *[1] * (y.dim() - m.dim()))


def joined(x: Tensor, m: Tensor, y: Tensor) -> Any:
    found = y[m]
    x[m] = found
    return torch.cat([found, found])


def written_elsewhere(x: Tensor, m: Tensor, y: Tensor) -> None:
    found = y[m]
    found[:1] = 7.0
    x[m] = found


def in_a_list(x: Tensor, m: Tensor, y: Tensor) -> Any:
    kept = [y[m]]
    x[m] = kept[0]
    return kept


def grows_beside(x: Tensor, m: Tensor, y: Tensor) -> Any:
    target = torch.zeros(2, *x.shape, device=x.device)[0]
    target[m] = y[m]
    wide = x.unsqueeze(-1).expand(*x.shape, 2)[..., 0]
    wide[m] = y[m]
    return target


def overlapping(x: Tensor, m: Tensor, y: Tensor) -> Any:
    flat = torch.zeros(x.numel() + 1, device=x.device)
    strides = [each if n or x.dim() == 1 else max(each - 1, 1) for n, each in enumerate(x.stride())]
    flat.as_strided(x.shape, strides)[m] = y[m]
    return flat


def raises(x: Tensor, m: Tensor, y: Tensor) -> Any:
    try:
        x.double()[m] = y[m]
    except RuntimeError as error:
        return type(error).__name__
    return None


def unseen_look(x: Tensor, m: Tensor, y: Tensor) -> Any:
    found = y[m]
    with torch._C.DisableTorchFunction():
        count = found.shape[0]
    x[m] = found
    return count


def complex_between(x: Tensor, m: Tensor, y: Tensor) -> None:
    x[m] = (y[m] * (1 + 2j)).abs()


def compared(x: Tensor, m: Tensor, y: Tensor) -> Any:
    flags = torch.zeros(m.shape, dtype=torch.bool, device=x.device)
    if m.dim() == y.dim():
        flags[m] = y[m] > 0.25
        flags[m] = ~flags[m]
    return flags


def compared_then(x: Tensor, m: Tensor, y: Tensor) -> None:
    """The operand of a comparison is written between two: as many elements, in other places."""
    high = y.view(*m.shape, -1)[..., 0] * 1
    found = y[high > 0]
    high.copy_(high.flip(0))
    x[high > 0] = found


def made_then(x: Tensor, m: Tensor, y: Tensor) -> None:
    """One of two equal masks is written before it is used."""
    turned = m & True
    found = y[m & True]
    turned.copy_(m.flip(0))
    x[turned] = found


def made_before(x: Tensor, m: Tensor, y: Tensor) -> None:
    """One of two equal masks is written before it selects."""
    turned = m & True
    turned.copy_(m.flip(0))
    x[m & True] = y[turned]
    x[m & True] = y[m & True] + y[turned]


def around_reads(x: Tensor, m: Tensor, y: Tensor) -> Any:
    """Calls that follow a path come to masks before its end and behind it."""
    high = y.view(*m.shape, -1)[..., 0]
    x[high > 0] = y[high > 0] * 2
    ways = [bool(each.nan_to_num(0, 0, 0).sum() > 0) for each in (y, x)]
    if ways[0]:
        x[~m] = y[~m]
    if ways[1]:
        x[m] += 1
    return ways


def compared_views(x: Tensor, m: Tensor, y: Tensor) -> None:
    """One comparison, two parts of it, with as many elements in both."""
    both = torch.stack([m, m.flip(0)]) & True
    found = y[both[0]]
    x[both[1]] = found


def compared_outside(x: Tensor, m: Tensor, y: Tensor) -> None:
    """What is compared is written between the two comparisons, by what a list holds."""
    found = y[~m]
    m ^= torch.tensor([True] * m.shape[-1], device=m.device)
    m ^= True
    x[~m] = y[~m] if found.numel() != y[~m].numel() else found


OTHERWISE = (
    around_reads, compared_then, made_then, made_before, compared_views, compared_outside,
    changed_between, other_mask, source_changed, swapped, looked_at, looked_at_first, returned, returned_view,
    reduced, read_between, branch_keeps, rounded, weighted_by_place, joined, written_elsewhere, in_a_list,
    grows_beside, overlapping, raises, unseen_look, complex_between, compared,
)  # fmt: skip
"""Programs that do something else as well, or not quite that."""

SHAPES = {"elements": ((4, 5), (4, 5)), "rows": ((7, 3), (7,)), "a row": ((9,), (9,))}


def given(call: int, shapes: tuple[Any, Any], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Tensors with infinities, NaN and zeros of both signs; the mask of the last call selects nothing."""
    generator = torch.Generator().manual_seed(call)
    x, y = (torch.randn(shapes[0], generator=generator) for _ in range(2))
    special = torch.tensor([float("nan"), float("inf"), -0.0, 0.0, -float("inf")])
    y.view(-1)[: len(special)] = special[torch.randperm(5, generator=generator)]
    m = torch.rand(shapes[1], generator=generator) < (0.0 if call == CALLS - 1 else 0.6)
    return x.to(device), m.to(device), y.to(device)


def play(program: Callable[..., Any], shapes: tuple[Any, Any], device: torch.device, **modes: Any) -> Any:
    def fn(x: Tensor, m: Tensor, y: Tensor) -> Any:
        return program(x, m, y), x * 1, m.sum()

    g = rote.graph(fn)
    for call in range(CALLS):
        mine, theirs = given(call, shapes, device), given(call, shapes, device)
        assert_same(g(*mine), fn(*theirs), f"result of call {call}")
        assert_same(mine, theirs, f"arguments of call {call}")
    return g


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("program", BACK, ids=lambda each: each.__name__)
def test_what_is_written_back_needs_no_size(device, program, shapes):
    g = play(program, SHAPES[shapes], device)
    report = g.report()
    assert report.replayed == CALLS - 3, g.explain()
    assert len(report.recordings) == 1 and not report.recordings[0].islands, g.explain()


@pytest.mark.parametrize("program", (*BACK, around_reads), ids=lambda each: each.__name__)
def test_a_capture_has_no_values(device, monkeypatch, program):
    """On the host, what is captured has run; it goes on as where it has not."""
    monkeypatch.setattr(Tracer, "_has_values", property(lambda self: self.cursor.mode is Mode.OBSERVE))
    assert play(program, SHAPES["rows"], device).report().replayed >= 2


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("program", OTHERWISE, ids=lambda each: each.__name__)
def test_whatever_else_is_done_is_as_in_eager(device, program, shapes):
    play(program, SHAPES[shapes], device)


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool]
)
@pytest.mark.parametrize("program", [other_source, own_product, own_sum], ids=lambda each: each.__name__)
def test_types(device, program, dtype):
    def fn(x: Tensor, m: Tensor, y: Tensor) -> Any:
        x, y = (each.nan_to_num(0, 3, 3).abs().to(dtype) for each in (x, y))
        try:
            program(x, m, y)
        except RuntimeError:  # bool *= 2
            return None
        return x

    g = rote.graph(fn)
    for call in range(CALLS):
        assert_same(
            g(*given(call, SHAPES["rows"], device)), fn(*given(call, SHAPES["rows"], device)), "result"
        )


def test_grad_modes(device):
    """The source requires grad, and is read where no gradient is asked for: eager has no history of it."""
    weight = torch.randn(6, device=device, requires_grad=True)

    def outside(x: Tensor, m: Tensor) -> Tensor:
        x = x * 1
        with torch.no_grad():
            found = weight[m]
        x[m] = found
        return x

    def inside(x: Tensor, m: Tensor) -> Tensor:
        x = x * 1
        x[m] = weight[m]
        return x

    @torch.no_grad()
    def without(x: Tensor, m: Tensor) -> Tensor:
        x = x * 1
        x[m] = weight[m]
        weight[m] = weight[m] + 1
        return x

    for fn in (outside, inside, without):
        before = weight.detach().clone()
        found: list[list[Any]] = []
        for each in (rote.graph(fn), fn):
            with torch.no_grad():
                weight.copy_(before)
            results: list[Any] = []
            for call in range(CALLS):
                x, m, _ = given(call, ((6,), (6,)), device)
                result = each(x, m)
                results.append((result.detach().clone(), result.requires_grad, weight.detach().clone()))
            found.append(results)
        assert_same(found[0], found[1], fn.__name__)


def test_state_from_outside(device):
    """A mask and a target that others change between calls, an alias of both among them."""

    class Env:
        def __init__(self) -> None:
            self.done = torch.zeros(8, dtype=torch.bool, device=device)
            self.total = torch.zeros(8, device=device)
            self.kept: Any = None

        def step(self, x: Tensor) -> Tensor:
            self.total[self.done] = x[self.done]
            self.done |= x > 1
            return self.total + 0

        def keep(self, x: Tensor) -> None:
            self.kept = x[self.done]
            self.total[self.done] = self.kept

    def run(graphed: bool, name: str) -> list[Any]:
        env, results = Env(), list[Any]()
        step = getattr(env, name)
        step = rote.graph(step) if graphed else step
        for call in range(14):
            if call % 4 == 3:
                env.done[call % 8] ^= True
            if call == 9:
                env.done = torch.ones(8, device=device).bool()
            results.append((step(given(call, ((8,), (8,)), device)[0]), copy.deepcopy(env.__dict__)))
        return results

    for name in ("step", "keep"):
        assert_same(run(True, name), run(False, name), name)


def test_numbers_that_change(device):
    def fn(x: Tensor, m: Tensor, y: Tensor, n: int) -> Tensor:
        scale = n * 0.37
        x[m] *= scale
        y[m] = x[m] + n
        return x + y

    g = rote.graph(fn)
    for call in range(20):
        assert_same(
            g(*given(call, SHAPES["rows"], device), call),
            fn(*given(call, SHAPES["rows"], device), call),
            "result",
        )
    assert g.report().replayed >= 10, g.explain()
