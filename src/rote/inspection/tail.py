"""The slow end of many times."""

from __future__ import annotations

from collections.abc import Sequence

import numpy


def p99(times: Sequence[float]) -> float:
    """The 99th percentile: the least time that 99 % of them do not exceed; of fewer than 100 the longest."""
    return float(numpy.percentile(times, 99, method="inverted_cdf"))
