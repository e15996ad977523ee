"""What PyTorch's training helpers keep in Python, and how much of it a training step depends on.

- A learning-rate scheduler counts its steps, between calls, in attributes that only its own methods read.
  What a step depends on is the learning rate in the optimizer's group, which is a slot of its own. So the
  scheduler's slots are watched (a call that steps it changes Python state), but of the guard only those are
  part that the call can read: attributes that its code names, and all if its code names one of the methods.
- A ``GradScaler`` throws its table of per-optimizer stages away in ``update`` and makes a new, empty one. Two
  empty tables are alike: nobody else holds them.

What this does not see: an attribute of a scheduler that is read by a name put together at run time, or by a
getter that was made outside of the call (``operator.attrgetter``).
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from typing import Any, NamedTuple

import torch
from torch.optim.lr_scheduler import LRScheduler

from .compat import fresh_scaler_state

_SHARED_NAMES = frozenset({"step", "optimizer"})
"""Names of a scheduler that training code mentions anyway, on the optimizer."""

_WHOLE = frozenset({"__dict__", "vars", "deepcopy"})
"""Names by which all attributes of an object are read at once."""


class Group(NamedTuple):
    """A parameter group.

    Attributes:
        optimizer: Its optimizer, weakly.
        number: Its position there.
    """

    optimizer: weakref.ref[torch.optim.Optimizer]
    number: int


class Training:
    """The training helpers that a walk has met.

    Args:
        mentioned: Names and strings in the code that the call runs.

    Attributes:
        groups: Parameter groups, by the identity of their dicts.
        schedulers: Classes of the schedulers, by the identity of their ``__dict__``.
        read: For each scheduler of which the call reads no method: the attributes it may read.
    """

    def __init__(self, mentioned: set[str]) -> None:
        self.groups: dict[int, Group] = {}
        self.schedulers: dict[int, str] = {}
        self.read: dict[int, set[str]] = {}
        self._mentioned = mentioned

    def meet(self, value: Any) -> None:
        """Note an object, if it is a training helper."""
        if isinstance(value, torch.optim.Optimizer):
            reference = weakref.ref(value)
            for number, group in enumerate(value.param_groups):
                self.groups[id(group)] = Group(reference, number)
        elif isinstance(value, LRScheduler):
            self.schedulers[id(value.__dict__)] = type(value).__name__
            methods = {name for name in dir(type(value)) if not name.startswith("__")} - _SHARED_NAMES
            if self._mentioned.isdisjoint(methods | _WHOLE):
                self.read[id(value.__dict__)] = self._mentioned & value.__dict__.keys()

    def is_guarded(self, container: Any, key: Any) -> bool:
        """Whether a slot is part of a guard; attributes of a scheduler that the call cannot read are not."""
        read = self.read.get(id(container))
        return read is None or key in read


def is_empty_stage_table(value: Any) -> bool:
    """Whether a value is the empty table of a ``GradScaler``."""
    return (
        type(value) is defaultdict
        and not value
        and value.default_factory is not None
        and value.default_factory is fresh_scaler_state
    )
