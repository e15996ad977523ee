"""What a traced call leaves behind."""

from __future__ import annotations

import contextlib
import gc

import torch

import rote
from rote.runtime.capture.tracer import Tracer
from rote.runtime.program.storages import StorageTable


def test_nothing_of_a_trace_waits_for_the_collector(device):
    def call(x):
        return (x * 2).relu() + 1

    g = rote.graph(call)
    x = torch.ones(3, device=device)
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            g(x)
            assert not [
                found for found in gc.get_objects() if issubclass(type(found), (StorageTable, Tracer))
            ]
    finally:
        gc.enable()
    assert g.report().replayed == 1


def test_nothing_of_a_trace_that_raises_waits_for_the_collector(device):
    def call(x, wrong):
        y = x * 2
        if wrong:
            raise ValueError("asked for")
        return y

    g = rote.graph(call)
    x = torch.ones(3, device=device)
    g(x, False)
    gc.collect()
    gc.disable()
    try:
        with contextlib.suppress(ValueError):
            g(x, True)
        assert not [found for found in gc.get_objects() if issubclass(type(found), (StorageTable, Tracer))]
    finally:
        gc.enable()
