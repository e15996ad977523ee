"""Kernels as text, compiled by other processes while the program goes on."""

from .compilers import COMPILERS, Compilers, Job
from .shelf import SHELVES, Shelf
from .source import Binary, CompileFailure, KernelSource, Language, Programs
from .worker import RefusedError, compiler_command
