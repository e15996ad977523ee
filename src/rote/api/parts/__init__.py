"""The parts of a callable: modules that are graphed by themselves where the callable does not replay."""

from .parts import Parts
