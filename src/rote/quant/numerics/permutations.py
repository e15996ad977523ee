"""Orders of channels: one levels the blocks, one is the policy variant's."""

from __future__ import annotations

import torch
from torch import Tensor


def zigzag(sizes: Tensor, blocks: int) -> Tensor:
    """Deal channels, the largest first, to the blocks: 0, 1, ... K-1, K-1, ... 1, 0, 0, 1, ...

    ``sizes`` has the shape ``(width,)``, a multiple of ``blocks``. Inside a block the order descends; equal
    sizes keep their order. Place ``j`` takes channel ``order[j]``; the order is int64, on the CPU.
    """
    ranked = torch.sort(sizes.cpu(), descending=True, stable=True).indices
    rounds = ranked.reshape(-1, blocks).clone()
    rounds[1::2] = rounds[1::2].flip(1)
    return rounds.T.reshape(-1)


def alternating(energy: Tensor) -> Tensor:
    """The largest channel, the smallest, the second largest, the second smallest, and so on.

    The policy variant's order of channels by their ``energy``, of shape ``(width,)``; int64 on the CPU. It is
    the opposite of levelling blocks: the first one gets the extremes, the last one the middle.
    """
    ranked = torch.sort(energy.cpu(), descending=True, stable=True).indices
    order = torch.empty_like(ranked)
    half = (len(ranked) + 1) // 2
    order[0::2] = ranked[:half]
    order[1::2] = ranked[half:].flip(0)
    return order


def column_energy(weight: Tensor) -> Tensor:
    """The mean square of each column of a weight, float64, of shape ``(in,)``."""
    return weight.double().square().mean(0)
