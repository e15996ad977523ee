"""Contenders side by side, and what a callable costs."""

from . import plot, table
from .compare import Bench
from .crew import BenchPlan
from .report import BenchReport
