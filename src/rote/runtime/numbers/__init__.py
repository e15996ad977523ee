"""Numbers of Python's that change from call to call: where they come from, and what is computed from them."""

from .computation import NO_LINES, Computation, NumberRead, NumberSource, Path, ReadingLines
from .draws import GLOBAL_GENERATORS, Draw, HostRandom
from .expressions import BINARY, CALLED, COMPARED, UNARY, Applied, Expression, Fixed, GivenNumber
from .tracked import FEW, Computed, TrackedNumbers, is_data

__all__ = [
    "BINARY", "CALLED", "COMPARED", "FEW", "GLOBAL_GENERATORS", "NO_LINES", "UNARY", "Applied",
    "Computation", "Computed", "Draw", "Expression", "Fixed", "GivenNumber", "HostRandom", "NumberRead",
    "NumberSource", "Path", "ReadingLines", "TrackedNumbers", "is_data",
]  # fmt: skip
