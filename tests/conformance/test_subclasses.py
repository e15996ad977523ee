"""Tensors that are more than memory with strides: eager, with the reason, and never read as if they were."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_map

import rote
from rote.testing import compare


class Halved(torch.Tensor):
    """A weight that lies in another tensor, in bytes."""

    @staticmethod
    def __new__(cls, data: torch.Tensor, scale: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=scale.dtype, device=data.device)

    def __init__(self, data: torch.Tensor, scale: torch.Tensor) -> None:
        self.bytes, self.scale = data, scale

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return Halved(args[0].bytes, args[0].scale)

        def dense(value: Any) -> Any:
            return value.bytes.to(value.scale.dtype) * value.scale if isinstance(value, Halved) else value

        return func(*tree_map(dense, args), **tree_map(dense, kwargs or {}))


def test_a_weight_that_lies_in_other_tensors(device, reason):
    layer = nn.Linear(4, 3).requires_grad_(False).to(device)
    data = torch.arange(-6, 6, dtype=torch.int8, device=device).reshape(3, 4)
    layer.weight = nn.Parameter(Halved(data, torch.tensor(0.1, device=device)), requires_grad=False)
    g = rote.graph(layer)
    for n in range(12):
        if n == 8:
            data.neg_()
        x = torch.full((2, 4), float(n), device=device)
        assert torch.equal(g(x), layer(x))
    assert g.report().replayed == 0
    assert reason(g, "RT601").message.endswith("met a Halved tensor")


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_where_plain_ones_were(device):
    g, x = rote.graph(lambda x: x * 2), torch.ones(3, 2, device=device)
    for _ in range(4):
        g(x)
    nested = torch.nested.nested_tensor([torch.ones(2, device=device), torch.ones(3, device=device)])
    assert [part.tolist() for part in g(nested).unbind()] == [[2.0] * 2, [2.0] * 3]
    assert g(x).tolist() == [[2.0] * 2] * 3


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors(device, reason):
    def fn(x):
        return torch.nested.nested_tensor([x, x[:2]]).to_padded_tensor(0.0)

    g = compare(fn, [(torch.full((3, 2), float(n), device=device),) for n in range(6)])
    assert reason(g, "RT601").message.endswith("met a nested tensor")


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_arguments_are_named_for_what_they_are(reason):
    g = rote.graph(lambda scale, x: x.dequantize() * scale)
    given = torch.quantize_per_tensor(torch.ones(3), 0.5, 0, torch.quint8)
    assert g(2.0, given).tolist() == [2.0] * 3
    assert reason(g, "RT601").message == "args[1] is a quantized tensor (torch.quint8)"
    h = rote.graph(lambda x: x.to_dense() * 2)
    assert h(torch.eye(2).to_sparse()).tolist() == [[2.0, 0.0], [0.0, 2.0]]
    assert reason(h, "RT601").message == "args[0] is a tensor with layout torch.sparse_coo"
