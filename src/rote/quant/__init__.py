"""DuQuant: linear layers with 4-bit weights and 8-bit activations, made for graphs."""

from __future__ import annotations

from .config import DuQuantConfig as DuQuantConfig

__all__ = ["DuQuantConfig"]
