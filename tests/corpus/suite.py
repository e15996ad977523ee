"""All cases of the corpus."""

from __future__ import annotations

import random
from importlib.util import find_spec

import numpy
import torch
from tests import packages

from .case import Case
from .cases import footguns, kept, models, policies, shapes, state, timm, transformers, values, vision

GROUPS = (values, shapes, state, kept, models, policies, transformers, vision, timm, footguns)


def cases() -> list[Case]:
    """Every case whose packages are here."""
    return [case for case in everything() if has(case.needs)]


def everything() -> list[Case]:
    """Every case."""
    return [case for module in GROUPS for case in module.group.cases]


def has(package: str | None) -> bool:
    """Whether a package can be imported."""
    if package in packages.VISION:
        return not packages.missing()
    return package is None or find_spec(package) is not None


def seed() -> None:
    """Every case begins with the same random numbers."""
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
