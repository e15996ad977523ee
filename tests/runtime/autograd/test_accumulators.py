"""Aliases that stand for parameters while a call is recorded."""

import gc
import weakref

import pytest
import torch
from torch import nn

from rote.runtime.autograd.graph.accumulators import ParameterAliases


def node_of(parameter):
    return torch.autograd.graph.get_gradient_edge(parameter).node


@pytest.fixture
def parameter():
    return nn.Parameter(torch.randn(3))


def test_a_graph_made_meanwhile_ends_in_the_alias(parameter):
    stand_ins, node = ParameterAliases(), node_of(parameter)
    with stand_ins.placed([parameter]):
        y = parameter * 2
        (inside,) = (parent for parent, _ in y.grad_fn.next_functions if parent is not None)
    leaf = inside.variable
    assert leaf is not parameter and stand_ins.original(leaf) is parameter
    assert leaf.data_ptr() == parameter.data_ptr() and node_of(parameter) is node
    version = leaf._version
    with torch.no_grad():
        parameter.add_(1)
    assert leaf._version == version + 1


def test_the_same_alias_again(parameter):
    stand_ins = ParameterAliases()
    leaves = []
    for _ in range(2):
        with stand_ins.placed([parameter]):
            leaves.append((parameter * 2).grad_fn.next_functions[0][0].variable)
    assert leaves[0] is leaves[1]


def test_what_the_call_does_to_the_parameter_is_kept(parameter):
    other = torch.ones(3)
    with ParameterAliases().placed([parameter]):
        (parameter * 2).sum().backward()
        parameter.data = other
        parameter.requires_grad_(False)
    assert torch.equal(parameter.grad, torch.full((3,), 2.0))
    assert parameter.data_ptr() == other.data_ptr() and not parameter.requires_grad


def test_the_gradient_that_was_there_is_seen(parameter):
    parameter.grad = kept = torch.ones(3)
    with ParameterAliases().placed([parameter]):
        assert parameter.grad is kept
        (parameter * 2).sum().backward()
    assert parameter.grad is kept and torch.equal(kept, torch.full((3,), 3.0))
    with ParameterAliases().placed([parameter]):
        parameter.grad = None
    assert parameter.grad is None


def test_a_gradient_that_comes_late_is_handed_on(parameter):
    with ParameterAliases().placed([parameter]):
        late = (parameter * 2).sum()
    late.backward(retain_graph=True)
    late.backward()
    assert torch.equal(parameter.grad, torch.full((3,), 4.0))


def test_hooked_parameters_stay(parameter):
    parameter.register_hook(lambda gradient: gradient)
    with ParameterAliases().placed([parameter]):
        assert (parameter * 2).grad_fn.next_functions[0][0].variable is parameter


def test_an_exception_undoes_it(parameter):
    node = node_of(parameter)
    with pytest.raises(ValueError, match="inside"), ParameterAliases().placed([parameter]):
        raise ValueError("inside")
    assert node_of(parameter) is node


def test_a_parameter_is_not_kept_alive():
    stand_ins = ParameterAliases()
    parameter = nn.Parameter(torch.randn(3))
    with stand_ins.placed([parameter]):
        pass
    reference = weakref.ref(parameter)
    del parameter
    gc.collect()
    assert reference() is None
