"""What makes a time: the slow end of many, and a result that has really been calculated."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine, Generator, Sequence
from typing import Any

import numpy

from ...base import MisuseError


def p99(times: Sequence[float]) -> float:
    """The 99th percentile: the least time that 99 % of them do not exceed; of fewer than 100 the longest."""
    return float(numpy.percentile(times, 99, method="inverted_cdf"))


def refuse_unread(result: Any) -> None:
    """Raise a MisuseError for a generator or a coroutine: its code has not run yet."""
    if isinstance(result, Coroutine):
        result.close()  # or Python warns that nobody awaited it
        instead = "runs it to its end, as lambda *args: asyncio.run(fn(*args))"
    elif isinstance(result, AsyncGenerator):
        instead = "reads it to its end, in a coroutine for asyncio.run"
    elif isinstance(result, Generator):
        instead = "reads it to its end, as lambda *args: list(fn(*args))"
    else:
        return
    kind = type(result).__name__
    article = "an" if kind.startswith("a") else "a"
    found = f"the callable returned {article} {kind}, which has run nothing yet"
    raise MisuseError(f"{found}: measure a function that {instead}")
