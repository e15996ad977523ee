"""Lifetimes: of results, arguments, parameters and recordings, and what memory is left."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

from rote.integrations.torch_compile import backend
from rote.testing import assert_pool_empty, assert_same


def storage_of(tensor):
    return weakref.ref(tensor.untyped_storage())


def test_a_result_dies_when_it_is_dropped(way, inputs):
    graphed = way(lambda x: (x + x, x * 3))
    for (x,) in inputs():
        one, other = graphed(x)
        dropped, kept, memory = weakref.ref(one), weakref.ref(other), storage_of(one)
        del one
        assert dropped() is None and memory() is None
        assert kept() is other
    assert way.replays()


def test_a_view_keeps_the_memory_of_a_result(way, inputs):
    graphed = way(lambda x: x + x)
    for (x,) in inputs():
        result = graphed(x)
        memory, view = storage_of(result), result[1:]
        del result
        assert memory() is not None
        assert_same(view, (x + x)[1:])
        del view
        assert memory() is None


def test_an_argument_is_not_kept(way, device):
    graphed = way(lambda x: x * 2)
    known = None
    for number in range(8):
        x = torch.randn(4, device=device)
        graphed(x)
        if number <= way.warm + 1:
            gc.collect()  # what a traced call leaves is gone when the collector looks
        assert known is None or known() is None
        known = storage_of(x)
        del x


def test_memory_does_not_grow(way, device):
    graphed = way(lambda x: (x @ x).sin() @ x)

    def call(count):
        for _ in range(count):
            graphed(torch.ones(64, 64, device=device))

    call(6)
    if device.type == "cuda":
        gc.collect()
        before = torch.cuda.memory_allocated()
        call(40)
        assert torch.cuda.memory_allocated() == before
    held = [report.recordings[0].bytes_held for report in way.reports() if report.recordings]
    call(10)
    assert [report.recordings[0].bytes_held for report in way.reports() if report.recordings] == held


def test_results_outlive_their_callable(way, inputs):
    graphed = way(lambda x: (x + 1, x * 10))
    held = [(x, graphed(x)) for (x,) in inputs()]
    del graphed
    way.forget()
    if way.compiles:
        torch._dynamo.reset()
    gc.collect()
    assert_pool_empty()
    for x, result in held:
        assert_same(result, (x + 1, x * 10))


def test_a_graph_outlives_its_callable(way, device):
    layer = nn.Linear(4, 4, device=device)
    graphed = way(layer)
    for _ in range(6):
        x = torch.randn(2, 4, device=device)
        result = graphed(x)
    del graphed
    way.forget()
    if way.compiles:
        torch._dynamo.reset()
    gc.collect()
    found = torch.autograd.grad(result.sum(), layer.weight)
    assert_same(found, torch.autograd.grad(layer(x).sum(), layer.weight))


def test_parameters_die_with_their_module(way, inputs, device):
    model = nn.Linear(4, 4, device=device)
    graphed = way(model)
    with torch.no_grad():
        for (x,) in inputs():
            graphed(x)
    memory = storage_of(model.weight)
    del model, graphed
    way.forget()
    if way.compiles:
        torch._dynamo.reset()
    gc.collect()
    assert memory() is None


def test_results_are_new_tensors(way, inputs):
    graphed = way(lambda x: x + x)
    held = [graphed(x) for (x,) in inputs()]
    assert len({each.data_ptr() for each in held}) == len(held)
    assert len({id(each) for each in held}) == len(held)


def test_a_reset_frees_what_was_recorded(way, inputs):
    graphed = way(lambda x: x * 2)
    for (x,) in inputs():
        result = graphed(x)
    assert way.recordings() == 1
    if way.compiles:
        torch._dynamo.reset()
        assert backend.graphed() == []
    else:
        graphed.reset()
        assert way.recordings() == 0
    assert_same(result, x * 2)
    gc.collect()
    assert_pool_empty()
    for (x,) in inputs():
        assert_same(graphed(x), x * 2)
    assert way.recordings() == 1


@pytest.mark.parametrize("between", [False, True], ids=["at the end", "between calls"])
def test_collections_do_no_harm(way, inputs, between):
    graphed, held = way(lambda x: (x * 2, x.sum())), []
    for (x,) in inputs():
        held.append((x, graphed(x)))
        if between:
            gc.collect()
    gc.collect()
    for x, result in held:
        assert_same(result, (x * 2, x.sum()))
