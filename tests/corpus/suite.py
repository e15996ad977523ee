"""All cases of the corpus."""

from __future__ import annotations

from importlib.util import find_spec

from . import vision as vision_packages
from .case import Case
from .cases import models, shapes, state, timm, transformers, values, vision

GROUPS = (values, shapes, state, models, transformers, vision, timm)


def cases() -> list[Case]:
    """Every case whose packages are here."""
    return [case for case in everything() if _has(case.needs)]


def everything() -> list[Case]:
    """Every case."""
    return [case for module in GROUPS for case in module.group.cases]


def _has(package: str | None) -> bool:
    if package in ("torchvision", "timm"):
        return not vision_packages.missing()
    return package is None or find_spec(package) is not None
