"""A model's linear layers become quantized ones, and a report says what was done."""

from .convert import build_layer, quantize_
from .report import LayerReport, QuantReport, draw
