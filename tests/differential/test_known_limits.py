"""Known limits: what does differ. Each is strict: once it holds, the test fails and has to move.

PyTorch and Python do not show a recorder these things, or not at a price a replay could pay.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from typing import Any

import pytest
import torch
from tests.differential.harness import check, drive
from torch import nn


def limit(reason: str) -> Any:
    return pytest.mark.xfail(strict=True, raises=AssertionError, reason=reason)


@limit("an argument is copied as far as its own elements reach: as_strided beyond them finds no memory")
def test_as_strided_beyond_an_argument():
    def scenario(wrap):
        g = wrap(lambda x: torch.as_strided(x, (6,), (1,), 0) * 2)
        yield from drive(g, args=lambda i: (torch.arange(6.0)[2:4],))

    check(scenario)


@limit("autocast keeps the casts of weights until it is left, even stale ones; a recording casts anew")
def test_autocast_keeps_a_stale_weight():
    def scenario(wrap):
        m = nn.Linear(4, 4)
        g = wrap(torch.no_grad()(lambda x: m(x) + m(x + 1)))
        with torch.autocast("cpu", torch.bfloat16):
            yield from drive(g, change=lambda: m.weight.data.mul_(4))

    check(scenario)


@limit("autocast does not reach into kernels that call others, as those of torch.linalg.pinv and bilinear do")
def test_autocast_inside_a_kernel():
    def scenario(wrap):
        def fn(x):
            with torch.autocast("cpu", torch.bfloat16):
                return torch.linalg.pinv(x)

        yield from drive(wrap(fn), args=lambda i: (torch.arange(6.0).reshape(3, 2) + i,))

    check(scenario)


@limit("below a dispatch mode gradients of prod and cumprod with create_graph have other last bits")
def test_last_bits_of_the_gradient_of_a_product():
    def scenario(wrap):
        def fn(x):
            x = x.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(x.prod(-1).sum(), [x], create_graph=True)
            return gradient.detach()

        generator = torch.Generator().manual_seed(0)
        yield from drive(wrap(fn), args=lambda i: (torch.randn(5, 7, generator=generator),))

    check(scenario)


@limit("a parameter's gradients from inside of a call are one sum, to which those from outside are added")
def test_order_of_gradients_from_inside_and_outside():
    def scenario(wrap):
        w = nn.Parameter(torch.ones(1))
        g = wrap(lambda x: x * w + (-1e8 * x.detach()) * w)
        for _ in range(4):
            w.grad = None
            (g(torch.ones(1)) + 1e8 * w).sum().backward()  # eager: (1e8 - 1e8) + 1
            yield w.grad

    check(scenario)


@limit("a package that is installed while the program runs is not noticed by calls that asked for it")
def test_a_package_that_is_installed_meanwhile(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    names = (f"rote_installed_{number}" for number in range(99))

    def scenario(wrap):
        name = next(names)
        g = wrap(lambda x: x if importlib.util.find_spec(name) is None else x * 2)
        yield from drive(g, change=(tmp_path / f"{name}.py").touch)

    check(scenario)


@limit("a frame of rote's lies between a callable and its caller: sys._getframe(1) of the callable is that")
def test_the_frame_of_the_caller():
    def scenario(wrap):
        yield from drive(wrap(lambda x: x * len(sys._getframe(1).f_code.co_name)))

    check(scenario)


@limit("a call that is observed or recorded refers to what it reads: sys.getrefcount counts that")
def test_references_are_counted():
    def scenario(wrap):
        held = [1.0]
        yield from drive(wrap(lambda x: x * held[0] * sys.getrefcount(held)))

    check(scenario)


@limit("where a call is observed or recorded PyTorch parses arguments again: it asks __index__ more often")
def test_numbers_are_asked_of_objects_more_often():
    def scenario(wrap):
        class Count:
            asked = 0

            def __index__(self):
                Count.asked += 1
                return 2

        count = Count()
        yield from drive(wrap(lambda x: torch.zeros(count)))
        yield Count.asked

    check(scenario)


@limit("warnings from PyTorch's C++ are not seen: a filter that makes them errors has no replay raise")
def test_warnings_of_kernels_become_errors():
    def scenario(wrap):
        g = wrap(lambda x: torch.mul(x, 2, out=torch.empty(1)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield from drive(g, change=lambda: warnings.simplefilter("error"))

    check(scenario)


@limit("how many digits a number may have as text is a setting that replays do not ask for")
def test_the_most_digits_of_a_number():
    def fn(x):
        try:
            return x * len(str(10**899))
        except ValueError:
            return x

    def scenario(wrap):
        was = sys.get_int_max_str_digits()
        try:
            yield from drive(wrap(fn), change=lambda: sys.set_int_max_str_digits(700))
        finally:
            sys.set_int_max_str_digits(was)

    check(scenario)
