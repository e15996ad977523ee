"""Operators whose kernels are Python code: what that code reads counts, or runs again at every replay."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import rote
import rote.quant
from rote.testing import compare

WARM = rote.Options().warmup + 1
CALLS = 10
SCALE = 2.0
COUNT = [0]


class Holder:
    """Has a method that is a kernel."""

    scale = 2.0

    def times(self, x: torch.Tensor) -> torch.Tensor:
        """A kernel."""
        return x * self.scale


def _global(x: torch.Tensor) -> torch.Tensor:
    return x * SCALE


def _environment(x: torch.Tensor) -> torch.Tensor:
    return x * float(os.environ.get("ROTE_TEST_SCALE", "2"))


def _counts(x: torch.Tensor) -> torch.Tensor:
    COUNT[0] += 1
    return x * COUNT[0]


def _closure() -> tuple[Callable[..., Any], Callable[[float], None]]:
    scale = 2.0

    def kernel(x: torch.Tensor) -> torch.Tensor:
        return x * scale

    def change(value: float) -> None:
        nonlocal scale
        scale = value

    return kernel, change


def _wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def kernel(*args: Any) -> Any:
        return function(*args)

    return kernel


def _keyed(x: torch.Tensor, table: dict[str, float]) -> torch.Tensor:
    return x * table["scale"]


TABLE = {"scale": 2.0}
HOLDER = Holder()
HIDDEN, CHANGE = _closure()


@pytest.fixture(scope="module", autouse=True)
def operators() -> Iterator[None]:
    """One operator for each kernel."""
    library = torch.library.Library("rote_kernels", "DEF")
    kernels = {
        "by_global": _global, "by_environment": _environment, "counts": _counts, "by_closure": HIDDEN,
        "by_method": HOLDER.times, "by_partial": functools.partial(_keyed, table=TABLE),
        "wrapped": _wrapped(_global),
    }  # fmt: skip
    for name, kernel in kernels.items():
        library.define(f"{name}(Tensor x) -> Tensor")
        for device in ("CPU", "CUDA"):
            library.impl(name, kernel, device)
    yield
    library._destroy()


def run(name: str, device: Any, change: Callable[[float], Any]) -> rote.Graphed:
    """Calls with a change between, plain and graphed."""
    operator = getattr(torch.ops.rote_kernels, name)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return operator(x + 1) - 1

    g = rote.graph(fn)
    for call in range(CALLS):
        value = 2.0 if call < 6 else 5.0
        change(value)
        x = torch.full((3,), float(call), device=device)
        assert g(x).tolist() == ((x + 1) * value - 1).tolist(), call
    change(2.0)
    return g


def _set_global(value: float) -> None:
    global SCALE
    SCALE = value


def _set_environment(value: float) -> None:
    os.environ["ROTE_TEST_SCALE"] = str(value)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("by_global", _set_global),
        ("wrapped", _set_global),
        ("by_environment", _set_environment),
        ("by_closure", CHANGE),
    ],
)
def test_what_is_under_guard_is_captured(device, name, change):
    g = run(name, device, change)
    assert g.report().replayed >= 6, g.explain()
    assert not any(recording.islands for recording in g.report().recordings)
    os.environ.pop("ROTE_TEST_SCALE", None)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("by_method", lambda value: setattr(HOLDER, "scale", value)),
        ("by_partial", lambda value: TABLE.update(scale=value)),
    ],
)
def test_what_is_not_runs_between_segments(device, name, change):
    g = run(name, device, change)
    assert g.report().replayed == CALLS - WARM, g.explain()
    (recording,) = g.report().recordings
    assert [(island.code, island.operation) for island in recording.islands] == [
        ("RT131", f"rote_kernels::{name}")
    ]


def test_what_a_kernel_of_a_quantized_layer_calls_is_no_kernel(device):
    """It launches by functions with more operands than the operator, of Triton's for instance."""
    source = compile("def kernel(x):\n    return launch(x, 2.0, 1.0)\n", rote.quant.__file__, "exec")
    names = {"launch": lambda x, scale, more: x * scale + more}
    exec(source, names)
    library = torch.library.Library("rote_launched", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    for kind in ("CPU", "CUDA"):
        library.impl("twice", names["kernel"], kind)
    try:
        calls = [(torch.full((3,), float(n), device=device),) for n in range(8)]
        g = compare(lambda x: torch.ops.rote_launched.twice(x + 1) - 1, calls)
        assert g.report().replayed == 8 - WARM and not g.report().recordings[0].islands
    finally:
        library._destroy()


def test_a_counter(device, reason):
    COUNT[0] = 0
    plain = [torch.full((3,), float(n * n), device=device) for n in range(1, CALLS)]
    g = rote.graph(lambda x: torch.ops.rote_kernels.counts(x))
    for n, wanted in enumerate(plain, 1):
        assert g(torch.full((3,), float(n), device=device)).equal(wanted)
    assert g.report().replayed == 0 and "COUNT[0] was" in reason(g, "RT201").message


def test_an_operator_made_by_the_decorator(device):
    @torch.library.custom_op("rote_kernels::made", mutates_args=())
    def made(x: torch.Tensor, n: int) -> torch.Tensor:
        return x.clone() if n == 0 else x * n

    g = compare(lambda x: made(x + 1, 3), [(torch.full((3,), float(n), device=device),) for n in range(8)])
    assert g.report().replayed == 8 - WARM
    assert not g.report().recordings[0].islands
