"""DuQuant: linear layers with 4-bit weights and 8-bit activations, made for graphs.

    config = DuQuantConfig(weight_bits=4, act_bits=8, block_size=128)
    with calibrate(model, config) as stats:                 # ordinary forward passes
        for batch in batches:
            model(**batch)
    report = quantize_(model, config, stats)                # in place; a row for every linear layer
    print(report)
    save_quantized(model, "policy-w4a8.safetensors")
    load_quantized(fresh, "policy-w4a8.safetensors")        # into a newly constructed model
    warmup(fresh, sizes=[1, 51])                            # kernels, before a graph is captured

A layer's input is smoothed, rotated, permuted and rotated again, which spreads outliers over all channels
before it is rounded to 8 bits; the weight absorbs the inverse and is rounded to 4.
``DuQuantConfig.vla()`` is the variant of public forks of openpi. This package and the runtime of rote know
nothing of each other: layers are plain modules that run eagerly, compiled, captured and replayed.
"""

from .calibrating import CalibrationStats, calibrate
from .config import DuQuantConfig
from .converting import LayerReport, QuantReport, draw, quantize_
from .environment import EnvironmentPlan, quantize_from_env, read_plan
from .kernels import linear_by_torch
from .layer import DuQuantLinear, fuse_, unfuse_, warmup
from .saving import load_quantized, save_quantized

__all__ = [
    "CalibrationStats", "DuQuantConfig", "DuQuantLinear", "EnvironmentPlan", "LayerReport", "QuantReport",
    "calibrate", "draw", "fuse_", "linear_by_torch", "load_quantized", "quantize_", "quantize_from_env",
    "read_plan", "save_quantized", "unfuse_", "warmup",
]  # fmt: skip
