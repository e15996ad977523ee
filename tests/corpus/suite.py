"""All cases of the corpus."""

from __future__ import annotations

from importlib.util import find_spec

from .case import Case
from .cases import kept, models, shapes, state, values

GROUPS = (values, shapes, state, kept, models)


def cases() -> list[Case]:
    """Every case whose packages are here."""
    found = [case for module in GROUPS for case in module.group.cases]
    return [case for case in found if case.needs is None or find_spec(case.needs) is not None]
