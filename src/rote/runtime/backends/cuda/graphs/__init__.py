"""What the driver does with graphs: copies and numbers as parts of them, and launches."""

from __future__ import annotations

from .cuda_driver import NO_CONTEXT, OUT_OF_MEMORY, DriverError, LaunchShape, driver, known_driver
from .launched import launched_between
from .nodes import MOST_OPERATIONS, CopyingGraph, PlainGraph, launcher
from .patches import KnownWords, PatchedInstance, PatchedKernel, find_words
from .words import Round, roles_of
