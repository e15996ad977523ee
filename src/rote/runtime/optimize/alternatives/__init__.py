"""Other ways to calculate operators, with other bits or perhaps the same; those that rote has itself."""

from .gpu import memory_for
from .offered import Alternative, JointAlternative, Operands
from .registry import ALTERNATIVES, register_alternative
