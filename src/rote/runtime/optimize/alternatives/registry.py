"""The alternatives that are offered in this process: those of rote, and those of libraries."""

from __future__ import annotations

from .attention import ATTENTION
from .few_rows import FEW_ROWS
from .images import IMAGES
from .offered import Alternative, Alternatives

ALTERNATIVES = Alternatives(*ATTENTION, *FEW_ROWS, *IMAGES)
"""The one place where alternatives are offered."""


def register_alternative(alternative: Alternative) -> None:
    """Offer another way to calculate an operator, for ``numerics="near"`` and ``numerics="probed"``.

    Each place where it would stand for the operator is gated. With ``"near"``, its error against the result
    in 64 bits may not be larger than the operator's own, on the operands of a call. With ``"probed"``, its
    bits have to be the operator's, on these operands and on hostile ones. An example::

        rote.register_alternative(rote.Alternative(
            operator="mylib::scores",
            name="scores by tables",
            fits=lambda x, table: x.shape[-1] <= 256,
            calculate=lambda run, x, table: fast_scores(x, table),
            exact=lambda x, table: x @ table,
        ))

    Args:
        alternative: What is offered, to all recordings that are made later in the process.

    Raises:
        MisuseError: The operator has an alternative of that name.
    """
    ALTERNATIVES.register(alternative)
