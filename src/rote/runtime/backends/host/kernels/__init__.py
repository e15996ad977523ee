"""Compiled kernels on the host."""

from .kernel import HostKernel
