"""Where a scene plays: once with the plain callable, once with the graphed one.

A scene is a function of a :class:`World`. After every call the world writes down everything a caller could
see: the result or the exception, the arguments, parameters, buffers, gradients, optimizer state, plain
attributes, which of the tensors share memory or are one object, and the state of the random generators. Both
runs have to write the same, to the bit.
"""

from __future__ import annotations

import abc
import array
import bisect
import collections
import contextlib
import contextvars
import copy
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import gc
import heapq
import inspect
import itertools
import json
import logging
import math
import operator
import os
import pathlib
import random
import re
import struct
import sys
import threading
import types
import typing
import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, is_dataclass
from typing import Any
from unittest import mock

import numpy
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import rote

from . import upset


class BoomError(Exception):
    """Raised by modules under test."""


@dataclass
class Pair:
    """A result with names."""

    first: Any
    second: Any


Seen = list[tuple[str, Any]]


@dataclass
class World:
    """One run of a scene.

    Attributes:
        device: ``"cpu"`` or ``"cuda"``.
        options: Options of ``rote.graph``; None runs the plain callables.
        mode: Grad mode of the calls.
        cast: Whether the calls run under autocast.
        seen: What was observed, one list of named values for each step.
        graphs: What was graphed.
        reports: What it did until it was reset.
    """

    device: str
    options: dict[str, Any] | None
    mode: Callable[[], Any] = torch.enable_grad
    cast: bool = False
    seen: list[Seen] = field(default_factory=list)
    graphs: list[rote.Graphed] = field(default_factory=list)
    reports: list[rote.Report] = field(default_factory=list)
    graph: Callable[..., Any] | None = None  # instead of ``rote.graph``
    _models: list[nn.Module] = field(default_factory=list)
    _watched: Callable[[], dict[str, Any]] = dict
    _held: list[Any] = field(default_factory=list)
    _marks: int = 0

    # ------------------------------------------------------------------ making things

    def make(self, model: type[nn.Module]) -> nn.Module:
        """The module, on the device, watched from now on."""
        torch.manual_seed(1)
        made = model().to(self.device)
        if hasattr(made, "gen"):
            made.gen = torch.Generator(self.device).manual_seed(2)
        if hasattr(made, "inner"):
            made.inner = self.wrap(lambda v: (v * 2).sin())
        self._models.append(made)
        return made

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The callable under test."""
        if self.graph is not None:
            return self.graph(function)
        if self.options is None:
            return function
        self.graphs.append(rote.graph(function, **self.options))
        return self.graphs[-1]

    def watch(self, state: Callable[[], dict[str, Any]]) -> None:
        """State to look at from now on, as plain values with names."""
        self._watched = state

    def tensor(self, seed: int, rows: int = 3, columns: int = 4) -> torch.Tensor:
        """An input; few different ones, so that paths come again."""
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(rows, columns, generator=generator).to(self.device)

    def row(self, seed: int) -> torch.Tensor:
        """Four numbers."""
        return self.tensor(seed)[0].clone()

    def square(self, seed: int) -> torch.Tensor:
        """A matrix for a layer."""
        return self.tensor(seed, 4)

    def turned(self, seed: int) -> torch.Tensor:
        """An input that is not contiguous."""
        return self.tensor(seed, 4, 3).t()

    def wide(self, seed: int) -> torch.Tensor:
        """An input whose rows are one."""
        return self.tensor(seed, 1).expand(3, 4)

    def leaf(self, seed: int) -> torch.Tensor:
        """An input that requires grad."""
        return self.tensor(seed).requires_grad_()

    def fit(self, value: Any) -> torch.Tensor:
        """The first tensor in a result that can be an input."""
        for _, leaf in leaves("", value):
            if isinstance(leaf, torch.Tensor) and leaf.shape == (3, 4):
                return leaf
        return self.tensor(0)

    # ------------------------------------------------------------------ what a caller does

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call, and look at everything."""
        out: Any = None
        with self.mode(), self._autocast():
            try:
                out = function(*args, **kwargs)
            except Exception as error:
                out = _described(error)
        self.look(result=out, args=args, kwargs=kwargs)
        return out

    def in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call from another thread."""
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(self.call(function, *args)))
        thread.start()
        thread.join()
        return found[0]

    def backward(self, value: Any, **options: Any) -> None:
        """Backward from everything in a result that has a graph."""
        self._differentiate(value, lambda root: root.backward(**options))

    def partial(self, value: Any, model: nn.Module) -> None:
        """The gradients of some parameters only, returned."""
        some = [parameter for parameter in model.parameters() if parameter.requires_grad][:1]
        if some:
            self._differentiate(value, lambda root: torch.autograd.grad(root, some, allow_unused=True))

    def _differentiate(self, value: Any, act: Callable[[torch.Tensor], Any]) -> None:
        roots = [leaf for _, leaf in leaves("", value) if isinstance(leaf, torch.Tensor)]
        # Not from a parameter in the result, or a view of one: it has gradients from inside and from outside.
        roots = [root for root in roots if root.requires_grad and not root.is_leaf and not _is_view(root)]
        found: Any = None
        try:
            if roots:
                found = act(sum((root.float().sum() for root in roots), torch.zeros((), device=self.device)))
        except Exception as raised:
            found = _described(raised)
            for model in self._models:  # how far a failing backward came is left to the order of its nodes
                model.zero_grad()
        self.look(gradients=found, result=value)

    def train(self, model: nn.Module, function: Callable[..., Any], *args: Any) -> None:
        """A step with forward in the callable, everything else outside."""
        model.opt.zero_grad()
        self.backward(self.call(function, *args))
        model.opt.step()

    def hold(self, value: Any) -> None:
        """Keep something; at the end it is looked at again."""
        self._held.append(value)

    def drop(self) -> None:
        """Look at what is held, and let go of it."""
        self.look(held=self._held)
        self._held = []

    def write(self, value: Any) -> None:
        """Change a result in place: it is the caller's own."""
        for _, leaf in leaves("", value):
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
                with contextlib.suppress(RuntimeError), torch.no_grad():
                    leaf.mul_(2)
        self.look(written=value)

    def saved(self, model: nn.Module) -> dict[str, torch.Tensor]:
        """A copy of a module's state."""
        return self.copy(model.state_dict())

    def copy(self, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """A copy of a copy."""
        return {name: tensor.detach().clone() for name, tensor in state.items()}

    def reset(self, function: Any) -> None:
        """Forget the recordings."""
        if self.options is not None:
            self.reports.append(function.report())
            function.reset()

    def upset(self, function: Any, how: Callable[..., None], *args: Any) -> None:
        """Something befalls the recordings."""
        if self.options is not None:
            how(function, *args)

    def close(self) -> None:
        """Look at what is held once more; nothing may be left of the recordings."""
        self.drop()
        for graph in self.graphs:
            self.reset(graph)

    # ------------------------------------------------------------------ looking

    def look(self, **values: Any) -> None:
        """Write down what can be seen."""
        state = {f"m{number}": list(_state(model)) for number, model in enumerate(self._models)}
        everything = list(leaves("", {**values, **state, **self._watched()}))
        seen: Seen = [(name, _token(leaf)) for name, leaf in everything]
        tensors = [(name, leaf) for name, leaf in everything if isinstance(leaf, torch.Tensor)]
        seen.append(("identity", _groups([(name, id(leaf)) for name, leaf in tensors])))
        kept = [(name, leaf.untyped_storage()) for name, leaf in tensors if leaf.numel()]
        seen.append(("memory", _groups([(name, storage._cdata) for name, storage in kept])))
        seen.extend(_random_state(self.device))
        self.seen.append(seen)

    def _autocast(self) -> Any:
        return torch.autocast(self.device, torch.bfloat16) if self.cast else contextlib.nullcontext()


class Doubled(torch.autograd.Function):
    """A function with a backward of its own, and something saved for it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0] * 2 + ctx.saved_tensors[0] * 0


SURROUNDINGS = {
    "torch": torch, "nn": nn, "F": F, "gc": gc, "random": random, "numpy": numpy, "copy": copy,
    "operator": operator,
    **{module.__name__: module for module in (
        abc, array, bisect, collections, contextlib, contextvars, dataclasses, datetime, decimal, enum,
        fractions, functools, heapq, inspect, logging, pathlib, sys, warnings,
        itertools, json, math, os, re, struct, threading, types, typing, weakref,
    )},
    "mock": mock,
    "checkpoint": checkpoint,
    "upset": upset, "BoomError": BoomError, "Pair": Pair, "Doubled": Doubled,
}  # fmt: skip
"""The names a scene may use without importing them."""


def leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a nested value, with names."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(f"{name}.{key}" if name else str(key), item)
    elif isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        for number, item in enumerate(value):
            yield from leaves(f"{name}[{number}]", item)
        yield f"{name} is a", f"{type(value).__name__} of {len(value)}"
    elif is_dataclass(value):
        yield from leaves(name, vars(value))
    else:
        yield name, value


def _state(model: nn.Module) -> Iterator[tuple[str, Any]]:
    for name, parameter in model.named_parameters(remove_duplicate=False):
        yield name, parameter
        yield f"{name}.grad", parameter.grad
    yield from model.named_buffers(remove_duplicate=False)
    for name, value in vars(model).items():
        if isinstance(value, torch.optim.Optimizer):
            yield name, value.state_dict()
        elif isinstance(value, torch.Generator):
            yield name, value.get_state()
        elif not name.startswith("_") and name != "inner":
            yield name, value


def _is_view(tensor: torch.Tensor) -> bool:
    base = tensor._base
    return base is not None and base.is_leaf and base.requires_grad


def _token(leaf: Any) -> Any:
    """A form that equals only what looks the same."""
    if isinstance(leaf, numpy.ndarray):
        return leaf.dtype.str, leaf.tobytes()
    if not isinstance(leaf, torch.Tensor):
        return (type(leaf).__name__, leaf.hex() if isinstance(leaf, float) else leaf)
    about = leaf.dtype, tuple(leaf.shape), leaf.stride(), leaf.requires_grad, _has_graph(leaf)
    plain = leaf.detach().cpu().clone(memory_format=torch.contiguous_format)
    values = plain.reshape(-1).view(torch.uint8).numpy().tobytes()
    return *about, Close.of(values, leaf.dtype) if leaf.is_cuda and leaf.is_floating_point() else values


class Close(bytes):
    """Floats of a GPU, equal within what the order of a sum can change.

    The call that records gives the parameters new nodes to accumulate through; the gradients of several
    pending calls, from before and after it, are then added in another order.
    """

    dtype: torch.dtype

    @classmethod
    def of(cls, values: bytes, dtype: torch.dtype) -> Close:
        """Values of one type."""
        made = cls(values)
        made.dtype = dtype
        return made

    def __eq__(self, other: object) -> bool:
        if bytes.__eq__(self, other) or not isinstance(other, Close) or len(self) != len(other):
            return bytes.__eq__(self, other)
        mine, theirs = (torch.frombuffer(bytearray(values), dtype=self.dtype) for values in (self, other))
        return torch.allclose(mine.double(), theirs.double(), rtol=2e-4, atol=2e-5, equal_nan=True)

    __hash__ = bytes.__hash__


def _has_graph(tensor: torch.Tensor) -> bool | str:
    try:
        return tensor.grad_fn is not None
    except RuntimeError as error:  # a view whose base was changed under another grad mode
        return _described(error)


def _groups(named: list[tuple[str, int]]) -> Any:
    """Names that have one number."""
    found: dict[int, list[str]] = {}
    for name, number in named:
        found.setdefault(number, []).append(name)
    return [names for names in found.values() if len(names) > 1]


def _random_state(device: str) -> Seen:
    states = [("torch's random state", torch.get_rng_state().numpy().tobytes())]
    if device == "cuda":
        states.append(("CUDA's random state", torch.cuda.get_rng_state().numpy().tobytes()))
    states.append(("Python's random state", random.getstate()))
    return states


def _described(error: Exception) -> str:
    """An exception's type and text; the numbers in PyTorch's texts (versions, addresses) are no promise."""
    text = str(error) if isinstance(error, BoomError) else re.sub(r"\d+", "#", str(error))[:40]
    return f"raised {type(error).__name__}: {text}"


def seed_everything() -> None:
    """The same start for both runs."""
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)


__all__ = ["SURROUNDINGS", "BoomError", "Pair", "Seen", "World", "copy", "leaves", "seed_everything"]
