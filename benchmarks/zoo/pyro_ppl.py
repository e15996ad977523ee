"""Probabilistic programs of Pyro."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.autoguide import AutoDiagonalNormal

Items = Iterator[Any]


def variational_inference(wrap: Any, device: Any) -> Items:
    """Linear regression by SVI with a mean-field guide and Pyro's Adam."""
    pyro.clear_param_store()

    def model(x: torch.Tensor, y: torch.Tensor) -> None:
        weight = pyro.sample("weight", dist.Normal(x.new_zeros(3), 1.0).to_event(1))
        scale = pyro.sample("scale", dist.LogNormal(x.new_zeros(()), 1.0))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(x @ weight, scale), obs=y)

    inference = SVI(model, AutoDiagonalNormal(model), pyro.optim.Adam({"lr": 0.01}), Trace_ELBO())
    step = wrap(inference.step)
    while True:
        x = torch.randn(16, 3).to(device)
        yield step(x, x.sum(-1)), {name: value for name, value in pyro.get_param_store().items()}
