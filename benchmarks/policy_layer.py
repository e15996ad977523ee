"""The policy variant as public forks of openpi calculate it: what the fused layer is compared with.

They keep rotations block by block, and stack them in every call; the activation is gathered, rotated, rounded
with one scale per channel and multiplied with a weight that was rounded before, and the output is rotated
back. Nothing is packed.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rote.quant import DuQuantLinear


class PublicLayer(nn.Module):
    """The same numbers as a layer of ``DuQuantConfig.vla()``, in the type of the input.

    Args:
        layer: Quantized, with scales that are not folded into the weight.
    """

    def __init__(self, layer: DuQuantLinear) -> None:
        super().__init__()
        dtype, transform = layer.marker.dtype, layer.transform
        self.order = transform.orders[0].long()
        self.turns_in = dict(enumerate(transform.rotations[0].to(dtype)))
        self.turns_out = dict(enumerate(cast(Tensor, layer.row_rotation).to(dtype)))
        self.scale = cast(Tensor, layer.act_scale).to(dtype)
        self.dense = layer.weight_values().to(dtype)
        self.bias = layer.bias
        self.high = 2 ** (layer.config.act_bits - 1) - 1
        self.marker = layer.marker

    @property
    def weight(self) -> Tensor:
        """Type and device, which code around it asks for."""
        return self.marker

    def forward(self, x: Tensor) -> Tensor:
        """The output for inputs of shape ``(..., in)``."""
        moved = turned(x.index_select(-1, self.order), self.turns_in)
        seen = torch.clamp(torch.round(moved / self.scale), -self.high - 1, self.high) * self.scale
        y = turned(F.linear(seen, self.dense), self.turns_out)
        return y if self.bias is None else y + self.bias


def turned(x: Tensor, turns: dict[int, Tensor]) -> Tensor:
    """Each block of channels times its matrix."""
    blocks = torch.stack([turns[i] for i in range(len(turns))])
    parts = x.reshape(*x.shape[:-1], len(turns), -1)
    return torch.einsum("...bi,bij->...bj", parts, blocks).reshape(x.shape)


def make_public(policy: nn.Module) -> int:
    """Put public layers in the place of quantized ones; says how many."""
    found = [(name, m) for name, m in policy.named_modules() if isinstance(m, DuQuantLinear)]
    for name, layer in found:
        parent, _, last = name.rpartition(".")
        setattr(policy.get_submodule(parent), last, PublicLayer(layer))
    return len(found)
