"""The memory that recordings hold: finished sessions, counted and released together, under a budget."""

from .budget import BUDGETS, format_size, parse_size
from .holding import Account, Holding
