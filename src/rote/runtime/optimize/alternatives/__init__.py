"""Other ways to calculate operators, which do not keep the bits, and those that rote has itself."""

from .attention import ATTENTION
from .offered import Alternative, Alternatives
