"""Seeds PyTorch's generators, and nothing else."""

from __future__ import annotations

import torch


def seed(number: int) -> None:
    """What ``torch.manual_seed`` does; that writes a traceback for each kind of device that is not in use."""
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(number)
