"""Bayesian optimization by BoTorch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from botorch.acquisition import LogExpectedImprovement, qUpperConfidenceBound
from botorch.models import SingleTaskGP
from botorch.sampling import SobolQMCNormalSampler

Items = Iterator[Any]


def surrogate(device: Any) -> Any:
    x = torch.rand(12, 2, dtype=torch.double).to(device)
    return SingleTaskGP(x, x.sin().sum(-1, keepdim=True)).eval()


def acquisition_gradients(wrap: Any, device: Any) -> Items:
    """Expected improvement and its gradient at candidates, as an optimizer asks for them."""
    improvement = LogExpectedImprovement(surrogate(device), best_f=1.0)

    @wrap
    def slope(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = x.detach().requires_grad_()
        value = improvement(x)
        (gradient,) = torch.autograd.grad(value.sum(), x)
        return value.detach(), gradient

    while True:
        yield slope(torch.rand(5, 1, 2, dtype=torch.double).to(device))


def sampled_bound(wrap: Any, device: Any) -> Items:
    """An upper confidence bound of two points at a time, by samples that are kept."""
    bound = qUpperConfidenceBound(
        surrogate(device), beta=0.2, sampler=SobolQMCNormalSampler(torch.Size([16]), seed=1)
    )
    value_of = wrap(torch.no_grad()(bound.forward))
    while True:
        yield value_of(torch.rand(3, 2, 2, dtype=torch.double).to(device))
