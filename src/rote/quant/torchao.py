"""Quantization through torchao: a configuration for its ``quantize_``.

Importing this module registers :class:`DuQuantAOConfig` with torchao, which has to be installed:

    torchao.quantization.quantize_(model, DuQuantAOConfig(config))

torchao passes one layer at a time and no data, so there is no calibration, no transform shared by layers, and
no report; ``rote.quant.quantize_`` has all three.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torchao.core.config import AOBaseConfig  # pyright: ignore[reportMissingImports]
from torchao.quantization.transform_module import (  # pyright: ignore[reportMissingImports]
    register_quantize_module_handler,
)

from ..base import MisuseError
from .config import DuQuantConfig
from .converting import build_layer

_Base: Any = AOBaseConfig


@dataclass
class DuQuantAOConfig(_Base):
    """DuQuant as torchao applies it.

    Attributes:
        config: One that needs no calibration.

    Raises:
        MisuseError: The configuration needs calibration.
    """

    config: DuQuantConfig = field(
        default_factory=lambda: DuQuantConfig(rotation="hadamard", permutation="none", smooth_alpha=None)
    )

    def __post_init__(self) -> None:
        if self.config.needs_calibration:
            raise MisuseError(
                "torchao's quantize_ has no calibration, and this configuration needs it: "
                "use rote.quant.quantize_"
            )


def _quantized(module: nn.Module, config: DuQuantAOConfig, *, parameter_name: str = "weight") -> nn.Module:
    if not isinstance(module, nn.Linear) or parameter_name != "weight":
        raise MisuseError(f"DuQuant quantizes the weight of linear layers, not {type(module).__name__}")
    return build_layer(module, config.config, torch.zeros(0, module.in_features))


register_quantize_module_handler(DuQuantAOConfig)(_quantized)
