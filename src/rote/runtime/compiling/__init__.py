"""Kernels as text, compiled by other processes while the program goes on."""

from __future__ import annotations

from .compilers import COMPILERS, CompileProgress, Compilers, Job
from .process import Outcome
from .source import Binary, CompileFailure, KernelSource, Language, Programs
