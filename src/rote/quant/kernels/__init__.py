"""Integer linear layers: activations transformed and quantized, times packed weights.

``ops`` is what a layer calls: operators registered with ``torch.library``, with implementations for CUDA
(Triton), for the CPU (torch, the same integers) and for tracing. ``packing`` makes weights for them. Triton
is imported at the first launch on a GPU and not before.
"""

from __future__ import annotations

from .ops import Activation as Activation
from .ops import Transform as Transform
from .ops import linear as linear
from .ops import product as product
from .ops import quantize_rows as quantize_rows
from .ops import transform_rows as transform_rows
from .packing import PackedWeight as PackedWeight
from .packing import pack_weight as pack_weight

__all__ = [
    "Activation",
    "PackedWeight",
    "Transform",
    "linear",
    "pack_weight",
    "product",
    "quantize_rows",
    "transform_rows",
]
