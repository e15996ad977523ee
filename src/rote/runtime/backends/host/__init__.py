"""The CPU as a device to capture on: a tape of ATen operations, replayed into the same memory."""

from .backend import HostBackend
from .torch_private import fills_memory
