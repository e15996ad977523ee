"""The configuration of DuQuant: its fields, their checks, and patterns over names of layers."""

from .checks import UNQUANTIZED, can_be_bits, check_layer, input_error, is_whole
from .config import DuQuantConfig
from .names import check_all_used, check_patterns, first_match, matches
