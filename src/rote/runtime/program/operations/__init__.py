"""An operation of a call as data: the overload, its operands, its results, where it ran, the user's line."""

from .difference import first_difference
from .host_data import HostBytes, HostValues, content_of
from .likeness import are_like, is_like
from .operands import (
    ArrayMemory,
    Drawn,
    Number,
    NumpyScalar,
    Opaque,
    Operand,
    is_same_operand,
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
)
from .results import Reference, Structure, Value, assemble, results_of
