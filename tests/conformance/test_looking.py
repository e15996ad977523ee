"""To look at a tensor of a user's class is not to use it: its ``__torch_function__`` is the call's alone."""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import rote

CALLS = 10


def _counting():
    class Counting(torch.Tensor):
        asked: ClassVar[list[str]] = []

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.asked.append(func.__name__)
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))

    return Counting


def weight_of_a_function(kind, device):
    weight = torch.ones(4, device=device).as_subclass(kind)
    return lambda x: F.layer_norm(x, (4,), weight)


def operand(kind, device):
    weight = torch.ones(4, device=device).as_subclass(kind)
    return lambda x: (x * weight).sum()


def made_inside(kind, device):
    return lambda x: x.as_subclass(kind) + 1


def kept(kind, device):
    held = {}

    def fn(x):
        held["x"] = x.as_subclass(kind)
        return x + 1

    return fn


def in_a_module(kind, device):
    module = nn.Linear(4, 4, device=device)
    module.weight_of_all = torch.ones(4, device=device).as_subclass(kind)
    return lambda x: module(x) * module.weight_of_all


def gradient(kind, device):
    weight = torch.ones(4, device=device).as_subclass(kind).requires_grad_()

    def fn(x):
        weight.grad = None
        (x * weight).sum().backward()
        return x + 1

    return fn


def returned(kind, device):
    weight = torch.ones(4, device=device).as_subclass(kind)
    return lambda x: (x + 1, weight)


def in_a_list(kind, device):
    weights = [torch.ones(4, device=device).as_subclass(kind) for _ in range(3)]
    return lambda x: torch.stack([x, *weights])


def written(kind, device):
    weight = torch.ones(4, device=device).as_subclass(kind)

    def fn(x):
        weight.add_(x)
        return x * 2

    return fn


CASES = [
    *(weight_of_a_function, operand, made_inside, kept, in_a_module),
    *(gradient, returned, in_a_list, written),
]


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_it_is_asked_what_a_plain_call_asks(device, make):
    logs = []
    for wrap in (lambda function: function, rote.graph):
        kind = _counting()
        call = wrap(make(kind, device))
        log = []
        for number in range(CALLS):
            x = torch.arange(4.0, device=device) + number
            kind.asked.clear()
            call(x)
            log.append(list(kind.asked))
        logs.append(log)
    assert logs[0] == logs[1]


def _reads(x):
    return x * 2


def _writes(x):
    x.add_(1)
    return x * 2


def _hands_back(x):
    return x, x[1:]


def _asks(x):
    return x + x.shape[0] if x.dtype is torch.float32 else x


def _reads_a_number(x):
    return x * 2 if x.sum() > 5 else x


@pytest.mark.parametrize("options", [{}, {"verify": 3}], ids=str)
@pytest.mark.parametrize("fn", [_reads, _writes, _hands_back, _asks, _reads_a_number])
@pytest.mark.parametrize("tracks", [False, True])
def test_of_arguments(device, fn, options, tracks):
    logs = []
    for wrap in (lambda function: function, lambda function: rote.graph(function, **options)):
        kind = _counting()
        call, log, kept = wrap(fn), [], []
        for number in range(CALLS):
            x = (torch.arange(4.0, device=device) + number).as_subclass(kind)
            x = x.requires_grad_() if tracks and fn is not _writes else x
            kind.asked.clear()
            kept.append(call(x))
            log.append(list(kind.asked))
        logs.append(log)
    assert logs[0] == logs[1]


def test_it_is_asked_for_nothing_that_it_does_not_know(device):
    """A class that spoils all that it is asked for, but for the call's own operation."""

    class Spoiled(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            assert func is F.layer_norm, func
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))

    weight = torch.ones(4, device=device).as_subclass(Spoiled)
    g = rote.graph(lambda x: F.layer_norm(x, (4,), weight))
    for number in range(CALLS):
        x = torch.arange(4.0, device=device) * number
        assert torch.equal(g(x), F.layer_norm(x, (4,), weight))
    assert g.report().replayed >= CALLS - 4
