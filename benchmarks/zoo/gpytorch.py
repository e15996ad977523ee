"""Gaussian processes of gpytorch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gpytorch
import torch

Items = Iterator[Any]


class Exact(gpytorch.models.ExactGP):
    """Constant mean, scaled RBF kernel."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor, likelihood: Any) -> None:
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x: torch.Tensor) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def fitted(device: Any) -> Any:
    x = torch.linspace(0, 1, 20, device=device)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(device)
    return Exact(x, torch.sin(x * 6), likelihood).to(device), likelihood, x


def training(wrap: Any, device: Any) -> Items:
    """Hyperparameters by the marginal likelihood and Adam."""
    model, likelihood, x = fitted(device)
    model.train()
    likelihood.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    likelihood_of = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)

    @wrap
    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = -likelihood_of(model(x), model.train_targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    while True:
        yield step(), model


def prediction(wrap: Any, device: Any) -> Items:
    """Mean and variance at new places, by the caches of the first prediction."""
    model, likelihood, _ = fitted(device)
    model.eval()
    likelihood.eval()

    @wrap
    def predict(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad(), gpytorch.settings.fast_pred_var():
            found = likelihood(model(x))
            return found.mean, found.variance

    while True:
        yield predict(torch.rand(8).to(device))
