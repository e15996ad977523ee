"""The parts of a callable: modules that are graphed by themselves where the callable does not replay."""

from .part import PartFacts
from .parts import Parts
