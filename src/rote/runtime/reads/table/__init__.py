"""The table of C functions and types, and how a row is found."""

from . import lookup
from .names import NAMES, types_in
from .table import HANDLED, REFUSED, UNKNOWN, Rows, is_nobody, name_of
