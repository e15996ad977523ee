"""What it brings to read words of memory, use by use: a guard with all of them, and with one left out.

A use stays in rote where it takes more than 3 % off the host time of a call of one of these subjects.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from examples.pi0_policy import Tabletop, build_policy, noise_sequence
from transformers import LlamaConfig, LlamaModel

import rote
from rote.runtime.arguments import switches
from rote.runtime.conditions import dicts, quick
from rote.runtime.fingerprint import held

from .common import Call, Outcome, Settings, describe, time_loops
from .guards import Model
from .overhead import WIDTH

NEEDS_GPU = False
WARM = 16
"""Calls after which nothing is sorted any more."""

Use = tuple[Any, str, Callable[..., Any]]
"""Where it is asked whether something can be read, and an answer that says no."""

USES: Mapping[str, tuple[Use, ...]] = {
    "tensors": ((quick, "find_layout", lambda: None),),
    "versions of dicts": ((dicts, "find_version", lambda: None),),
    "empty containers": ((dicts, "find_lengths", dict),),
    "cells": ((held.Held, "take_cell", lambda *_: False),),
    "attributes of functions": ((held.Held, "take_attribute", lambda *_: False),),
    "classes of objects": (
        (held.Held, "take_kind", lambda *_: False),
        (held.Held, "take_table", lambda *_: False),
    ),
    "lists": ((held.Held, "take_length", lambda *_: False), (held.Held, "take_member", lambda *_: False)),
    "switches": ((switches.Switches, "readable", lambda: False),),
}


@contextmanager
def without(use: str) -> Generator[None]:
    """Guards that are made here do without a use."""
    patches = [patch.object(*each) for each in USES.get(use, ())]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()


def subjects(device: torch.device) -> dict[str, Callable[[], tuple[Any, tuple[Any, ...], dict[str, Any]]]]:
    """Makes of each subject the callable and its arguments."""

    def numbers(extra: int) -> Any:
        return Model(device, extra), (torch.randn(1, WIDTH, device=device),), {}

    def llama() -> Any:
        sizes = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4, "vocab_size": 500}
        heads = {"num_attention_heads": 4, "num_key_value_heads": 4}
        model = LlamaModel(LlamaConfig(**sizes, **heads)).to(device).eval()
        return model, (torch.arange(16, device=device)[None],), {"use_cache": False}

    def policy() -> Any:
        made = build_policy("small", device, torch.float32)
        (noise,) = noise_sequence(made, 1, 0)
        return made.sample_actions, (), {**Tabletop(made, 1, 0).observe(), "noise": noise}

    def listed() -> Any:
        values = [torch.ones(1, device=device) for _ in range(100)]
        return lambda x: x + torch.cat(values).sum(), (torch.ones(1, device=device),), {}

    return {
        "4 x (Linear, ReLU)": lambda: numbers(0),
        "the same and 100 numbers": lambda: numbers(100),
        "the same and 1000 numbers": lambda: numbers(1000),
        "100 tensors in a list": listed,
        "Llama, 4 layers": llama,
        "PI0, small": policy,
    }


@torch.no_grad()
def run(settings: Settings) -> Outcome:
    """Host time of a call with all uses, and without one of them."""
    out = Outcome()
    brings: dict[str, dict[str, float]] = {use: {} for use in USES}
    waits: dict[str, dict[str, float]] = {use: {} for use in USES}
    for subject, make in subjects(settings.device).items():
        function, args, kwargs = make()
        wanted = function(*args, **kwargs)
        ways: dict[str, Call] = {}
        made: list[Any] = []
        for use in ("all", *USES):
            with without(use):
                graphed = rote.graph(function, keep=True)
                for _ in range(WARM):
                    got = graphed(*args, **kwargs)
            out.checks[f"{subject}: {use}: replayed"] = graphed.report().replayed > 0
            same = [torch.equal(*pair) for pair in zip(_tensors(wanted), _tensors(got), strict=True)]
            out.checks[f"{subject}: {use}: bitwise equal to eager"] = all(same)
            ways[use] = partial(graphed, *args, **kwargs)
            made.append(graphed)
        measured = time_loops(ways, settings, rounds=40, calls=50)
        out.add(subject, measured)
        out.facts[f"{subject}: rote"] = describe(made[0])
        waited = time_loops(ways, settings, rounds=400, calls=1)
        out.add(f"{subject}, waited for", waited)
        for use in USES:
            brings[use][subject] = measured[use]["host_us"] / measured["all"]["host_us"] - 1
            waits[use][subject] = waited[use]["median_us"] / waited["all"]["median_us"] - 1
        for graphed in made:
            graphed.reset()
    out.facts["host time without a use, above that with all, as a share"] = brings
    out.facts["time of a call that is waited for, likewise"] = waits
    return out


def _tensors(value: Any) -> list[torch.Tensor]:
    values = value.values() if isinstance(value, dict) else [value]
    return [each for each in values if isinstance(each, torch.Tensor)]
