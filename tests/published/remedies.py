"""What people were told to do about it, each as a change of the layer or of how it is called.

From the message itself and the threads about it (pytorch#148439, #158551, #160281, #170604, #175557, #177192,
lerobot#4491), and from the notes that come with the forks of openpi whose layers failed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .layers import WIDTH, QuantLinear, QuantPolicy

VARIABLES = ("TORCH_CUDA_GRAPH_DISABLE", "TORCHINDUCTOR_DISABLE_CUDAGRAPHS")
"""Set by published scripts; PyTorch reads neither."""


class KeptAsClone:
    """The scale is cloned inside of the call."""

    def keep(self: Any, scale: Tensor) -> None:
        self._act_scale = scale.clone()


class KeptInBuffer:
    """The scale is a registered buffer, updated in place."""

    def __init__(self: Any, name: str, act_bits: int = 8) -> None:
        super().__init__(name, act_bits)
        del self._act_scale
        self.register_buffer("_act_scale", torch.ones(WIDTH))
        self._kept = False

    def keep(self: Any, scale: Tensor) -> None:
        self._act_scale.copy_(scale)
        self._kept = True

    @property
    def is_calibrated(self: Any) -> bool:
        return self._kept


@dataclass(frozen=True)
class Remedy:
    """One remedy, or several at once.

    Attributes:
        name: As the table says it.
        kept: What is mixed into the layer's class.
        act_bits: Bits of activations; with 16 they are not rounded.
        warm_up: Calls of the plain model before it is compiled or graphed.
        marks: Whether ``torch.compiler.cudagraph_mark_step_begin()`` is called before each call.
        clones: Whether the caller clones each result.
        disabled: Whether the layer's forward is ``torch.compiler.disable``\\ d.
        variables: Environment variables that are set to 1.
    """

    name: str
    kept: type | None = None
    act_bits: int = 8
    warm_up: int = 0
    marks: bool = False
    clones: bool = False
    disabled: bool = False
    variables: tuple[str, ...] = ()

    def concerns(self, kind: type[QuantLinear]) -> bool:
        """Whether it changes anything: some layers keep no scale."""
        return self.kept is None or kind.keeps_a_scale

    def build(self, kind: type[QuantLinear]) -> QuantPolicy:
        """The model with the remedy in its layers."""
        if self.kept is not None:
            kind = type(kind.__name__, (self.kept, kind), {"__module__": kind.__module__})
        for variable in self.variables:
            os.environ[variable] = "1"
        model = QuantPolicy(kind, self.act_bits).eval()
        for layer in model.layers if self.disabled else ():
            layer.forward = torch.compiler.disable(layer.forward)
        return model

    def called(self, act: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        """The call with the remedy around it."""

        def call(x: Tensor) -> Tensor:
            if self.marks:
                torch.compiler.cudagraph_mark_step_begin()
            result = act(x)
            return result.clone() if self.clones else result

        return call


WARM = 5
"""More calls than a calibrator takes."""

REMEDIES = (
    Remedy("as it was written"),
    Remedy("results cloned by the caller", clones=True),
    Remedy("`cudagraph_mark_step_begin()` before each call", marks=True),
    Remedy("`cudagraph_mark_step_begin()`, and results cloned", marks=True, clones=True),
    Remedy("scale cloned in `forward`", kept=KeptAsClone),
    Remedy("scale in a buffer, `copy_`", kept=KeptInBuffer),
    Remedy("warm-up calls before compiling", warm_up=WARM),
    Remedy("activations left at 16 bits", act_bits=16),
    Remedy("`torch.compiler.disable` on the layer", disabled=True),
    Remedy("`TORCH_CUDA_GRAPH_DISABLE=1`", variables=VARIABLES),
    Remedy("buffer, warm-up, and results cloned", kept=KeptInBuffer, warm_up=WARM, clones=True),
)
