"""Numbers of Python's that change from call to call: where they come from, and what is computed from them."""

from .computation import Computation, NumberSource, ReadingLines
from .expressions import BINARY, CALLED, COMPARED, UNARY, Applied, Expression, Fixed, GivenNumber
from .tracked import FEW, Computed, TrackedNumbers, as_cells, has_computed, is_data, plain_operands

__all__ = [
    "BINARY", "CALLED", "COMPARED", "FEW", "UNARY", "Applied", "Computation", "Computed", "Expression",
    "Fixed", "GivenNumber", "NumberSource", "ReadingLines", "TrackedNumbers", "as_cells", "has_computed",
    "is_data", "plain_operands",
]  # fmt: skip
