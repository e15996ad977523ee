"""Kernels as text, compiled by other processes while the program goes on."""

from .compilers import COMPILERS, Compilers, Job
from .source import Binary, CompileFailure, KernelSource, Language, Programs
