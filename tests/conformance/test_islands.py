"""Segments, islands, and the tree that the host's observations make of a recording."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch import nn

import rote
from rote.testing import assert_same, compare, count_recordings

WARM = rote.Options().warmup + 1


def signs(device, pattern):
    return [(torch.full((3,), float(sign), device=device),) for sign in pattern]


def test_a_branch_on_a_value(device, where):
    def fn(x):
        y = x * 2
        if y.sum() > 0:
            return y + 1
        return y - 1

    g = compare(fn, signs(device, [1, -1] * 8))
    (recording,) = g.report().recordings
    assert (recording.paths, recording.segments) == (2, 3)
    (island,) = recording.islands
    assert (island.code, island.where) == ("RT101", where(fn, "if y.sum()"))
    assert island.operation in ("aten::_local_scalar_dense", "aten::is_nonzero")
    assert g.report().replayed >= 16 - 2 * WARM - 2


def test_item_as_a_number(device):
    def fn(x):
        y = x + 1
        return y * y.max().item()

    g = compare(fn, [(torch.full((2,), float(n % 3), device=device),) for n in range(18)])
    assert g.report().recordings[0].paths == 3 and g.report().replayed >= 6


def test_tolist(device):
    def fn(x):
        a, (b, c) = (x * 2).long().view(-1)[:1].tolist()[0], (x * 2).long()[1:3].tolist()
        return x * a + b - c

    g = compare(fn, [(torch.tensor([1.0, 2.0, float(n % 2)], device=device),) for n in range(14)])
    (recording,) = g.report().recordings
    assert {island.code for island in recording.islands} == {"RT102"} and recording.paths == 2


def test_equal_and_allclose(device):
    def fn(x, y):
        if torch.equal(x, y):
            return x * 2
        return torch.allclose(x, y, atol=0.5), x + y

    x = torch.ones(3, device=device)
    g = compare(fn, [(x, x + delta) for delta in (0.0, 0.25, 9.0) * 5])
    assert g.report().replayed >= 4, g.explain()
    assert g.report().recordings[0].paths == 3


READS = {
    "equal": lambda x, y: torch.equal(x, y),
    "allclose": lambda x, y: torch.allclose(x, y),
    "contains": lambda x, y: 3.0 in x,
    "is_nonzero": lambda x, y: torch.is_nonzero((x - y).sum()),
    "bool": lambda x, y: bool((x == y).all()),
    "int": lambda x, y: int((x - y).sum()) > 0,
    "index": lambda x, y: [1, 2, 3, 4][(x - y).abs().sum().clamp(0, 3).long()] > 1,
    "item in a format": lambda x, y: f"{(x - y).sum().item():.0f}" != "0",
    "tolist": lambda x, y: x.tolist() == y.tolist(),
    "iteration": lambda x, y: any(float(a) != float(b) for a, b in zip(x, y, strict=True)),
    "max": lambda x, y: max(x) > min(y),
    "nonzero": lambda x, y: len((x - y).nonzero()) == 0,
}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", READS)
def test_a_read_that_always_said_the_same_until_it_does_not(device, name, mode):
    def fn(x, y):
        return x * 2 if READS[name](x, y) else x * 3

    x = torch.ones(3, device=device)
    same = (x, x.clone())
    calls = [same] * (WARM + 3) + [(x, x + 2), (x + 2, x), same] * (WARM + 3)
    with mode():
        compare(fn, calls)


SHAPED = {
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 0] * 2,
    "masked_select": lambda x: torch.masked_select(x, x > 0).sum(),
    "unique": lambda x: torch.unique(x),
    "unique_counts": lambda x: torch.unique(x, return_counts=True, return_inverse=True),
    "where": lambda x: torch.where(x > 0),
    "repeat_interleave": lambda x: torch.repeat_interleave(x, (x > 0).long() + 1),
    "bincount": lambda x: torch.bincount((x > 0).long()),
    "argwhere": lambda x: torch.argwhere(x > 1),
}


@pytest.mark.parametrize("name", SHAPED)
def test_shapes_that_depend_on_data(device, name):
    fn = SHAPED[name]

    def around(x):
        y = x * 2
        found = fn(y)
        parts = found if isinstance(found, tuple) else (found,)
        return [part + 1 for part in parts], y.sum()

    patterns = ([1.0, -1.0, 2.0, -2.0], [1.0, 1.0, 1.0, -3.0], [-1.0, 2.0, 2.0, -2.0])
    g = compare(around, [(torch.tensor(p, device=device),) for _ in range(6) for p in patterns])
    assert g.report().replayed >= 4, g.explain()
    assert "RT111" in {island.code for island in g.report().recordings[0].islands}


def test_a_store_through_a_mask(device):
    def fn(x):
        y = x * 2
        y[y > 0] = 0.0
        z = x.clone()
        z[x > 1] = torch.tensor([5.0], device=x.device)
        return y, z

    g = compare(fn, [(torch.randn(6, device=device),) for _ in range(10)])
    assert g.report().replayed == 10 - WARM and g.report().recordings[0].paths == 1


def test_a_mask_that_is_always_full(device):
    """The stock policy's: the shape never changes, the values do."""

    def fn(x, mask):
        return (x * 2)[mask].view(-1, 4).sum(0)

    mask = torch.ones(3, 4, dtype=torch.bool, device=device)
    g = compare(fn, [(torch.randn(3, 4, device=device), mask) for _ in range(10)])
    assert g.report().replayed == 10 - WARM and g.report().recordings[0].paths == 1


def test_unseen_values_run_no_operation_of_the_prefix_twice(device):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros((), dtype=torch.long, device=device))

        def forward(self, x):
            self.calls += 1
            x.mul_(2)
            n = int(x.sum().tolist())  # what item() gives is followed
            x.add_(n)
            self.calls += 10
            return torch.rand(2, device=x.device) + n

    ours, theirs = Model(), Model()
    order = [0, 0, 0, 0, 1, 0, 1, 2, 1, 2, 1, 2, 3, 0, 3, 2, 3, 1, 4, 5]
    g = compare(
        ours,
        [(torch.full((2,), float(n), device=device),) for n in order],
        plain=theirs,
        states=(lambda: ours.calls, lambda: theirs.calls),
    )
    assert ours.calls.item() == 11 * len(order)
    assert g.report().recordings[0].paths == 4 and g.report().replayed >= 4


def test_python_side_effects_of_a_known_path_are_the_last_callers(device):
    """Python does not run at a replay; at an unseen value it runs from the start, exactly once."""
    entered = []

    def fn(x):
        entered.append(0) if len(entered) < 0 else None
        return x * 2 if x.sum() > 0 else x * 3

    compare(fn, signs(device, [1, 1, 1, 1, -1, -1, 1, -1]))


def test_several_reads_in_a_row(device):
    def fn(x):
        a = x[0].item()
        b = (x[1] + a).item()
        if a > b:
            return x * a
        c = (x.sum() * b).item()
        return x * b + c

    g = compare(fn, [(torch.tensor([float(n % 2), float(n % 3)], device=device),) for n in range(48)])
    assert g.report().recordings[0].paths == 6 and g.report().replayed > 12


def test_a_loop_whose_length_the_device_decides(device):
    def fn(x):
        steps = 0
        while x.norm() > 1.0:
            x = x / 2
            steps += 1
        return x, steps

    g = compare(fn, [(torch.full((4,), float(2 ** (n % 4)), device=device),) for n in range(32)])
    assert g.report().replayed >= 8 and g.report().recordings[0].paths == 4


def test_reads_of_nan_and_both_zeros(device):
    values = [float("nan"), 0.0, -0.0, float("inf")] * 6
    # More numbers than are followed: each list is a way of its own.
    g = compare(lambda x: x * (x * 1).tolist()[0], [(torch.full((300,), v, device=device),) for v in values])
    assert g.report().recordings[0].paths == 4


def test_one_read_of_nan_and_both_zeros(device):
    values = [float("nan"), 0.0, -0.0, float("inf")] * 6
    g = compare(lambda x: x * (x * 1).tolist()[0], [(torch.full((1,), v, device=device),) for v in values])
    assert g.report().recordings[0].paths == 1 and g.report().replayed >= 16, g.explain()


def test_the_limit_on_paths(device, reason, where, caplog):
    def fn(x):
        y = x * 2
        n = int(y.sum().item())
        return y + n

    g = rote.graph(fn, max_paths=3, keep=True)
    for n in [*range(8), *range(8)]:
        x = torch.full((1,), float(n), device=device)
        assert g(x).item() == 4.0 * n
    found = reason(g, "RT304")
    assert found.message == "4 ways were seen" and found.where == where(fn, "y.sum().item()")
    assert found.remedy == (
        "Return the tensor and read it outside, or keep it on the device; each value needs segments "
        "(max_paths)."
    )
    assert g.report().recordings == () and g.report().replayed == 0
    (record,) = [record for record in caplog.records if record.name == "rote"]
    assert record.levelname == "WARNING"
    assert ".fn runs eagerly for (args[0]: float32[1]): RT304 at " in record.getMessage()


def test_the_limit_holds_for_its_key_alone(device):
    def fn(x):
        return x * int(x.sum().item())

    g = rote.graph(fn, max_paths=2)
    for n in range(9):
        g(torch.full((1,), float(n), device=device))
        g(torch.zeros(2, device=device))
    assert g.report().replayed >= 5 and count_recordings(g) == 1


def test_a_copy_to_the_host(device):
    def fn(x):
        y = (x * 2).cpu()
        z = y + 1
        return z.to(x.device) * x

    g = compare(fn, [(torch.randn(4, device=device),) for _ in range(8)])
    assert g.report().replayed == 8 - WARM


def test_results_on_the_host(device):
    compare(lambda x: ((x * 2).cpu(), x.sum()), [(torch.randn(4, device=device),) for _ in range(8)])


def test_an_empty_branch(device):
    def fn(x):
        return bool((x > 0).all())

    g = compare(fn, signs(device, [1, -1] * 6))
    assert g.report().replayed >= 6


def test_checks_of_values_that_raise(device):
    def fn(x):
        if x.sum() < 0:
            raise ValueError(f"negative: {x.sum().item()}")
        return x * 2

    g = compare(fn, signs(device, [1, 1, 1, 1, -1, 1, -1, -1, 1, 1]))
    assert g.report().replayed >= 4


def test_islands_are_named_in_the_text(device, where):
    def fn(x):
        return x * (x.sum() > 0).item()

    g = compare(fn, signs(device, [1] * 6))
    line = where(fn, ".item()")
    assert f"  island: aten::_local_scalar_dense at {line} (RT101)" in g.explain().splitlines()


MODES = {"": nullcontext, "inference": torch.inference_mode, "no_grad": torch.no_grad}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_modes_that_the_callable_sets_around_an_island(device, mode, dtype):
    """Draws of the host's are islands of a GPU; one of them writes what was made in that mode."""

    def make():
        generator = torch.Generator().manual_seed(3)

        def fn(x):
            torch.set_default_dtype(dtype)
            try:
                with mode():
                    h = torch.zeros(4)
                    h.normal_(generator=generator)
                    h = h * torch.rand(4, generator=generator)
                    return x.sigmoid() * h.to(device)
            finally:
                torch.set_default_dtype(torch.float32)

        return fn

    plain, g = make(), rote.graph(make())
    for n in range(10):
        x = torch.full((4,), float(n), device=device)
        assert_same(g(x), plain(x), "result")
    assert g.report().replayed >= 6, g.explain()
