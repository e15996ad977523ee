"""What the reference lists: every public name, functions before classes, exceptions on another page."""

from __future__ import annotations

from types import ModuleType

import rote

ELSEWHERE = frozenset({"rote.Options"})
"""Names that have a page of their own."""

_MEMBERS: dict[str, tuple[str, ...]] = {
    "rote.Graphed": ("__call__", "report", "explain", "save_report", "trace", "reset"),
    "rote.Padded": ("__call__", "report", "explain", "reset"),
    "rote.quant.calibrate": (),
    "rote.quant.CalibrationStats": ("done", "end_batch", "skip_batch", "combine", "check", "save", "load"),
    "rote.quant.DuQuantLinear": (
        "forward",
        "weight",
        "effective_weight",
        "codes",
        "set_path",
        "refresh",
        "note",
    ),
}
"""What is shown of a class whose other members are not for users."""


def listed(package: ModuleType) -> str:
    """The public functions and classes of a package, for the plugin that shows docstrings."""
    names = [name for name in package.__all__ if not _is_error(getattr(package, name))]
    names.sort(key=lambda name: (isinstance(getattr(package, name), type), name.lower()))
    full = [f"{package.__name__}.{name}" for name in names]
    return "\n\n".join(_shown(name) for name in full if name not in ELSEWHERE)


def errors() -> str:
    """The exceptions that rote raises: a family, then its members."""
    found = [kind for name in rote.__all__ if _is_error(kind := getattr(rote, name))]
    found.sort(
        key=lambda kind: [
            base.__name__ for base in reversed(kind.__mro__) if base.__module__.partition(".")[0] == "rote"
        ]
    )
    return "\n\n".join(_shown(f"rote.{kind.__name__}") for kind in found)


def _shown(name: str) -> str:
    members = _MEMBERS.get(name)
    options = f"\n    options:\n      members: [{', '.join(members)}]" if members is not None else ""
    return f"::: {name}{options}"


def _is_error(found: object) -> bool:
    return isinstance(found, type) and issubclass(found, BaseException)
