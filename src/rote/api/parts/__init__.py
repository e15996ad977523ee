"""The parts of a callable: modules that are graphed by themselves where the callable does not replay."""

from .part import ModulePart, PartFacts, PartStage
from .parts import Parts
