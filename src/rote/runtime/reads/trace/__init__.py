"""The trace of one call: which objects are outside, and what was noted of them."""

from .classes import SPECIAL
from .kinds import (
    C_FUNCTIONS,
    CLASS,
    CONTAINER,
    CONTAINERS,
    DERIVED,
    FIXED,
    FUNCTION,
    IN_C,
    METHOD,
    MODULE,
    OTHER,
    PLAIN,
    PLAIN_TYPES,
    TENSOR,
    is_compilers,
    is_in_c,
    is_readable,
)
from .noted import Effect, Noted, Output, Setting, UnseenCode
from .output import (
    SAID_OF_OUTPUT,
    is_called_by_output,
    is_for_output,
    is_shown,
    library_of_output,
    prints,
    tells_when,
    writes,
    writes_by_method,
)
from .trace import Aside, Trace, handled_kind
from .writing import OF_CLASS
from .written import SlotChange
