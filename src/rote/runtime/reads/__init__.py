"""What a call reads and writes outside of itself, noted while it runs."""

from .bytecode import MODULE_CALL
from .watch import WATCH, aside
