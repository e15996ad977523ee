"""Numbers of Python's that change from call to call: where they come from, and what is computed from them."""

from .arrays import FUNCTION, ITEM, METHOD, METHODS, NAME_OF, index_form, is_array, takes_names
from .computation import NO_LINES, Computation, NumberRead, NumberSource, Path, ReadingLines
from .draws import GLOBAL_GENERATORS, Draw, DrawnFrom, HostRandom, can_draw, is_drawing
from .expressions import (
    BINARY,
    CALLED,
    COMPARED,
    FROM_TABLE,
    KINDS,
    OF_MEMBERS,
    OF_NUMPY,
    TRUTHS,
    UNARY,
    UNITS,
    UNITS_OF_MEMBERS,
    Applied,
    Expression,
    Fixed,
    GivenNumber,
)
from .times import TELL_TIME, TIME
from .tracked import FEW, Computed, TrackedNumbers, is_data

__all__ = [
    "BINARY", "CALLED", "FUNCTION", "ITEM", "METHOD", "METHODS", "NAME_OF", "COMPARED", "FEW", "FROM_TABLE", "GLOBAL_GENERATORS", "KINDS", "NO_LINES",
    "OF_MEMBERS", "OF_NUMPY", "TELL_TIME", "TIME", "TRUTHS", "UNARY", "UNITS", "UNITS_OF_MEMBERS",
    "Applied", "Computation", "Computed", "Draw", "DrawnFrom", "Expression", "Fixed", "GivenNumber",
    "HostRandom", "NumberRead", "NumberSource", "Path", "ReadingLines", "TrackedNumbers", "can_draw",
    "index_form", "is_array", "is_data", "is_drawing", "takes_names",
]  # fmt: skip
