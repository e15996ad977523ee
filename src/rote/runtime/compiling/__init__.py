"""Kernels as text, compiled by other processes while the program goes on."""

from .compilers import COMPILERS, Job
from .source import SHELVES, Binary, KernelSource, Language, Programs
from .worker import RefusedError, compiler_command
