"""Numbers of Python's that change from call to call: where they come from, and what is computed from them."""

from .arrays import (
    FUNCTION,
    IN_PLACE,
    INDEX_TYPES,
    ITEM,
    METHOD,
    METHODS,
    NAME_OF,
    STORED,
    STORED_ALONG,
    WRITE_AT,
    array_token,
    as_handed,
    can_be_copied,
    can_be_filled,
    copied,
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
    JOINED_BY,
    KINDS,
    LENGTH,
    LOOKED_UP,
    OF_MEMBERS,
    OF_NUMPY,
    OF_TEXTS,
    ROW_LENGTH,
    SCALARS,
    TEXTS,
    TRUTHS,
    UNARY,
    UNITS,
    UNITS_OF_MEMBERS,
    WRITES,
    WRITES_BY_NAME,
    Fixed,
)
from .items import OVER_ITEMS
from .iterators import ITERATORS
from .times import TELL_TIME
from .tracked import FEW, FOLLOWED, Computed, TrackedNumbers, is_data
