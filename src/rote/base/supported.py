"""The versions of Python and PyTorch that rote works with; others are refused with a sentence.

rote reads CPython's bytecode, and uses what PyTorch has under private names only. In a version that nobody
has tried, replays might be silently different, which is worse than none.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, version

from .errors import EnvironmentError_
from .settings import read_settings

PYTHON = ((3, 11), (3, 14))
TORCH = ((2, 11), (2, 14))
"""From the first, up to but without the second."""

Bounds = tuple[tuple[int, int], tuple[int, int]]


def check_versions(torch: str | None = None, python: tuple[int, int] | None = None) -> None:
    """Refuse versions outside, unless ``ROTE_UNTRIED_VERSIONS=1``.

    Args:
        torch: PyTorch's version, by default of what is installed.
        python: Python's version, by default the one that runs.

    Raises:
        EnvironmentError_: One of them is outside, or there is no PyTorch.
    """
    if read_settings().untried_versions:
        return
    _check("Python", PYTHON, ".".join(map(str, python or sys.version_info[:2])))
    try:
        _check("PyTorch", TORCH, torch or version("torch"))
    except PackageNotFoundError:
        raise EnvironmentError_(
            f"rote needs PyTorch {_told(TORCH)}, and none is installed: pip install torch"
        ) from None


def _check(what: str, tried: Bounds, found: str) -> None:
    numbers = re.match(r"(\d+)\.(\d+)", found)
    least, end = tried
    if numbers is None or not least <= (int(numbers[1]), int(numbers[2])) < end:
        text = f"rote works with {what} {_told(tried)}, and this is {found}"
        remedy = "install one of these, or set ROTE_UNTRIED_VERSIONS=1 to go on at your own risk"
        raise EnvironmentError_(f"{text}: {remedy}")


def _told(tried: Bounds) -> str:
    (major, least), (_, end) = tried
    return f"{major}.{least} to {major}.{end - 1}"
