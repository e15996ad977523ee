"""Other ways to calculate operators, with other bits or perhaps the same; those that rote has itself."""

from .offered import Alternative, JointAlternative, Operands, memory_for
from .registry import ALTERNATIVES, register_alternative
