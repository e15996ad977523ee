"""The memory that recordings hold: finished sessions, counted and released together, under a budget."""

from .budget import BUDGETS
from .holding import Account, Holding
from .sizes import format_size, parse_size
