"""Kernels that a program launches itself: replayed like operations, and never silently otherwise."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Generator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import rote
from rote import Graphed
from rote.runtime.operators import LAUNCHES, LaunchCall
from rote.testing import assert_same

pytest.importorskip("triton")

from . import kernels


def rows(device: torch.device, count: int = 12, tensors: int = 2, size: int = 40) -> list[tuple[Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    return [
        tuple([torch.randn(size, generator=generator).to(device) for _ in range(tensors)])
        for _ in range(count)
    ]


@contextlib.contextmanager
def warned_of() -> Generator[None]:
    """A context as libraries have them, for the device that is used."""
    yield


def improve(g: Graphed) -> None:
    """The next replay is followed by the making of the exact tier."""
    for entry in g._keys.entries.values():
        for recording in entry.recordings:
            if recording.recorded:
                recording.improve_at(0)


def play(fn: Callable[..., Any], calls: list[tuple[Any, ...]], **options: Any) -> Graphed:
    """Each call compared with eager, what it does to its arguments included."""
    g = rote.graph(fn, keep=True, **options)
    for number, args in enumerate(calls):
        plain = [each.clone() if isinstance(each, Tensor) else each for each in args]
        assert_same(g(*args), fn(*plain), f"call {number}")
        assert_same(list(args), plain, f"arguments of call {number}")
    return g


@pytest.mark.parametrize("name", ["added", "activated", "counted"])
def test_kernels_replay(device, name):
    launch = getattr(kernels, name)
    calls = rows(device, tensors=2 if name == "added" else 1)
    g = play(lambda *given: launch(*[each * 2 for each in given]) + 1, calls)
    assert g.report().replayed >= 8, g.explain()


def test_rows_of_another_stride(device):
    def fn(x: Tensor) -> Tensor:
        return kernels.summed((x * 2)[:, ::1][:, :5]) + kernels.summed(x)

    g = play(fn, [(each.reshape(4, 10),) for (each,) in rows(device, tensors=1)])
    assert g.report().replayed >= 8, g.explain()


@pytest.mark.parametrize("kind", ["double", "positive"])
@pytest.mark.parametrize("bias", [False, True])
def test_words_and_absent_tensors(device, kind, bias):
    def fn(x: Tensor, y: Tensor) -> Tensor:
        return kernels.activated(x + y, kind, y if bias else None)

    assert play(fn, rows(device)).report().replayed >= 8


def test_arguments_are_written(device):
    def fn(x: Tensor, y: Tensor) -> Tensor:
        kernels.add_in_place(x, y)
        kernels.add_in_place(x, y)  # which is no repetition of the first one
        return x * 2

    g = play(fn, rows(device))
    assert g.report().replayed >= 8, g.explain()


def test_a_view_is_written(device):
    def fn(x: Tensor, y: Tensor) -> Tensor:
        table = torch.cat([x, y])
        kernels.add_in_place(table[10:30], y)
        return table * x.sum()

    assert play(fn, rows(device)).report().replayed >= 8


def test_state_of_a_module_is_written(device):
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.total = nn.Buffer(torch.zeros(40, device=device))
            self.scale = nn.Parameter(torch.ones(40, device=device))

        def forward(self, x: Tensor) -> Tensor:
            kernels.add_in_place(self.total, x)
            return kernels.added(self.scale.detach(), self.total)

    graphed, plain = Counting(), Counting()
    g = rote.graph(graphed, keep=True)
    for number, (x,) in enumerate(rows(device, tensors=1)):
        if number == 7:
            with torch.no_grad():
                graphed.scale.mul_(3), plain.scale.mul_(3)
        assert_same(g(x), plain(x), f"call {number}")
        assert_same(graphed.total, plain.total, f"state after call {number}")
    assert g.report().replayed >= 8, g.explain()


@pytest.mark.parametrize("name", ["tuned", "fitted"])
def test_kernels_that_are_chosen(device, name):
    kernel = getattr(kernels, name)

    def fn(x: Tensor) -> Tensor:
        x = x + 1
        out = torch.empty_like(x)
        kernel[kernels.blocks(x.numel()) if name == "tuned" else (1,)](x, out, x.numel())
        return out - 1

    g = play(fn, rows(device, tensors=1))
    assert g.report().replayed >= 8, g.explain()
    play(fn, rows(device, tensors=1, size=77))


class Layer(nn.Module):
    """A layer whose forward and backward launch kernels."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(40, device=device))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return kernels.Added.apply(x * self.weight, self.weight.sin(), 0.5) * y


def test_gradients(device):
    graphed, plain = Layer(device), Layer(device)
    g = rote.graph(graphed, keep=True)
    for number, (x, y) in enumerate(rows(device)):
        for layer, call in ((graphed, g), (plain, plain)):
            layer.weight.grad = None
            call(x, y).sum().backward()
        assert_same(graphed.weight.grad, plain.weight.grad, f"gradient after call {number}")
    assert g.report().replayed >= 8, g.explain()
    assert g.report().backwards_replayed >= 8, g.explain()


def test_a_training_step(device):
    graphed, plain = Layer(device), Layer(device)

    def step(layer: Layer, x: Tensor, y: Tensor, optimizer: torch.optim.Optimizer) -> Tensor:
        optimizer.zero_grad()
        loss = layer(x, y).square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    optimizers = [torch.optim.SGD(each.parameters(), lr=0.01) for each in (graphed, plain)]
    g = rote.graph(lambda x, y: step(graphed, x, y, optimizers[0]), keep=True)
    for number, (x, y) in enumerate(rows(device)):
        assert_same(g(x, y), step(plain, x, y, optimizers[1]), f"call {number}")
        assert_same(graphed.weight, plain.weight, f"weight after call {number}")
    assert g.report().replayed >= 8, g.explain()


def test_numbers_are_conditions(device):
    def fn(x: Tensor, y: Tensor, scale: float, size: int) -> Tensor:
        return kernels.added(x[:size], y[:size], scale * 2)

    scales = [0.5, 0.25, -1.0, 0.0, 3e4]
    calls = [
        (x, y, scales[n % 5] if n > 5 else 0.5, (40, 17)[n > 20 and n % 2])
        for n, (x, y) in enumerate(rows(device, 48))
    ]
    assert play(fn, calls).report().replayed >= 8


def test_another_kernel_under_the_name(device):
    state = {"launch": kernels.add_in_place}

    def fn(x: Tensor, y: Tensor) -> Tensor:
        x = x.clone()
        state["launch"](x, y)
        return x

    g = rote.graph(fn, keep=True)
    for number, (x, y) in enumerate(rows(device)):
        if number == 6:
            state["launch"] = lambda x, y: kernels.add_in_place(x, y * 2)
        assert_same(g(x, y), fn(x, y), f"call {number}")
    assert g.report().replayed >= 6


def test_the_grid_reads_state(device):
    state = {"blocks": 3}

    def fn(x: Tensor, y: Tensor) -> Tensor:
        out = torch.zeros_like(x)
        kernels.add[lambda meta: (state["blocks"],)](x, y, out, x.numel(), 1.0, block=16)
        return out

    g = rote.graph(fn, keep=True)
    for number, (x, y) in enumerate(rows(device, 16)):
        state["blocks"] = 3 if number < 6 else number % 3 + 1
        assert_same(g(x, y), fn(x, y), f"call {number}")
    assert g.report().replayed >= 4, g.explain()


def test_a_hook_runs_at_each_launch(device):
    def fn(x: Tensor) -> Tensor:
        x = x + 1
        kernels.hooked[(3,)](x, x.numel(), block=16)
        return x

    kernels.HOOKS.clear()
    g = play(fn, rows(device, tensors=1))
    assert len(kernels.HOOKS) == 24
    assert g.report().replayed == 0
    assert "hooked is launched in a way that is not understood: a hook runs at each launch" in g.explain()


def test_a_global_of_a_kernel_changes(device, monkeypatch):
    """Triton refuses to launch a kernel whose globals are others than those that it was compiled with."""

    def fn(x: Tensor) -> Tensor:
        x = x + 1
        kernels.multiply[(3,)](x, x.numel(), block=16)
        return x

    if device.type == "cpu":  # where nothing is compiled there is no such table
        table = {("FACTOR", 0): (kernels.FACTOR, vars(kernels))}
        monkeypatch.setattr(kernels.multiply, "used_global_vals", table, raising=False)
    g = play(fn, rows(device, tensors=1))
    replayed = g.report().replayed
    assert replayed >= 8
    monkeypatch.setattr(kernels, "FACTOR", type(kernels.FACTOR)(5))
    (x,) = rows(device, 1, tensors=1)[0]
    outcomes = []
    for call in (fn, g):
        try:
            outcomes.append(call(x).tolist())
        except RuntimeError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]
    assert g.report().replayed == replayed


def test_what_is_no_argument_of_a_kernel(device):
    """Triton says what is wrong, as it does in a plain call."""

    def fn(x: Tensor, y: Tensor) -> Tensor:
        kernels.add_into[(3,)](x, y, block=16)
        return x

    x, y = rows(device, 1)[0]
    g = rote.graph(fn)
    for _ in range(3):
        for call in (fn, g):
            with pytest.raises(TypeError, match="missing"):
                call(x, y)


def test_in_a_context_of_the_standard_library(device):
    """Code that a call runs is followed, and rote runs some of it as well, around a launch."""

    def fn(x: Tensor, y: Tensor) -> Tensor:
        with contextlib.nullcontext(), warned_of():
            return kernels.added(x, y)

    assert play(fn, rows(device)).report().replayed >= 8


def test_what_triton_compiles_anew_is_another_launch(device):
    """To which of its arguments a kernel stores may depend on all that it is compiled for."""

    def launch(n: int, scale: float = 2.0, dtype: torch.dtype = torch.float32, block: int = 16) -> Any:
        x, y, out = (torch.ones(64, device=device, dtype=dtype) for _ in range(3))
        named = {"grid": (4,), "warmup": False, "block": block}
        call = LaunchCall(type(kernels.add).run, kernels.add, (x, y, out, n, scale), named)
        return LAUNCHES.of(call.chosen())[0]

    first = launch(33)
    assert launch(35, 3.0) is first
    others = [launch(1), launch(32), launch(33, 1), launch(33, dtype=torch.float16), launch(33, block=32)]
    assert len({id(each) for each in (first, *others)}) == 6


def test_inside_an_operator(device):
    with torch.library._scoped_library("rote_tests", "FRAGMENT") as library:
        library.define("kernel(Tensor x, Tensor y) -> Tensor")
        library.impl("kernel", kernels.added, "CompositeExplicitAutograd")
        g = play(lambda x, y: torch.ops.rote_tests.kernel(x + 1, y) * 2, rows(device))
    assert g.report().replayed >= 8, g.explain()


def test_inside_an_operator_of_triton(device):
    """``torch.library.triton_op`` says to PyTorch what it is made of."""
    if device.type == "cpu":
        pytest.skip("PyTorch wraps compiled kernels only")

    def doubled(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        launch = torch.library.wrap_triton(kernels.activate)
        launch[(3,)](x, out, x.numel(), "double", None, block=16)
        return out

    doubled.__annotations__ = {"x": Tensor, "return": Tensor}
    operator = torch.library.triton_op("rote_kernels::doubled", doubled, mutates_args={})
    g = play(lambda x: operator(x + 1) * 3, rows(device, tensors=1))
    assert g.report().replayed >= 8, g.explain()


def test_the_exact_tier(device):
    """The exact tier runs a launch like an operation, between what it shortens."""

    def fn(x: Tensor, y: Tensor) -> Tensor:
        for n in range(3):
            times = torch.arange(40, device=x.device).float() * 0.5
            x = kernels.added(x * times, y.sin() * times, 0.5)
            kernels.add_in_place(x, times + n)
        return x.relu() + 1

    g = rote.graph(fn, keep=True)
    for number, (x, y) in enumerate(rows(device, 24)):
        if number in (4, 10):
            improve(g)
        assert_same(g(x, y), fn(x, y), f"call {number}")
    assert g.report().replayed >= 16, g.explain()
    (recording,) = g.report().recordings
    assert recording.tier is not None
    assert recording.tier.after < recording.tier.before


OPERATIONS: dict[str, Callable[[list[Tensor], int, int], Tensor | None]] = {
    "product": lambda pool, a, b: pool[a] * pool[b],
    "added": lambda pool, a, b: kernels.added(pool[a], pool[b], 0.5),
    "add_in_place": lambda pool, a, b: kernels.add_in_place(pool[a], pool[b]),
    "into_a_view": lambda pool, a, b: kernels.add_in_place(pool[a][7:20], pool[b]),
    "activated": lambda pool, a, b: kernels.activated(pool[a], "double", pool[b]),
    "counted": lambda pool, a, b: kernels.counted(pool[a]).expand(40) + pool[b],
    "add_": lambda pool, a, b: pool[a].add_(pool[b]),
    "flipped": lambda pool, a, b: pool[a].flip(0),
    "view": lambda pool, a, b: pool[a].view(5, 8).view(40),
}
"""Operations on two members of a pool of tensors; what they give joins the pool."""


@pytest.mark.parametrize("seed", range(24))
def test_random_programs(device, seed):
    """Kernels and operations of PyTorch in any order, on arguments, on state and on what they give."""
    chosen = random.Random(seed)
    program = [
        (chosen.choice([*OPERATIONS]), chosen.randrange(100), chosen.randrange(100))
        for _ in range(chosen.randrange(3, 12))
    ]

    def run(state: Tensor, *given: Tensor) -> list[Tensor]:
        pool = [state, *given]
        for name, a, b in program:
            made = OPERATIONS[name](pool, a % len(pool), b % len(pool))
            pool += [made] if made is not None else []
        return [each for each in pool[3:]] + [state.clone()]

    graphed, plain = (torch.ones(40, device=device) for _ in range(2))
    g = rote.graph(lambda *given: run(graphed, *given), keep=True)
    for number, given in enumerate(rows(device, 14)):
        if number in (5, 9):
            improve(g)
        graphed.clamp_(-8, 8), plain.clamp_(-8, 8)
        copies = [each.clone() for each in given]
        assert_same(g(*given), run(plain, *copies), f"call {number}")
        assert_same([graphed, *given], [plain, *copies], f"what call {number} leaves")
    assert g.report().replayed >= 8, g.explain()
