"""How much a graphed callable has recorded."""

from __future__ import annotations

from ..api import Graphed


def count_recordings(graphed: Graphed) -> int:
    """Count the recordings that are alive: one for each key and each set of external tensors.

    Args:
        graphed: What :func:`..graph` returned.
    """
    return len(graphed.report().recordings)
