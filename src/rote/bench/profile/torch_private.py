"""What PyTorch offers only under private names, seen in 2.11 and 2.13."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch

_enabled: Any = getattr(torch.autograd, "_profiler_enabled", None)


def profiler_is_running() -> bool:
    """Whether a profiler is active in this thread; without the private query, always False.

    A second profiler would end the first one's recording without a word.
    """
    return _enabled is not None and cast("Callable[[], bool]", _enabled)()
