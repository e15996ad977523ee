"""The figure that a picture is drawn on."""

from __future__ import annotations

from typing import Any

from .errors import EnvironmentError_

NO_MATPLOTLIB = "a picture needs matplotlib: pip install 'rote[plots]'"


def figure(height: float) -> Any:
    """A figure of ten by ``height`` inches, outside any window and matplotlib's global state."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise EnvironmentError_(NO_MATPLOTLIB) from error
    return Figure(figsize=(10, height), layout="constrained")
