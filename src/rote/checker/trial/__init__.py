"""The trial run: every operation of a call, and what a capture would say of it."""

from __future__ import annotations

from .notes import Note, TrialNotes
from .operands import ShapedTensor, TracedOperation, replaced, shown
from .places import UNKNOWN, CodePlace, here
from .trial import Trial
