"""State of PyTorch's training helpers, so that messages can name what a step depends on.

A ``GradScaler`` replaces its table of per-optimizer stages by a new, empty one in ``update``. All empty
tables count as equal: nobody else holds them.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from typing import Any, NamedTuple

import torch
from torch.optim.lr_scheduler import LRScheduler

from ..pytorch import fresh_scaler_state


class ParameterGroup(NamedTuple):
    """A parameter group."""

    optimizer: weakref.ref[torch.optim.Optimizer]
    number: int


class Training:
    """The training helpers found in the state."""

    def __init__(self) -> None:
        self.groups: dict[int, ParameterGroup] = {}  # by the identity of their dicts
        # class names of the schedulers, by the identity of their ``__dict__``
        self.schedulers: dict[int, str] = {}

    def meet(self, value: Any) -> None:
        """Note an object, if it is a training helper."""
        kind: type = type(value)  # isinstance would ask the object, which may lie or be a dead proxy
        if issubclass(kind, torch.optim.Optimizer):
            reference = weakref.ref(value)
            for number, group in enumerate(value.param_groups):
                self.groups[id(group)] = ParameterGroup(reference, number)
        elif issubclass(kind, LRScheduler):
            self.schedulers[id(value.__dict__)] = kind.__name__


def is_empty_stage_table(value: Any) -> bool:
    """Whether a value is the empty table of a ``GradScaler``."""
    return type(value) is defaultdict and not value and value.default_factory is fresh_scaler_state
