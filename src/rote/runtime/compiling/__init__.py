"""Kernels as text, compiled by other processes while the program goes on."""

from .compilers import COMPILERS, CompileProgress, Compilers, Job
from .process import Outcome
from .source import Binary, CompileFailure, KernelSource, Language, Programs
