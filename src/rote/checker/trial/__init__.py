"""The trial run: every operation of a call, and whether a capture could hold it."""

from .notes import TrialNotes
from .operands import ShapedTensor, TracedOperation, replaced, shown
from .places import CodePlace, here
from .trial import Trial
