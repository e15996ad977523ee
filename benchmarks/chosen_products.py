"""PI0 with other algorithms for its matrix products; ways as in :mod:`.chosen`.

They are those that cuBLAS takes for batches of one, and cuBLASLt's. Nobody knows beforehand whether they keep
the bits, and what they gain: the trials of *probed* and *chosen* say so.

``python -m benchmarks.run --case chosen_products --device cuda`` writes the JSON.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

import rote

from . import tiers
from .chosen import measure
from .common import Outcome, Settings
from .pi0 import observations, policy_for

NEEDS_GPU = True


@functools.cache
def nothing(columns: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """What makes no difference when it is added, made at the gate and kept for all captures."""
    return torch.full((columns,), -0.0, dtype=dtype, device=device)


def as_a_batch(run: object, x: Tensor, y: Tensor) -> Tensor:
    """A batch of one product."""
    return torch.bmm(x[None], y[None])[0]


def by_cublaslt(run: object, x: Tensor, y: Tensor) -> Tensor:
    """A product with a bias, which is cuBLASLt's."""
    return torch.addmm(nothing(y.shape[1], y.dtype, y.device), x, y)


@torch.no_grad()
def run(settings: Settings) -> Outcome:
    """PI0."""
    out = Outcome()
    torch.manual_seed(0)
    for name, calculate in (("as a batch of one", as_a_batch), ("by cuBLASLt", by_cublaslt)):
        rote.register_alternative(rote.Alternative("aten::mm", name, lambda x, y: x.is_cuda, calculate))
    policy = policy_for(settings)
    inputs = observations(policy, tiers.VIEWS, 4)
    measure(out, "pi0", policy.sample_actions, inputs, settings, ("exact", "probed", "chosen"))
    return out
