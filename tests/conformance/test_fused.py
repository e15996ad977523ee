"""Kernels that calculate several operations: the bits of eager before, while and after they are used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.conformance.test_exact_tier import STATEMENTS, entries, interpreted, rows, soon, tier
from tests.runtime.fusion import evaluated
from torch import Tensor, nn

import rote
from rote import Graphed
from rote.runtime.compiling import COMPILERS
from rote.testing import assert_same

pytest.importorskip("hypothesis")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

COMPILE_S = 120
"""The longest that a test waits for a compiler."""


compiled = pytest.mark.usefixtures("_compiler")


def hurry(g: Graphed) -> None:
    """The next replay is followed by whatever there is to do; what is compiled is waited for."""
    COMPILERS.get().wait(COMPILE_S)
    soon(g)


def play(fn: Callable[..., Any], calls: list[tuple[Any, ...]], **options: Any) -> Graphed:
    """Each call compared with eager; from the fourth on there is always time for what is to be done."""
    g = rote.graph(fn, **options)
    for number, args in enumerate(calls):
        if number >= 3:
            hurry(g)
        assert_same(g(*args), fn(*args), f"call {number}")
    return g


def chain(x: Tensor) -> Tensor:
    y = (x * 2 + 1).clamp(min=-3) - x
    z = y @ x
    return torch.where(z > 0, z * 0.5, -z).to(torch.bfloat16).float() + y


@compiled
@pytest.mark.parametrize("keep", [False, True])
def test_kernels_take_the_place_of_operations(device, keep):
    g = play(chain, rows(device, 40), keep=keep)
    found = tier(g)
    assert found is not None and found.used and not found.left and not found.compiling, g.explain()
    assert found.fused is not None and found.fused.launches == 2 and not found.fused.refused
    assert found.fused.operations == 11 and found.after == found.before - 9 + found.shown
    assert "fused: 11 operations into 2 launches of 2 kernels" in g.explain()
    assert g.report().replayed == 38 and g.wait_until_optimized(timeout_s=0)


@compiled
def test_who_measures_can_wait(device):
    g = rote.graph(chain)
    for args in rows(device, 2000):
        if g.wait_until_optimized(timeout_s=COMPILE_S):
            break
        assert_same(g(*args), chain(*args), "result")
    assert g.wait_until_optimized(timeout_s=0)
    found = tier(g)
    assert found is not None and found.fused is not None


def test_a_time_that_is_none():
    g = rote.graph(chain)
    with pytest.raises(rote.MisuseError, match=r"timeout_s=-1 is negative; give 0 to look only"):
        g.wait_until_optimized(timeout_s=-1)
    assert not g.wait_until_optimized(timeout_s=0)  # nothing is recorded
    assert rote.graph(chain, enabled=False).wait_until_optimized(timeout_s=0)


@compiled
def test_equal_parts_are_compiled_once(device):
    def layers(x: Tensor) -> Tensor:
        for scale in (0.5, 0.25, 2.0):
            x = (x @ x) * scale + 1 - scale
        return x

    g = play(layers, rows(device))
    found = tier(g)
    assert found is not None and found.fused is not None
    assert (found.fused.launches, found.fused.distinct) == (3, 1), g.explain()


def norms(x: Tensor) -> Tensor:
    """Layers of a norm, and of projections of it that do not wait for one another."""
    wide = x.repeat(1, 64) + torch.arange(256, device=x.device)
    weights = [torch.linspace(-1, 1, 256 * 256, device=x.device).view(256, 256) * n for n in (1, 2, 3)]
    for _ in range(3):
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        query, gate, value = [normed @ each for each in weights]
        wide = wide + query * torch.sigmoid(gate) + value
    return wide


@compiled
def test_a_norm_is_a_part_of_a_kernel(device, monkeypatch):
    for name in ("HOST_SLICE", "GPU_SLICE"):  # all is proved in one call
        monkeypatch.setattr(f"rote.runtime.fusion.device.{name}", 1 << 40)
    g = play(norms, rows(device, 40))
    found = tier(g)
    assert found is not None and found.used, g.explain()
    if device.type == "cuda":  # one for each norm with what comes before it, and one behind the last layer
        assert found.fused is not None and found.fused.launches == 4, g.explain()


@compiled
def test_what_is_not_proved_runs_alone(device, monkeypatch):
    from rote.runtime.fusion import device as kernels

    monkeypatch.setattr(kernels, "is_equal", lambda one, other: torch.tensor(one.dtype is torch.bool))
    monkeypatch.setattr("rote.runtime.fusion.device._DEVICES", {})
    g = play(chain, rows(device))
    found = tier(g)
    assert found is not None and found.fused is None, g.explain()
    assert "no kernel may calculate any of its operations" in [each.reason for each in found.left]


# ---------------------------------------------------------------------- programs


def own_writes(x: Tensor) -> Tensor:
    total = torch.zeros(4, 4, device=x.device) + x
    for step in range(3):
        total.add_(x * step + 1)
        total[0].mul_(0.5)
        x = total * 2 + x
    return x + total


def written_argument(x: Tensor) -> Tensor:
    y = x * 2 + 1
    x.add_(1)
    return y * x + x * 3


def with_islands(x: Tensor) -> Tensor:
    y = x * 3 + 1
    found = y[y > 0.1]
    return found.sum() * (x - 1) + y * 2


def branching(x: Tensor) -> Tensor:
    y = x * 2 + x
    if x.sum() > 0:
        return y * 3 + 1
    return (y - 1) * (y + 1)


def drawn(x: Tensor) -> Tensor:
    y = x * 2 + 1
    noise = torch.rand_like(x)
    z = y * 3 - 1
    return z + noise * 2 + torch.rand_like(x)


def shared(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2 + 1
    return y, y[0], y.t(), y.t() * 3 + y, x


def broadcast(x: Tensor) -> tuple[Tensor, ...]:
    scale = x.sum(0, keepdim=True) * 0.5 + 1
    rows = x[:, :2] * scale[:, 2:] - 1
    return torch.cat((rows * 2, x[:, 2:] + scale[:, 2:], rows), 1) * 2, scale - 1


def half_precision(x: Tensor) -> Tensor:
    y = x.to(torch.bfloat16)
    return ((y * 1.7 + y) / 3 - y.float()) * y


def in_modes(x: Tensor) -> Tensor:
    with torch.inference_mode():
        y = (x * 2 + 1).clone() - x
    return y.clone() * 3 + 1


PROGRAMS = [
    own_writes,
    written_argument,
    with_islands,
    branching,
    drawn,
    shared,
    broadcast,
    half_precision,
    in_modes,
]


def both(fn: Callable[..., Any], device: torch.device, **options: Any) -> Graphed:
    """Calls with changing values, each from the same random state; what is left in the argument as well."""
    g = rote.graph(fn, keep=True, **options)
    for number, (x,) in enumerate(rows(device, 14)):
        if number >= 3:
            hurry(g)
        if number == 9:
            x[0, 0] = float("inf")
        mine, theirs = x.clone(), x.clone()
        torch.manual_seed(number)
        got = g(mine)
        torch.manual_seed(number)
        expected = fn(theirs)
        assert_same(got, expected, f"call {number}")
        assert_same(mine, theirs, f"argument of call {number}")
    return g


@compiled
@pytest.mark.parametrize("fn", PROGRAMS)
def test_programs(device, fn):
    g = both(fn, device)
    tiers = [each.tier for each in g.report().recordings if each.tier is not None]
    assert any([each.fused is not None for each in tiers]), g.explain()
    assert not [each for found in tiers for each in found.left if "equal" in each.reason], g.explain()


class Residual(nn.Module):
    """Convolutions whose results are normalized by what was learned, and written in place from then on."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(True)
        )
        self.second = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8))
        for norm in (self.first[1], self.second[1]):
            for each in (norm.weight, norm.bias, norm.running_mean):
                nn.init.normal_(each)
            nn.init.uniform_(norm.running_var, 0.1, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        y = self.second(x)
        y += x
        return y.relu_()


@compiled
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_batches_are_normalized_in_a_kernel(device, dtype, channels_last):
    lies = torch.channels_last if channels_last else torch.contiguous_format
    model = Residual().eval().to(device, dtype, memory_format=lies)
    g = rote.graph(model, keep=True)
    with torch.no_grad():
        for number in range(14):
            x = torch.randn(2, 3, 6, 6).to(device, dtype, memory_format=lies)
            if number >= 3:
                hurry(g)
            if number == 10:
                model.first[1].running_mean.add_(1)
                model.second[1].weight.data.mul_(-2)
            if number == 12:
                x[0, 0, 0, 0] = float("nan")
            assert_same(g(x), model(x), f"call {number}")
    found = tier(g)
    assert found is not None, g.explain()
    if found.fused is not None and not found.fused.refused:
        assert (found.before, found.after, found.fused.operations) == (7, 4, 5)
    else:  # a processor that multiplies and adds in two steps
        assert device.type == "cpu" and not (dtype is torch.float32 and has_fma())


def has_fma() -> bool:
    """Whether this processor multiplies and adds in one step."""
    return torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")


def relu_of_all(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    z = y.t()
    y.relu_()
    w = z + 1
    y.add_(w)
    return w, (y @ x) * 2 - 1


def written_where_it_is_read(x: Tensor) -> tuple[Tensor, ...]:
    y = x @ x
    z = y.flip(0) + 1
    y.mul_(3).add_(z)
    return y @ x, y


def written_again(x: Tensor) -> tuple[Tensor, ...]:
    y = x + 1
    y.mul_(2).clamp_(-1, 1)
    z = y - x
    y[0].add_(1)
    return y, z, y.exp_()


def masked_twice(x: Tensor) -> Tensor:
    y = x @ x
    y.masked_fill_(x > 0, 0.5)
    mask = y > 0
    y.masked_fill_(mask, -1.0).neg_()
    return y @ x


def products_and_sums(x: Tensor) -> tuple[Tensor, ...]:
    """What optimizers calculate, one tensor after the other."""
    y = x @ x
    average, spread = torch.lerp(x, y, 0.1), torch.addcmul(x * 0.9, y, y, value=0.1)
    average.lerp_(y, 0.8).mul_(0.5).add_(y, alpha=-0.3)
    step = torch.addcdiv(y, average, spread.abs() + 1, value=-0.01)
    return torch.sub(step, x, alpha=3) @ x, torch.rsub(average, step, alpha=0.5), torch.lerp(x, y, spread)


@compiled
@pytest.mark.parametrize(
    "fn", [products_and_sums, relu_of_all, written_where_it_is_read, written_again, masked_twice]
)
def test_what_was_made_is_written_in_place(device, fn):
    g = both(fn, device)
    tiers = [each.tier for each in g.report().recordings if each.tier is not None]
    assert any([each.fused is not None for each in tiers]), g.explain()
    assert not [each for found in tiers for each in found.left], g.explain()


def test_programs_checked(_evaluated):
    for fn in PROGRAMS:
        both(fn, torch.device("cpu"), verify=1)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("layout", ["rows", "columns", "every other"])
def test_random_programs(_evaluated, layout):
    used = [0, 0]
    device = torch.device("cpu")

    def argument(seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        if layout == "columns":
            return torch.randn(3, 3, generator=generator).t()
        if layout == "every other":
            return torch.randn(3, 6, generator=generator)[:, ::2]
        return torch.randn(3, 3, generator=generator)

    @settings(max_examples=30, database=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(STATEMENTS, min_size=3, max_size=8).map(tuple), st.integers(2, 3), st.booleans())
    def law(program, turns: int, inference: bool) -> None:
        w = torch.linspace(-1, 1, 9, device=device).reshape(3, 3)
        fn = interpreted(program, turns, w)
        g = rote.graph(fn, keep=True)
        with torch.inference_mode(inference):
            for number in range(8):
                x, y = argument(number), argument(10 + number)
                if number >= 3:
                    soon(g)
                if number == 6:
                    w.data.mul_(1.5)
                for args in ((x, y), (x, x)):
                    try:
                        expected = fn(*args)
                    except RuntimeError:  # memory that overlaps cannot be written
                        return
                    assert_same(g(*args), expected, f"call {number}")
        tiers = [each.tier for each in g.report().recordings if each.tier is not None]
        used[0] += 1
        used[1] += any([each.fused is not None for each in tiers])
        told = [each.reason for found in tiers for each in found.left]
        assert not [why for why in told if "Error" in why or "equal" in why]
        g.reset()

    law()
    assert used[1] > 0.3 * used[0], used


def test_recordings_that_go_take_their_kernels_along(_evaluated):
    g = play(chain, rows(torch.device("cpu")))
    assert g.report().bytes_held > 0
    for entry in entries(g):
        for recording in entry.recordings:
            recording.evict("a test took its memory")
    assert g.report().bytes_held == 0
    for number, args in enumerate(rows(torch.device("cpu"))):
        hurry(g)
        assert_same(g(*args), chain(*args), f"call {number}")
    found = tier(g)
    assert found is not None and found.fused is not None


def test_a_wrong_kernel_is_found_by_the_self_check(_evaluated, monkeypatch):
    g = play(chain, rows(torch.device("cpu"), 8), verify=1)
    monkeypatch.setitem(evaluated.FUNCTIONS, "multiply", torch.add)
    (x,) = rows(torch.device("cpu"), 1)[0]
    with pytest.raises(rote.VerificationError, match=r'or its exact tier is wrong, .* numerics="plain" does'):
        g(x)
    assert_same(g(x), chain(x), "the call afterwards")
