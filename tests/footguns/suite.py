"""All cases."""

from __future__ import annotations

from tests.footguns.case import Case, Kind
from tests.footguns.cases import autograd, host_values, inputs, modes, outputs, state

GROUPS = (outputs, state, inputs, host_values, modes, autograd)


def _of(module: object) -> list[Case]:
    return [value for value in vars(module).values() if isinstance(value, Case)]


CASES = sorted(
    (case for group in GROUPS for case in _of(group)), key=lambda case: list(Kind).index(case.by_hand)
)
"""Silent failures of graphs captured by hand first, then loud ones, then what works there too."""


def label(case: Case) -> str:
    """The case's name in results."""
    return f"{case.group}/{case.program.__name__}"
