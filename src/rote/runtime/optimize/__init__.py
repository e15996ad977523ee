"""The tiers of a recording: its program, captured anew with fewer, fused or other operations."""

from .alternatives import ALTERNATIVES, Alternative, JointAlternative, register_alternative
from .before import Before
from .improving import Bounds, improve
from .shortening import RULES
