"""What PyTorch offers only under private names, seen in 2.11 and 2.13."""

from __future__ import annotations

import torch


def profiler_is_running() -> bool:
    """Whether a profiler is active in this thread.

    A second profiler would end the first one's recording without a word.
    """
    return torch.autograd._profiler_enabled()  # pyright: ignore[reportPrivateImportUsage]
