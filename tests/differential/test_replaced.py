"""What is replaced or asked for in unusual ways is noticed: code, classes, dicts, functions of PyTorch."""

from __future__ import annotations

import queue
import types
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.differential.harness import check, drive, full
from torch import nn


def test_function_of_torch_replaced():
    def scenario(wrap):
        before = F.relu
        try:
            yield from drive(wrap(lambda x: F.relu(x)), change=lambda: setattr(F, "relu", lambda x: x * 5))
        finally:
            F.relu = before

    check(scenario)


def test_method_of_a_torch_module_replaced():
    def scenario(wrap):
        before = nn.Linear.forward
        m = nn.Linear(4, 4).requires_grad_(False)
        try:
            g = wrap(m)
            yield from drive(g, change=lambda: setattr(nn.Linear, "forward", lambda self, x: x * 5))
        finally:
            nn.Linear.forward = before

    check(scenario)


def test_global_by_computed_name():
    def scenario(wrap):
        names: dict[str, Any] = {"K": 1.0}
        exec("def fn(x): return x * globals()['k'.upper()]", names)
        yield from drive(wrap(names["fn"]), change=lambda: names.__setitem__("K", 5.0))

    check(scenario)


def test_code_swapped():
    def scenario(wrap):
        def helper(x):
            return x * 2

        def swap():
            helper.__code__ = (lambda x: x * 5).__code__

        yield from drive(wrap(lambda x: helper(x)), change=swap)

    check(scenario)


def test_class_swapped():
    def scenario(wrap):
        class Once:
            def f(self, x):
                return x

        class Five:
            def f(self, x):
                return x * 5

        o = Once()
        yield from drive(wrap(lambda x: o.f(x)), change=lambda: setattr(o, "__class__", Five))

    check(scenario)


def test_silent_iterator_by_computed_name():
    def scenario(wrap):
        values: queue.SimpleQueue[float] = queue.SimpleQueue()
        for value in [1.0] * 6 + [5.0] * 10:
            values.put(value)
        held = types.SimpleNamespace(drawn=iter(values.get_nowait, None))
        yield from drive(wrap(lambda x: x * next(getattr(held, "DRAWN".lower()))))

    check(scenario)


def test_other_thread_inside():
    def scenario(wrap):
        buffer = torch.zeros(4)
        with ThreadPoolExecutor(1) as pool:

            def fn(x):
                pool.submit(lambda: buffer.add_(1)).result()
                return x + buffer

            yield from drive(wrap(fn))

    check(scenario)


def test_storage_offset_of_an_argument():
    def scenario(wrap):
        g = wrap(lambda x: x * x.storage_offset())
        yield from drive(g, args=lambda i: (torch.arange(6.0)[2:4],))

    check(scenario)


def test_base_of_an_argument():
    def scenario(wrap):
        yield from drive(wrap(lambda x: x._base * 2), args=lambda i: (torch.arange(6.0)[2:4],))

    check(scenario)


@pytest.mark.parametrize("name", ["_parameters", "__dict__"])
def test_dict_of_an_instance_replaced(name: str):
    def scenario(wrap):
        m = nn.Module()
        m.weight = nn.Parameter(full(1), requires_grad=False)
        m.scale = 1.0

        def change():
            table = {**getattr(m, name), "scale": 5.0}
            setattr(m, name, {**table, "weight": nn.Parameter(full(5), requires_grad=False)})

        yield from drive(wrap(lambda x: x * m.weight * m.scale), change=change)

    check(scenario)
