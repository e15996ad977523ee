"""What is asked of an overload once, and whose code stays in sight."""

from __future__ import annotations

import torch
from torch.library import _scoped_library

import rote
from rote.runtime.capture.overloads import Overload
from rote.runtime.operators import tensors_of
from rote.runtime.program import operands_of
from rote.runtime.program.operations import number_of
from rote.runtime.program.storages import StorageTable
from rote.runtime.program.torch_private import replaced_kernels

FACTOR, ROW = 1.0, 0


def test_kernels_of_pytorch_are_no_code_of_the_users():
    torch.vmap(torch.sin)(torch.ones(2, 2))  # PyTorch registers kernels from Python for it
    assert not replaced_kernels()
    found = Overload.of(torch.ops.aten.relu.default)
    assert not (found.seen or found.seeds or found.special) and found.facts.simple
    assert Overload.of(torch.ops.aten.detach.default).special


def test_somebody_elses_kernel_may_run_in_any_operation():
    with _scoped_library("aten", "IMPL") as library:
        library.impl("special_airy_ai", lambda x: x, "MPS")
        assert replaced_kernels() and Overload.of(torch.ops.aten.relu.default).seen
    assert not replaced_kernels()


def test_operands_in_order():
    x, y, z = (torch.zeros(n) for n in (1, 2, 3))
    args, kwargs = (x, 2, [y, None], [1, 2], True), {"other": z, "alpha": 0.5}
    tensors, tokens, operands, named = operands_of(args, kwargs, StorageTable().token)
    assert [id(each) for each in tensors] == [id(each) for each in tensors_of(args, kwargs)]
    assert [token.shape for token in tokens] == [(1,), (2,), (3,)]
    one, two = number_of(1), number_of(2)
    assert operands == (tokens[0], two, (tokens[1], None), (one, two), number_of(True))
    assert named == (("other", tokens[2]), ("alpha", number_of(0.5)))


def test_code_that_an_operation_calls_for_its_operands_is_seen(device):
    global ROW

    class Row:
        def __index__(self):
            return ROW

    row, x = Row(), torch.arange(6.0, device=device).view(3, 2)
    g = rote.graph(lambda x: x[row] * 2)
    for value in (0, 0, 0, 0, 1, 1, 1, 1):
        ROW = value
        assert torch.equal(g(x), x[value] * 2)
    assert g.report().replayed >= 3
    ROW = 0


def test_code_that_saves_for_the_backward_is_seen(device):
    global FACTOR

    def pack(tensor):
        return tensor * FACTOR

    weight = torch.ones(3, device=device, requires_grad=True)

    def step(x):
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = (weight * x).exp().sum()
        return torch.autograd.grad(loss, weight)[0]

    g, x = rote.graph(step), torch.arange(3.0, device=device)
    for value in (1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0):
        FACTOR = value
        assert torch.equal(g(x), step(x))
    FACTOR = 1.0
