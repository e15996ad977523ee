"""An operation of a call as data: the overload, its operands, its results, where it ran, the user's line."""

from .operands import (
    ArrayMemory,
    Drawn,
    HostBytes,
    HostValues,
    Number,
    NumpyScalar,
    Opaque,
    Operand,
    content_of,
    number_of,
    operand_of,
    operands_of,
)
from .operation import (
    ANYWHERE,
    CAPTURED,
    CONST,
    HOST,
    ISLAND,
    LIST,
    READ,
    SHAPED,
    VIEWED,
    Operation,
    are_like,
    first_difference,
    is_like,
)
from .results import Reference, Value, assemble, results_of
