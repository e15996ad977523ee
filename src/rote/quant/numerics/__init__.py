"""The arithmetic of quantization: grids, transforms, packing, and the plain reference of the kernels."""

from . import arithmetic
from .arithmetic import Quantized, dense_weight, has_zero, restore_rows, row_parameters, transform_rows
from .grid import Grid
from .packing import BLOCK, PACKED_BITS, codes_of, layout, layout_shape, pack, stored_bits, unpack
from .ranges import activation_parameters, bounds_of
from .rotations import block_basis
from .search import InputSample, find_transform, smoothing_scale
from .torch_private import Operations, is_view, is_wrapper, uncompiled
from .transforms import (
    Chain,
    Permutation,
    Rotation,
    Smoothing,
    at_least_float32,
    chain_of,
    multiply_blocks,
    pad_columns,
    padded,
    rotation_dtype,
    stage_kinds,
)
from .weights import QuantizedWeight, quantize_weight
