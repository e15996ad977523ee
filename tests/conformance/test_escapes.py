"""What leaves a call, or enters it, where no recording can follow: eager, with the reason."""

from __future__ import annotations

import numpy
import pytest
import torch
from tests.hidden import queued

import rote
from rote.testing import compare

CALLS = 14


class Prior(torch.distributions.Normal):
    def __del__(self):  # to make another one would not go unnoticed
        pass


def test_a_tensor_kept_from_inside(device):
    kept = [None]

    def fn(x):
        kept[0] = x * 2
        return x + 1

    g = rote.graph(fn)
    for n in range(CALLS):
        x = torch.full((2,), float(n), device=device)
        g(x)
        assert kept[0].tolist() == [2.0 * n] * 2
    assert g.report().replayed >= CALLS - 3


def test_an_argument_kept_from_the_call(device):
    kept = []

    def fn(x):
        kept[:] = [x]
        return x + 1

    g = rote.graph(fn)
    for n in range(CALLS):
        x = torch.full((2,), float(n), device=device)
        g(x)
        assert kept[0] is x


def test_a_python_value_in_the_result(device, reason):
    values = queued()
    g = rote.graph(lambda x: (x + 1, values.get_nowait()))
    for n in range(CALLS):
        values.put(n)
        assert g(torch.ones(1, device=device))[1] == n
    assert g.report().replayed == 0
    found = reason(g, "RT502")
    assert found.message.startswith("result[1] was ") and found.remedy == "Return it as a tensor."


def test_an_opaque_result(device, reason):
    class Box:
        def __init__(self, value):
            self.value = value

        def __del__(self):  # to make another one would not go unnoticed
            pass

    g = rote.graph(lambda x: Box(x + 1))
    for _ in range(CALLS):
        assert g(torch.ones(1, device=device)).value.item() == 2.0
    assert g.report().replayed == 0
    found = reason(g, "RT501")
    assert found.message == "result is a Box"
    text = "Return its tensors in a tuple, list, dict or dataclass, and make the Box outside."
    assert found.remedy == text


@pytest.mark.parametrize(
    ("result", "said", "remedy"),
    [
        (
            lambda x: [x * 1, Prior(x, 1.0)],
            "result[1] is a Prior",
            "(loc, scale), and make",
        ),
        (lambda x: {"a": [{x}]}, "result['a'][0] is a set", "Return a list or a tuple."),
        (lambda x: (x, (row for row in x)), "result[1] is a generator", "Return a list"),
        (lambda x: numpy.ones(3), "result is a ndarray", "call .numpy() on it outside"),
        (lambda x: (x * 1).to_sparse(), "result has layout sparse_coo", "to_dense()"),
        (lambda x: torch.conj(x * 1j), "result is a lazy conjugate or negative", "resolve_conj()"),
        (lambda x: torch.ones(3, requires_grad=True), "a leaf that requires grad", "requires_grad_() on it"),
        (lambda x: x.view(torch.int32), "view of an argument with another dtype", "clone()"),
    ],
)
def test_what_to_return_instead(result, said, remedy, reason):
    g = rote.graph(result)
    for _ in range(CALLS):
        g(torch.ones(3))
    found = reason(g, "RT501")
    assert said in found.message and remedy in found.remedy, found


def test_memory_handed_to_numpy(device, where, reason):
    def fn(x):
        scale = memoryview(x.detach().cpu().numpy())[0]
        return x * scale * 2

    g = rote.graph(fn)
    for n in range(CALLS):
        assert g(torch.full((2,), float(n), device=device)).tolist() == [2.0 * n * n] * 2
    assert g.report().replayed == 0
    found = reason(g, "RT103")
    assert found.message.startswith("numpy() hands the memory of a tensor to code that reads or writes it")
    assert found.where == where(fn, ".numpy()")


def test_memory_that_an_array_does_not_own(device, where, reason):
    def fn(x):
        array = numpy.frombuffer(bytearray(b"\0\0\x40\x40" * 2), dtype=numpy.float32)
        return x * torch.from_numpy(array).to(x.device)

    g = rote.graph(fn)
    for _ in range(CALLS):
        assert g(torch.ones(2, device=device)).tolist() == [3.0, 3.0]
    assert g.report().replayed == 0
    found = reason(g, "RT123")
    assert found.message == "a numpy array made inside the call became a tensor"
    assert found.where == where(fn, "torch.from_numpy")


def test_a_sparse_tensor(device, reason):
    g = rote.graph(lambda x: torch.sparse.mm(x.to_sparse(), x))
    x = torch.eye(3, device=device)
    for _ in range(CALLS):
        assert torch.equal(g(x), x)
    assert g.report().replayed == 0
    assert reason(g, "RT601").remedy == "Use a dense tensor of torch.Tensor's own class."


def test_an_external_tensor_nobody_holds(device, reason):
    """Out of sight: the tensor could be replaced without notice."""
    source = queued()
    hidden = [torch.ones(2, device=device)]
    g = rote.graph(lambda x: x + source.get_nowait())
    for _ in range(CALLS):
        source.put(hidden[0])
        assert g(torch.ones(2, device=device)).tolist() == [2.0, 2.0]
    assert g.report().replayed == 0
    found = reason(g, "RT206")
    assert found.message == "aten::add.Tensor read a [2] tensor made outside the call"


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.apply_(lambda value: value * 2) + 1,
        lambda x: x.clone().map_(x, lambda one, other: one + other) + 1,
    ],
)
def test_python_functions_of_single_elements(function):
    g = compare(function, [(torch.full((3,), float(n)),) for n in range(6)])
    assert {reason.code for reason in g.report().reasons} == {"RT103"}
