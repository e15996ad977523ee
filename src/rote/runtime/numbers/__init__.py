"""Numbers of Python's that change from call to call: where they come from, and what is computed from them."""

from .arrays import (
    FUNCTION,
    IN_PLACE,
    ITEM,
    METHOD,
    METHODS,
    NAME_OF,
    STORED,
    array_token,
    index_form,
    is_array,
    takes_names,
)
from .computation import ARRAY, LENT, NO_LINES, Computation, NumberRead, NumberSource, Path, ReadingLines
from .draws import GLOBAL_GENERATORS, Draw, DrawnFrom, HostRandom, can_draw, is_drawing
from .expressions import (
    BINARY,
    CALLED,
    COMPARED,
    FROM_TABLE,
    JOINED,
    KINDS,
    LENGTH,
    OF_MEMBERS,
    OF_NUMPY,
    OF_TEXTS,
    TEXTS,
    TRUTHS,
    UNARY,
    UNITS,
    UNITS_OF_MEMBERS,
    WRITES,
    WRITES_BY_NAME,
    Applied,
    Expression,
    Fixed,
    GivenNumber,
)
from .iterators import ITERATORS
from .times import TELL_TIME, TIME
from .tracked import FEW, Computed, TrackedNumbers, is_data

__all__ = [
    "ARRAY", "BINARY", "CALLED", "COMPARED", "FEW", "FROM_TABLE", "FUNCTION", "GLOBAL_GENERATORS",
    "IN_PLACE", "ITEM", "ITERATORS", "JOINED", "KINDS", "LENGTH", "LENT", "METHOD", "METHODS", "NAME_OF",
    "NO_LINES", "OF_MEMBERS", "OF_NUMPY", "OF_TEXTS", "STORED", "TELL_TIME", "TEXTS", "TIME", "TRUTHS",
    "UNARY", "UNITS", "UNITS_OF_MEMBERS", "WRITES", "WRITES_BY_NAME", "Applied", "Computation", "Computed",
    "Draw", "DrawnFrom", "Expression", "Fixed", "GivenNumber", "HostRandom", "NumberRead", "NumberSource",
    "Path", "ReadingLines", "TrackedNumbers", "array_token", "can_draw", "index_form", "is_array",
    "is_data", "is_drawing", "takes_names",
]  # fmt: skip
