"""PyTorch's structured log, which tlparse reads, has each recording where somebody keeps that log."""

import json
import logging

import pytest
import torch
from torch._logging import _internal

import rote
from rote.inspect import torch_private


@pytest.fixture
def records(monkeypatch):
    """What is added to the structured log, without PyTorch's handler: that takes itself away."""

    class Handler(logging.Handler):
        root_dir = "a folder"

        def emit(self, record):
            found.append(record)

    found = []
    monkeypatch.setattr(_internal.trace_log, "handlers", [Handler()])
    return found


def test_it_is_not_open_unless_somebody_keeps_it(monkeypatch):
    """PyTorch has a handler of its own there in any case, which would write nothing."""
    monkeypatch.setattr(_internal.trace_log, "handlers", [_internal.LazyTraceHandler(None)])
    assert not torch_private.structured_log_is_open()
    monkeypatch.setattr(_internal.trace_log, "handlers", [logging.NullHandler()])
    assert not torch_private.structured_log_is_open()
    monkeypatch.setattr(_internal.trace_log, "handlers", [_internal.LazyTraceHandler("/tmp")])
    assert torch_private.structured_log_is_open()


def act(x, password):
    return x.relu() + 1


def test_each_recording_is_an_artifact(records):
    g = rote.graph(act)
    for size in (3, 3, 3, 4, 4, 4):
        g(torch.ones(size), "a very long password of many characters")
    assert [each.metadata["artifact"] for each in records] == [
        {"name": "rote_recording", "encoding": "json"}
    ] * 2
    first, second = (json.loads(each.payload) for each in records)
    assert [node["operator"] for node in first["steps"][0]["nodes"]] == ["aten::relu", "aten::add.Tensor"]
    assert first["name"] == "act" and "float32[3]" in first["key"] and "float32[4]" in second["key"]
    assert "a very long" not in records[0].payload + records[1].payload


def test_a_module_that_cannot_be_looked_through_disturbs_no_call(records, caplog):
    class Refusing(torch.nn.Linear):
        def named_modules(self, *args, **kwargs):
            raise RuntimeError("no")

    g = rote.graph(Refusing(2, 2))
    with torch.no_grad():
        for _ in range(4):
            g(torch.ones(1, 2))
    assert g.report().replayed == 2 and records == []
    assert "Refusing: a recording is not in the structured log" in caplog.text
