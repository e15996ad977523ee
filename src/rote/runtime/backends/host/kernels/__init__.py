"""Compiled kernels on the host."""

from __future__ import annotations

from .kernel import HostKernel
