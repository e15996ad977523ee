"""CUDA as a device to capture on: segments are CUDA graphs in a shared memory pool."""

from __future__ import annotations

from .backend import CudaBackend
