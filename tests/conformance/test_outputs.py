"""Outputs belong to the caller: a value once returned never changes."""

from __future__ import annotations

import gc
from typing import NamedTuple

import pytest
import torch
from tests.hidden import queued
from torch import nn

import rote
from rote.testing import compare, count_recordings

WARM = rote.Options().warmup + 1


def test_held_outputs_never_change(device):
    g = rote.graph(lambda x: x * 2)
    held = [(n, g(torch.full((3,), float(n), device=device))) for n in range(10)]
    for n, out in held:
        assert out.tolist() == [2.0 * n] * 3


def test_views_of_held_outputs_never_change(device):
    g = rote.graph(lambda x: {"all": x * 2, "also": [x + 1]})
    views = []
    for n in range(10):
        out = g(torch.full((4,), float(n), device=device))
        views.append((out["all"][1:3], out["also"][0].view(2, 2)))
        del out
    gc.collect()
    for n, (first, second) in enumerate(views):
        assert first.tolist() == [2.0 * n] * 2 and second.flatten().tolist() == [n + 1.0] * 4


def test_what_the_caller_writes_into_an_output_stays_his(device):
    g = rote.graph(lambda x: x * 2)
    x = torch.ones(2, device=device)
    for _ in range(6):
        out = g(x)
        out.zero_()
        assert g(x).tolist() == [2.0, 2.0] and out.tolist() == [0.0, 0.0]


def test_outputs_survive_reset_and_death(device):
    g = rote.graph(lambda x: x * 2)
    for n in range(5):
        out = g(torch.full((2,), float(n), device=device))
    g.reset()
    assert out.tolist() == [8.0, 8.0]
    del g
    gc.collect()
    assert out.tolist() == [8.0, 8.0]


def test_shared_storages_keep_sharing(device):
    def fn(x):
        y = x * 2
        return y, y[1:], y.view(2, 2), y.t() if y.dim() == 2 else y[::2]

    g = compare(fn, [(torch.randn(4, device=device),) for _ in range(8)])
    for _ in range(2):
        whole, tail, square, even = g(torch.ones(4, device=device))
        whole.fill_(9.0)
        assert all(part.eq(9.0).all() for part in (tail, square, even))
        whole2, *_ = g(torch.ones(4, device=device))
        assert whole2.tolist() == [2.0] * 4


def test_one_tensor_returned_twice(device):
    def fn(x):
        y = x * 2
        return y, [y]

    compare(fn, [(torch.randn(4, device=device),) for _ in range(8)])
    g = rote.graph(fn)
    for _ in range(WARM + 2):
        first, (second,) = g(torch.ones(2, device=device))
        first.zero_()
        assert second.tolist() == [0.0, 0.0]


def test_outputs_with_strides_of_their_own(device):
    def fn(x):
        y = x * 2
        return y.t(), y[:, ::2], y.expand(2, 3, 4), (y + 1).permute(1, 0)[1:]

    g = compare(fn, [(torch.randn(3, 4, device=device),) for _ in range(8)])
    assert g.report().replayed == 8 - WARM


def test_the_input_itself(device):
    g = rote.graph(lambda x, y: (x, y * 2, x))
    for n in range(WARM + 3):
        x, y = torch.full((2,), float(n), device=device), torch.ones(2, device=device)
        first, _, third = g(x, y)
        assert first is x and third is x


def test_the_input_written_and_returned(device):
    g = rote.graph(lambda x: x.mul_(2))
    for n in range(WARM + 3):
        x = torch.full((2,), float(n), device=device)
        assert g(x) is x and x.tolist() == [2.0 * n] * 2


def test_a_view_of_the_input(device):
    g = rote.graph(lambda x: (x[1:], x.t(), x.view(-1)[2:5]))
    for n in range(WARM + 3):
        base = torch.full((4, 3), float(n), device=device)
        x = base[1:]
        row, turned, part = g(x)
        base.fill_(50.0)
        assert row.eq(50).all() and turned.eq(50).all() and part.eq(50).all()
        assert row.shape == (2, 3) and turned.shape == (3, 3) and part.shape == (3,)
    assert g.report().replayed == 3


def test_a_parameter_and_a_view_of_one(device):
    layer = nn.Linear(3, 3).to(device).requires_grad_(False)
    g = rote.graph(lambda x: (layer.weight, layer.weight[0], x * 2))
    for n in range(WARM + 3):
        weight, row, _ = g(torch.ones(2, device=device))
        assert weight is layer.weight
        layer.weight.fill_(float(n))
        assert row.tolist() == [float(n)] * 3


def test_an_external_buffer_written_and_returned(device):
    buffer = torch.zeros(2, device=device)
    g = rote.graph(lambda x: buffer.add_(x))
    for n in range(WARM + 3):
        out = g(torch.ones(2, device=device))
        assert out is buffer and buffer.tolist() == [n + 1.0] * 2


def test_plain_values_among_the_outputs(device):
    compare(
        lambda x: (x * 2, None, 3, "a", 2.5, True, x.shape, x.dtype), [(torch.ones(2, device=device),)] * 6
    )


def test_no_output(device):
    buffer = torch.zeros(2, device=device)

    def fn(x):
        buffer.add_(x)

    g = rote.graph(fn)
    for n in range(6):
        assert g(torch.ones(2, device=device)) is None
        assert buffer.tolist() == [n + 1.0] * 2
    assert g.report().replayed == 6 - WARM


def test_outputs_as_inputs_of_the_next_call(device):
    g, h = rote.graph(lambda x: x * 2 + 1), rote.graph(lambda x: x - 1)
    state, expected = torch.zeros(3, device=device), 0.0
    for _ in range(10):
        state, expected = h(g(state)), expected * 2
        assert state.tolist() == [expected] * 3
    assert g.report().replayed == 10 - WARM


def test_outputs_of_one_recording_survive_the_replays_of_another(device):
    first = rote.graph(lambda x: (x * 2).exp())
    second = rote.graph(lambda x: (x * 3).sin() + 1)
    x = torch.full((256,), 0.5, device=device)
    held = []
    for _ in range(6):
        held.append((first(x), second(x)))
    for a, b in held:
        assert torch.equal(a, (x * 2).exp()) and torch.equal(b, (x * 3).sin() + 1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.int8, torch.bool, torch.complex64])
def test_dtypes(device, dtype):
    def fn(x):
        y = x.to(dtype)
        return y, y.view(-1), y.clone()

    compare(fn, [(torch.randn(2, 3, device=device),) for _ in range(8)])


def test_inference_mode(device):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).to(device)
    g = rote.graph(model)
    with torch.inference_mode():
        for _ in range(WARM + 2):
            x = torch.randn(2, 4, device=device)
            out = g(x)
            assert torch.equal(out, model(x)) and out.is_inference()
    assert g.report().replayed == 2


def test_the_memory_of_a_recording_is_reported(device):
    g = rote.graph(lambda x: (x * 2).exp().sum())
    for _ in range(WARM):
        g(torch.ones(1000, device=device))
    (recording,) = g.report().recordings
    assert recording.bytes_held >= 4000 and recording.operations == 3 and count_recordings(g) == 1


def test_result_that_no_operation_read(device, reason):
    """A tensor from where rote cannot look, handed through: eager, with a reason."""
    tensors = queued()
    g = rote.graph(lambda x: tensors.get_nowait())
    for n in range(6):
        tensors.put(torch.full((3,), float(n), device=device))
        assert g(torch.ones(3, device=device)).tolist() == [float(n)] * 3
    assert "the result read a [3] tensor made outside the call" in reason(g, "RT206").message


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


class Named(Pair):
    """Its instances may have attributes of their own."""


@pytest.mark.parametrize("kind", [tuple, lambda parts: Pair(*parts), lambda parts: Named(*parts)])
def test_tuples_of_the_arguments_returned(device, kind):
    """A tuple has no identity that anybody relies on."""
    g = rote.graph(lambda pair, x: (pair, x + 1))
    for n in range(6):
        given = kind([torch.full((2,), float(n), device=device), torch.ones(2, device=device)])
        pair, result = g(given, torch.full((2,), float(n), device=device))
        assert type(pair) is type(given)
        assert pair[0] is given[0] and pair[1] is given[1]
        assert result.tolist() == [n + 1.0] * 2
    assert g.report().replayed == 6 - WARM
    assert not g.report().reasons


def test_a_list_in_a_tuple_of_the_arguments_returned(device):
    g = rote.graph(lambda pair: pair)
    given = ([torch.ones(2, device=device)], torch.ones(2, device=device))
    for _ in range(6):
        assert g(given)[0] is given[0]
    assert g.report().replayed == 4, g.explain()


def test_a_named_tuple_with_attributes(device):
    """Nothing could tell what they are in the next call."""

    def fn(x):
        made = Named(x + 1, x * 2)
        made.note = "kept"
        return made

    g = rote.graph(fn)
    for _ in range(6):
        assert g(torch.ones(2, device=device)).note == "kept"
    given = fn(torch.ones(2, device=device))
    same = rote.graph(lambda pair: (pair, pair.first + 1))
    for n in range(6):
        given.note = str(n)
        assert same(given)[0].note == str(n)


class Cache:
    """What a model keeps between calls, as the caller holds it."""

    def __init__(self, device):
        self.total = torch.zeros(3, device=device)
        self.scale = 1.0


def test_an_object_that_is_an_argument_is_handed_back(device):
    def fn(x, cache):
        cache.total.add_(x)
        return {"y": cache.total * cache.scale, "cache": cache}, [cache]

    g, caches = rote.graph(fn), [Cache(device), Cache(device)]
    totals = [torch.zeros(3), torch.zeros(3)]
    for n in range(24):
        which = n // 12
        caches[which].scale = 1.0 if n < 18 else 2.0
        totals[which] += n
        found, listed = g(torch.full((3,), float(n), device=device), caches[which])
        assert found["cache"] is listed[0] is caches[which]
        assert found["y"].tolist() == (totals[which] * caches[which].scale).tolist()
    assert g.report().replayed == 24 - 3 * WARM
    assert "RT501" not in {reason.code for reason in g.report().reasons}
    g.reset()


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(
    "ending",
    [
        lambda y: y,
        lambda y: {"a": y + 1, "b": (y, 3)},
        lambda y: y.chunk(2, -1),
        lambda y: (y, y[0]),
        lambda y: (y.t(), bool(y.sum() > 1e9)),
    ],
    ids=["one", "nested", "parts", "row", "read"],
)
def test_inference_mode_that_the_callable_sets(device, outside, inside, ending):
    """Results are inference tensors, or are none, as the callable makes them."""
    net = nn.Linear(4, 4).to(device)
    fn = torch.inference_mode(inside)(lambda x: ending(net(x.clone() if x.is_inference() else x)))
    g = rote.graph(fn)
    for number in range(8):
        with torch.inference_mode(outside):
            x = torch.randn(2, 4, device=device)
            wanted, got = list(tensors_in(fn(x))), list(tensors_in(g(x)))
            for one, other in zip(wanted, got, strict=True):
                assert torch.equal(one, other), f"call {number}"
                assert one.is_inference() == other.is_inference() == inside, f"call {number}"
                assert one.requires_grad == other.requires_grad, f"call {number}"
            del wanted, got, one, other
    if not outside:  # that an argument is one is asked, and what stands in its place is none
        assert g.report().replayed >= 4, g.explain()


def tensors_in(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from tensors_in(part)


def _inside(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return weight[1]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize(
    "view",
    [
        pytest.param(lambda x, weight: weight[1], id="row"),
        pytest.param(lambda x, weight: (x * 2, weight.view(-1), weight.t()), id="several"),
        pytest.param(lambda x, weight: weight[:, ::2], id="strided"),
        pytest.param(_inside, id="inside"),
    ],
)
def test_a_view_of_a_parameter(device, view, mode):
    weight = nn.Parameter(torch.randn(4, 3, device=device))
    g = rote.graph(lambda x: view(x, weight))
    with mode():
        for call in range(8):
            if call == 6:
                weight.data.mul_(2)
            x = torch.full((3,), float(call), device=device)
            ours, theirs = (
                value if isinstance(value, tuple) else (value,) for value in (g(x), view(x, weight))
            )
            for one, other in zip(ours, theirs, strict=True):
                assert torch.equal(one, other) and one.stride() == other.stride()
                assert one.requires_grad == other.requires_grad and one.is_leaf == other.is_leaf
                assert (one._base is weight) == (other._base is weight)
                assert one._is_view() == other._is_view() and one.is_inference() == other.is_inference()
    assert g.report().replayed == 6
    rows = g(torch.ones(3, device=device))
    rows = rows if isinstance(rows, torch.Tensor) else rows[1]
    if rows.grad_fn is not None:
        rows.sum().backward()
        assert weight.grad is not None
