"""The public test kit does what it says, and its messages say what is wrong."""

from __future__ import annotations

import re

import numpy
import pytest
import torch

import rote
from rote.runtime.backends.select import PROCESS
from rote.testing import Arguments, assert_pool_empty, assert_same, compare, count_recordings, poisoned


def recorded():
    g = rote.graph(lambda x: (x * 2).exp())
    for _ in range(5):
        g(torch.ones(100))
    return g


def test_assert_pool_empty():
    assert_pool_empty()
    g = recorded()
    nbytes = PROCESS.of(torch.device("cpu")).bytes_held()
    text = (
        f"recordings still hold {nbytes} bytes on host (cpu): "
        "call reset() on every graphed callable, or let it die"
    )
    with pytest.raises(AssertionError, match=f"^{re.escape(text)}$"):
        assert_pool_empty()
    g.reset()
    assert_pool_empty()
    g = recorded()
    del g
    assert_pool_empty()


def test_assert_pool_empty_collects_garbage():
    cycle = [recorded()]
    cycle.append(cycle)
    del cycle
    assert_pool_empty()


def test_poisoned():
    pool = PROCESS.of(torch.device("cpu")).pool
    pool.poison_after_replay = False
    with poisoned():
        assert pool.poison_after_replay
        with poisoned():
            pass
        assert pool.poison_after_replay
    assert not pool.poison_after_replay
    with pytest.raises(KeyError), poisoned():
        raise KeyError
    assert not pool.poison_after_replay


def test_count_recordings():
    g = recorded()
    assert count_recordings(g) == 1
    for _ in range(4):
        g(torch.ones(3))
    assert count_recordings(g) == 2
    g.reset()
    assert count_recordings(g) == 0


X = torch.arange(4.0)
ZEROS = "x differs in 1 of 1 elements, by at most 0 at x[0]: 0.0 instead of -0.0"
DIFFERENT = [
    (X, X + 1, "x differs in 4 of 4 elements, by at most 1 at x[0]: 0.0 instead of 1.0"),
    (X, X[:2], "x.shape is torch.Size([4]) and torch.Size([2]) was expected"),
    (X, X.double(), "x.dtype is torch.float32 and torch.float64 was expected"),
    (X.view(2, 2), X.view(2, 2).t(), "x.stride() is (2, 1) and (1, 2) was expected"),
    (X, X.clone().requires_grad_(), "x.requires_grad is False and True was expected"),
    (torch.zeros(1), -torch.zeros(1), ZEROS),
    ([1], [1.0], "x[0] is 1 and should be 1.0"),
    ({"a": 0.0}, {"a": -0.0}, "x['a'] is 0.0 and should be -0.0"),
    ([1], (1,), "x has another structure: [1] instead of (1,)"),
    ([X, X], [X, X.clone()], "other tensors of x share memory: [(0, 1)] instead of []"),
    (X, None, "x is tensor([0., 1., 2., 3.]) and should be None"),
    (X.numpy(), X.numpy() + 1, "x differs in 4 of 4 elements, by at most 1 at x[0]: 0.0 instead of 1.0"),
    (numpy.zeros(1), -numpy.zeros(1), ZEROS),
    (numpy.arange(2), numpy.arange(2) * 2, "x is array([0, 1]) and should be array([0, 2])"),
    (numpy.arange(2), numpy.arange(3), "x.shape is (2,) and should be (3,)"),
    (numpy.zeros(1), numpy.zeros(1, numpy.float32), "x.dtype is float64 and should be float32"),
    (X.numpy(), X, "x is array([0., 1., 2., 3.], dtype=float32) and should be tensor([0., 1., 2., 3.])"),
]


@pytest.mark.parametrize(("actual", "expected", "text"), DIFFERENT)
def test_assert_same_says_what_differs(actual, expected, text):
    with pytest.raises(AssertionError, match=f"^{re.escape(text)}$"):
        assert_same(actual, expected, "x")


@pytest.mark.parametrize(
    "value",
    [X, X[1::2], X.view(2, 2).t(), X[:0], torch.tensor(1.0), torch.full((2,), float("nan")), X > 1, None,
     X.to(torch.complex64), X.to(torch.complex64).conj(), torch.eye(2).to_sparse(), {"a": [X]}, float("nan"),
     X.numpy(), numpy.array(["a", "b"]), numpy.full(2, numpy.nan), numpy.arange(3, dtype=numpy.uint16),
     torch.empty(3, device="meta"), X.expand(3, 4), torch.ones(3).nonzero()],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
def test_assert_same_accepts_the_same(value):
    assert_same(value, value)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_nan_is_any_other(dtype):
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    one = torch.tensor([1.0, float("nan")], dtype=dtype)
    other = (one.view(whole) ^ torch.tensor([0, 1], dtype=whole)).view(dtype)
    assert_same(one, other)
    assert_same(torch.complex(one.double(), one.double()), torch.complex(other.double(), one.double()))
    with pytest.raises(AssertionError, match="differs in 1 of 2"):
        assert_same(one, torch.tensor([1.0, 1.0], dtype=dtype))
    with pytest.raises(AssertionError, match="differs in 2 of 2"):
        assert_same(
            torch.complex(one.double(), one.double()),
            torch.complex(one.double(), 1.0 - one.double()[:1].expand(2)),
        )


def test_tolerance():
    assert_same(X, X + 1e-6, tolerance=1e-5)
    with pytest.raises(AssertionError, match="differs in 4 of 4"):
        assert_same(X, X + 1e-3, tolerance=1e-5)


def test_compare_returns_the_wrapper():
    g = compare(lambda x, *, by: x * by, [Arguments((X,), {"by": 2})] * 6, warmup=1)
    assert g.report().replayed == 4


def changing(values):
    found = iter(values)
    return lambda x: next(found)(x)


@pytest.mark.parametrize(
    ("plain", "graphed", "text"),
    [
        (lambda x: x + 1, lambda x: x + 2, "call 0: result differs in 4 of 4 elements, "),
        (lambda x: x.add_(1), lambda x: x + 1, "call 0: inputs[0] differs in 4 of 4 elements, "),
        (
            lambda x: 1 / 0,
            lambda x: x,
            "call 0 returned and should have: raised ZeroDivisionError: division by zero",
        ),
        (
            lambda x: x,
            lambda x: 1 / 0,
            "call 0 raised ZeroDivisionError: division by zero and should have: returned",
        ),
        (lambda x: x + 0, lambda x: (torch.rand(1), x + 0)[1], "call 0: random state[0] differs in "),
    ],
)
def test_compare_says_what_differs(plain, graphed, text):
    with pytest.raises(AssertionError, match=f"^{re.escape(text)}"):
        compare(graphed, [(X,)], plain=plain)


def test_compare_notices_results_that_change_later():
    memory = torch.zeros(4)

    def leaks(x):
        return memory.copy_(x)

    with pytest.raises(
        AssertionError, match=r"^call 0: result, looked at again after the last call differs in 4 of 4"
    ):
        compare(leaks, [(X,), (X + 1,)], plain=lambda x: x.clone())


def test_compare_looks_at_state():
    ours, theirs = torch.zeros(1), torch.zeros(1)
    with pytest.raises(AssertionError, match=r"^call 0: state differs in 1 of 1 elements, by at most 1 at "):
        compare(
            lambda: None, [()], plain=lambda: theirs.add_(1) and None, states=(lambda: ours, lambda: theirs)
        )


def test_calls_of_the_wrong_kind():
    with pytest.raises(TypeError) as caught:
        compare(lambda x: x, [X])
    assert str(caught.value) == (
        "a call is a tuple, a dict or rote.testing.Arguments, not a Tensor: "
        "write (x,) for one positional argument"
    )


def test_arguments_are_copied_with_their_sharing():
    base = torch.zeros(6)

    def fn(x, y):
        x.add_(1)
        return y.sum()

    compare(fn, [(base[:4], base[2:])] * 5)
    assert base.eq(0).all()
