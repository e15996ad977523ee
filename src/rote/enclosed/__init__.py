"""Calls of graphed callables in compiled functions: one operator in the graph that PyTorch compiles."""

from .enclosing import enclose, leave_alone
from .unfolding import unfold
