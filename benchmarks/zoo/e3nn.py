"""Equivariant networks of e3nn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from e3nn import o3
from e3nn.nn import FullyConnectedNet

Items = Iterator[Any]


def convolution(wrap: Any, device: Any) -> Items:
    """An equivariant convolution over a fixed graph, as in the tutorial."""
    irreps = o3.Irreps("4x0e + 2x1o")
    harmonics = o3.Irreps.spherical_harmonics(2)
    product = o3.FullyConnectedTensorProduct(irreps, harmonics, irreps, shared_weights=False).to(device)
    weights = FullyConnectedNet([6, 16, product.weight_numel], torch.nn.functional.silu).to(device)
    source, target = torch.randint(10, (2, 40)).to(device)

    @wrap
    @torch.no_grad()
    def convolve(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        edges = positions[target] - positions[source]
        angular = o3.spherical_harmonics(harmonics, edges, normalize=True, normalization="component")
        centers = torch.linspace(0, 3, 6, device=x.device)
        radial = torch.exp(-(edges.norm(dim=1)[:, None] - centers).square())
        messages = product(x[source], angular, weights(radial))
        return torch.zeros_like(x).index_add_(0, target, messages) / 4

    while True:
        yield convolve(torch.randn(10, irreps.dim).to(device), torch.randn(10, 3).to(device))
