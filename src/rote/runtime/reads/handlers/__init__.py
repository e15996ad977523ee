"""Handlers note what each instruction and each call reads and writes, before it runs."""

from .calls import called
from .handlers import HANDLERS, follow_function
from .known import PLAIN_OR_TENSOR
from .notes import NOTE_NAMES, Notes
from .numbers import TrackingNotes
