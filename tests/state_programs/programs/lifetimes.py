"""Lifetimes: what the plain callable lets go of dies, recorded or not."""

from __future__ import annotations

import gc
import types
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from tests.footguns.case import Wrap, full
from tests.state_programs.program import state
from torch import nn

Items = Iterator[Any]


def alive(refs: list[weakref.ref[Any]]) -> int:
    """How many of them are alive."""
    gc.collect()
    return sum(ref() is not None for ref in refs)


@state("lifetimes")
def layer_swapped_again_and_again(wrap: Wrap, device: torch.device) -> Items:
    """An adapter is swapped every third call: one is alive."""
    m, refs = nn.Module(), []
    g = wrap(lambda x: m.adapter(x))
    for number in range(12):
        if number % 3 == 0:
            m.adapter = nn.Linear(4, 4, device=device).requires_grad_(False)
            refs.append(weakref.ref(m.adapter))
        g(full(number, device))
    yield alive(refs)


@state("lifetimes")
def weight_swapped_again_and_again(wrap: Wrap, device: torch.device) -> Items:
    """A weight is replaced every third call: one is alive."""
    m, refs = nn.Linear(4, 4, device=device).requires_grad_(False), []
    g = wrap(m)
    for number in range(12):
        if number % 3 == 0:
            m.weight = nn.Parameter(torch.full((4, 4), number, device=device).float(), requires_grad=False)
            refs.append(weakref.ref(m.weight))
        yield g(full(number, device))
    yield alive(refs)


@state("lifetimes")
def config_swapped(wrap: Wrap, device: torch.device) -> Items:
    """A config object is replaced: the old one dies."""

    class Config:
        def __init__(self, k: float) -> None:
            self.k = k

    o, refs = types.SimpleNamespace(cfg=Config(1.5)), []
    g = wrap(lambda x: x * o.cfg.k)
    for number in range(12):
        if number % 4 == 0:
            o.cfg = Config(number)
            refs.append(weakref.ref(o.cfg))
        yield g(full(number, device))
    yield alive(refs)


@state("lifetimes")
def object_arguments(wrap: Wrap, device: torch.device) -> Items:
    """Arguments of an own class die with the caller's last reference."""

    class Batch:
        def __init__(self, x: torch.Tensor) -> None:
            self.x = x

    g, refs = wrap(lambda batch: batch.x * 2), []
    for number in range(8):
        batch = Batch(full(number, device))
        refs.append(weakref.ref(batch))
        out = g(batch)
        del batch
        yield out, alive(refs)


@state("lifetimes")
def results_dropped(wrap: Wrap, device: torch.device) -> Items:
    """Results die with the caller's last reference; a finalizer says so."""
    g, dead = wrap(lambda x: x * 2), []
    for number in range(8):
        out = g(full(number, device))
        weakref.finalize(out, dead.append, number)
        del out
        yield sorted(dead)


@state("lifetimes")
def closure_dropped(wrap: Wrap, device: torch.device) -> Items:
    """The callable and what it closes over die with the wrapper."""

    class Held:
        k = 1.5

    def made() -> tuple[Any, Any]:
        held = Held()
        return wrap(lambda x: x * held.k), weakref.ref(held)

    g, ref = made()
    for number in range(5):
        yield g(full(number, device))
    if hasattr(g, "reset"):
        g.reset()
    del g
    yield alive([ref])
