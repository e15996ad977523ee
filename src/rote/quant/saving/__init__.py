"""Checkpoints of quantized models."""

from . import storage
from .checkpoint import check_values, load_quantized, save_quantized
from .manifest import empty_layers, entries_of, read_entries
