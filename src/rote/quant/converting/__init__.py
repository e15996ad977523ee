"""A model's linear layers become quantized ones, and a report says what was done."""

from .build import build_layer
from .convert import quantize_
from .picture import draw
from .report import LayerReport, QuantReport
