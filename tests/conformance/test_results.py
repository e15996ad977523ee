"""Operations that return something else than tensors: numbers, settings, lists of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import rote
from rote.testing import compare

WARM = rote.Options().warmup + 1
NAMESPACE = "rote_results"
SETTING = {"flag": True}


@pytest.fixture(scope="module", autouse=True)
def operators() -> Iterator[None]:
    """Operators of a library, with kernels that need no device."""
    library = torch.library.Library(NAMESPACE, "DEF")
    kernels: dict[str, Callable[..., Any]] = {
        "scaled(Tensor x, int k) -> (Tensor, int)": lambda x, k: (x * k, k + 1),
        "counted(Tensor x) -> (Tensor, int)": lambda x: (x * 2, int(x.sum() > 0)),
        "sized(Tensor x) -> (Tensor, SymInt)": lambda x: (x * 2, int(x.sum() > 0)),
        "parted(Tensor x) -> (Tensor[], float)": lambda x: ([x * 2, x * 3], float(x.max())),
        "total(Tensor x) -> SymInt": lambda x: int(x.sum()),
        "sizes(Tensor x) -> int[]": lambda x: [int(x.sum()), 2],
        "flag() -> bool": lambda: SETTING["flag"],
    }
    for schema, kernel in kernels.items():
        library.define(schema)
        library.impl(schema.partition("(")[0], kernel, "CompositeExplicitAutograd")
    yield
    library._destroy()


def signs(device, pattern=(1, 1, 1, -1, 1, -1, 2, -2, 2, 2, -1, -2, 1, 1)):
    return [(torch.full((3,), float(sign), device=device),) for sign in pattern]


def _cast(x: torch.Tensor) -> torch.Tensor:
    to = torch.promote_types(x.dtype, torch.float64 if torch.can_cast(x.dtype, torch.double) else torch.half)
    return (x + 1 if x.sum() > 0 else x).to(to)


def _cast_last(x: torch.Tensor) -> torch.Tensor:
    y = x + 1 if x.sum() > 0 else x
    return y.to(torch.promote_types(x.dtype, torch.float64))


def _scaled(x: torch.Tensor) -> torch.Tensor:
    y, n = torch.ops.rote_results.scaled(x, 2)
    return (y + 1 if y.sum() > 0 else y) * n


def _counted(x: torch.Tensor) -> torch.Tensor:
    y, n = torch.ops.rote_results.counted(x)
    return (y + 1 if y.max() > 1 else y) * (n + 5)


def _sized(x: torch.Tensor) -> torch.Tensor:
    y, n = torch.ops.rote_results.sized(x)
    return (y + 1 if y.max() > 1 else y) * (n + 5)


def _parted(x: torch.Tensor) -> torch.Tensor:
    parts, n = torch.ops.rote_results.parted(x)
    return (parts[0] + 1 if parts[1].max() > 1 else parts[1]) * n


def _total(x: torch.Tensor) -> torch.Tensor:
    return (x + 1 if x.sum() > 0 else x) * torch.ops.rote_results.total(x)


def _sizes(x: torch.Tensor) -> torch.Tensor:
    total, two = torch.ops.rote_results.sizes(x)
    return (x + 1 if x.sum() > 0 else x) * total * two


@pytest.mark.parametrize("fn", [_cast, _cast_last, _scaled, _counted, _sized, _parted, _total, _sizes])
def test_numbers_among_the_results(device, fn):
    g = compare(fn, signs(device))
    assert g.report().replayed >= 4, g.explain()


@pytest.mark.parametrize("fn", [_counted, _sized])
def test_a_number_of_the_data_is_a_host_read(device, fn):
    g = compare(fn, signs(device))
    (recording,) = g.report().recordings
    assert {island.code for island in recording.islands} == {"RT101"}
    assert {f"{NAMESPACE}::counted", f"{NAMESPACE}::sized"} & {
        island.operation for island in recording.islands
    }


def test_numbers_beside_attention(device):
    """The sizes that attention returns beside tensors go into its backward, and are given back."""

    def fn(x):
        q = x.repeat(64).view(1, 2, 4, 24)[..., :16].to(torch.bfloat16).contiguous()
        y = F.scaled_dot_product_attention(q, q, q)
        return y + 1 if y.sum() > 0 else y

    report = compare(fn, signs(device)).report()
    assert report.replayed >= 8
    islands = [island.operation for recording in report.recordings for island in recording.islands]
    assert not any("attention" in each for each in islands)


def test_sizes_beside_tensors_are_captured():
    """On the host no attention returns them, so one is put into the place of another."""
    name = "_scaled_dot_product_fused_attention_overrideable"

    def kernel(q, k, v, bias=None, dropout=0.0, causal=False, mask=False, *, scale=None):
        y, rows = q * 2 + k * v, q.sum(-1)
        seed = torch.zeros((), dtype=torch.int64)
        return y, rows, rows * 0, rows * 0, q.shape[2], k.shape[2], seed, seed.clone(), rows * 0

    def fn(x):
        q = x.repeat(64).view(1, 2, 4, 24)[..., :16].contiguous()
        y, *_, longest, _, _, _, _ = getattr(torch.ops.aten, name)(q, q, q)
        return (y + 1 if y.sum() > 0 else y) * longest

    library = torch.library.Library("aten", "IMPL")
    library.impl(name, kernel, "CPU")
    try:
        report = compare(fn, signs(torch.device("cpu"))).report()
    finally:
        library._destroy()
    assert report.replayed >= 8
    (recording,) = report.recordings
    assert not any("attention" in island.operation for island in recording.islands)


def test_a_setting_behind_an_operator_without_tensors(device):
    def fn(x):
        return x * (2 if torch.ops.rote_results.flag() else 3)

    g = rote.graph(fn)
    try:
        for call, (x,) in enumerate(signs(device)):
            SETTING["flag"] = call != 7
            assert g(x).equal(fn(x))
        assert g.report().replayed >= 8
    finally:
        SETTING["flag"] = True
