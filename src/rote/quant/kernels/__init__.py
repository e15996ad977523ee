"""Integer linear layers: activations transformed and quantized, times packed weights.

A layer calls the operators of ``ops``, which have implementations for CUDA (Triton), for the CPU (torch, the
same integers) and for tracing. Triton is imported at the first launch on a GPU and not before.
"""

from . import turns
from .by_torch import linear as linear_by_torch
from .by_torch import members, turns_of
from .gemm import MOST_WEIGHTS
from .ops import GROUP, LAYER, NAMESPACE, library, register
from .transform import exact, obstacle
