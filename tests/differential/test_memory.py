"""Memory: inputs written to, tensors that share memory, and what comes back as the same object."""

from __future__ import annotations

import contextlib
import gc
import types
import weakref

import pytest
import torch
from tests.differential.harness import BoomError, attempt, check, drive, full
from torch import nn


class Scale:
    def __init__(self, scale: float) -> None:
        self.scale = scale


def test_input_written_before_an_exception():
    def scenario(wrap):
        def fn(x):
            x.add_(1)
            if x.sum() > 40:
                raise BoomError
            return x * 2

        g = wrap(fn)
        for value in [1, 2, 3, 4, 5, 20]:
            x = full(value)
            yield attempt(g, x)
            yield x

    check(scenario)


def test_input_written_before_an_index_error():
    def scenario(wrap):
        def fn(x, index):
            x.add_(1)
            return x[index]

        g = wrap(fn)
        for value in [1, 2, 3, 1, 2, 9]:
            x = full(value)
            yield attempt(g, x, torch.tensor([0, value]))
            yield x

    check(scenario)


def test_input_written_after_an_error_was_caught():
    def scenario(wrap):
        def fn(x, y):
            if x.sum() > 5:
                return x * 2
            with contextlib.suppress(RuntimeError):
                x.view(5)
            y.add_(1)
            return None

        g = wrap(fn)
        for value in [3, 3, 3, 3, 1, 3, 1, 3, 1, 1]:
            y = full(0)
            yield g(full(value), y)
            yield y

    check(scenario)


def test_input_is_a_view_of_state():
    def scenario(wrap):
        buffer = torch.zeros(8)

        def fn(x):
            buffer.add_(1)
            return x * 2

        g = wrap(fn)
        for i in range(6):
            yield g(full(i))
        yield g(buffer[:4])
        yield buffer

    check(scenario)


def test_input_of_the_recorded_call_is_a_view_of_state():
    def scenario(wrap):
        buffer = torch.zeros(8)

        def fn(x):
            buffer.add_(1)
            return x * 2

        g = wrap(fn)
        yield g(full(1))
        for _ in range(4):
            yield g(buffer[:4])
            yield buffer

    check(scenario)


def test_inputs_share_memory_as_different_dtypes():
    def scenario(wrap):
        def fn(floats, ints):
            floats.add_(1)
            return ints.clone()

        g = wrap(fn)
        for value in range(5):
            x = full(value)
            yield g(x, x.view(torch.int32))

    check(scenario)


@pytest.mark.parametrize(
    "change",
    [lambda x: x.t_() * 2, lambda x: x.unsqueeze_(0) * 2, lambda x: x.resize_(3, 2) * 2],
    ids=["t_", "unsqueeze_", "resize_"],
)
def test_input_with_changed_metadata(change):
    def scenario(wrap):
        g = wrap(change)
        for i in range(10):
            x = torch.full((2, 3), float(i))
            yield attempt(g, x)
            yield x

    check(scenario)


def test_out_argument_is_resized():
    def scenario(wrap):
        g = wrap(lambda x, out: torch.add(x, 1, out=out))
        for i in range(10):
            out = torch.empty(0)
            yield g(full(i), out)
            yield out

    check(scenario)


def test_view_of_an_input_as_another_dtype():
    def scenario(wrap):
        g = wrap(lambda x: x.view(torch.float64))
        yield from drive(g, args=lambda i: ((torch.arange(8.0) + i)[2:],))
        g = wrap(lambda x: x.view(1).view(torch.int16))
        yield from drive(g, args=lambda i: (torch.tensor(float(i)),))

    check(scenario)


def test_returned_views_of_complex_inputs():
    def scenario(wrap):
        g = wrap(lambda z: (z.conj(), z.imag, (z * 2).conj().imag, z * 2))
        for i in range(6):
            found = g(torch.complex(torch.arange(4.0), torch.arange(4.0) + i)[2:])
            yield found
            yield [tensor.storage_offset() for tensor in found[:2]]

    check(scenario)


def test_constant_written_on_one_path():
    def scenario(wrap):
        def fn(x):
            constant = torch.tensor([1.0, 2.0])
            if x.sum() > 10:
                constant.add_(100)
            return constant * 1

        g = wrap(fn)
        for value in [0] * 5 + [9] * 6 + [0, 9]:
            yield g(full(value))

    check(scenario)


def test_state_returned():
    def scenario(wrap):
        buffer = torch.ones(3)
        g = wrap(lambda x: (x, buffer))
        for i in range(10):
            x = full(i)
            found = g(x)
            yield found
            yield found[0] is x, found[1] is buffer

    check(scenario)


def test_view_of_state_returned():
    def scenario(wrap):
        buffer = torch.arange(4.0)
        g = wrap(lambda: buffer[:2])
        for _ in range(6):
            found = g()
            yield found
            yield found.data_ptr() == buffer.data_ptr()
            found.unsqueeze_(0)

    check(scenario)


def test_leaf_and_parameter_returned():
    def scenario(wrap):
        yield from drive(wrap(lambda x: (x * 2).detach().requires_grad_()))
        yield from drive(wrap(lambda x: nn.Parameter(x * 2)))

    check(scenario)


def test_parameter_data_transposed():
    def scenario(wrap):
        m = nn.Linear(4, 4, bias=False).requires_grad_(False)
        m.weight.copy_(torch.arange(16.0).view(4, 4))
        yield from drive(wrap(m), change=lambda: setattr(m.weight, "data", m.weight.data.t()))

    check(scenario)


def test_one_of_two_views_rebound():
    def scenario(wrap):
        flat = torch.arange(8.0)
        o = types.SimpleNamespace(a=flat[:4], b=flat[4:])
        g = wrap(lambda x: x * o.a + o.b)
        yield from drive(g, change=lambda: setattr(o.b, "data", full(99)))

    check(scenario)


def test_object_replaced_again_and_again_is_let_go():
    def scenario(wrap):
        o = types.SimpleNamespace()
        g, seen = wrap(lambda x: x * o.value.scale), []
        for i in range(60):
            o.value = Scale(float(i))
            seen.append(weakref.ref(o.value))
            for j in range(1 if i % 2 else 5):
                yield g(full(j))
        gc.collect()  # recordings are cycles
        yield sum(found() is not None for found in seen) < 15  # recordings, and what was observed last

    check(scenario, max_recordings=4)
