"""Sizes of memory as people write and read them."""

from __future__ import annotations

import re

from ...base import OptionError

_UNITS = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_FORM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)


def parse_size(value: int | str | None, name: str) -> int | None:
    """A number of bytes from an option.

    Args:
        value: Bytes, a number with a unit (``"2GiB"``, ``"500 MB"``), or None for no limit.

    Raises:
        OptionError: The value is no positive size.
    """
    if value is None:
        return None
    size: int | None = None
    if isinstance(value, str):
        found = _FORM.fullmatch(value)
        factor = _UNITS.get(found[2].lower()) if found else None
        size = int(float(found[1]) * factor) if found and factor else None
    elif type(value) is int:
        size = value
    if size is None or size < 1:
        raise OptionError(
            f"{name}={value!r} must be None, a positive number of bytes or a string like '2GiB' or '500 MB'"
        )
    return size


def format_size(nbytes: int) -> str:
    """Bytes in the binary unit that fits: ``1.5 MiB``."""
    size = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
