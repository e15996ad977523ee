"""DuQuant: linear layers with 4-bit weights and 8-bit activations, made for graphs."""

from __future__ import annotations

from .calibration import calibrate as calibrate
from .checkpoint import load_quantized as load_quantized
from .checkpoint import save_quantized as save_quantized
from .config import DuQuantConfig as DuQuantConfig
from .convert import quantize_ as quantize_
from .environment import quantize_from_env as quantize_from_env
from .linear import DuQuantLinear as DuQuantLinear
from .report import LayerReport as LayerReport
from .report import QuantReport as QuantReport
from .stats import CalibrationStats as CalibrationStats

__all__ = [
    "CalibrationStats", "DuQuantConfig", "DuQuantLinear", "LayerReport", "QuantReport", "calibrate",
    "load_quantized", "quantize_", "quantize_from_env", "save_quantized",
]  # fmt: skip
