"""A target as a model and its calibration batches.

The callable of a target is a ``torch.nn.Module``, or a method of one (``policy.sample_actions``). Its
arguments are those of one call, the only batch; or one list, iterator or ``DataLoader`` of batches, as
``(model, (batches,))``. A batch that is a mapping holds keyword arguments, a tuple holds arguments, anything
else is the one argument. Keyword arguments of the target go with every batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, cast

import torch
from torch import nn
from torch.utils.data import DataLoader

from ...base import MisuseError, RoteError
from .target import CommandTarget

Call = tuple[tuple[Any, ...], dict[str, Any]]


def model_of(target: CommandTarget) -> nn.Module:
    """The module that a target calls; a MisuseError if it calls something else."""
    for found in (target.function, getattr(target.function, "__self__", None)):
        if isinstance(found, nn.Module):
            return found
    raise MisuseError(
        f"{target.name} returned a {type(target.function).__name__} to call, and whose layers are meant "
        "cannot be seen from it: return the torch.nn.Module itself, or a method of it"
    )


def batches_of(target: CommandTarget, most: int) -> list[Call]:
    """The arguments of the first ``most`` batches; a MisuseError if there is none, or taking them raises."""
    if len(target.args) != 1 or not isinstance(target.args[0], list | Iterator | DataLoader):
        return [(target.args, target.kwargs)]
    try:
        found = list(islice(iter(cast(Any, target.args[0])), most))
    except Exception as error:
        raise MisuseError(f"the batches of {target.name} raised {type(error).__name__}: {error}") from error
    if not found:
        raise MisuseError(f"{target.name} returned no batches to calibrate with")
    return [_call(batch, target.kwargs) for batch in found]


def _call(batch: Any, kwargs: dict[str, Any]) -> Call:
    if isinstance(batch, Mapping):
        return (), {**kwargs, **batch}
    return (batch if isinstance(batch, tuple) else (batch,)), kwargs


@torch.no_grad()
def run(target: CommandTarget, call: Call, place: str) -> None:
    """Run one batch; what it raises becomes a MisuseError that names the ``place``."""
    args, kwargs = call
    try:
        target.function(*args, **kwargs)
    except RoteError:
        raise
    except Exception as error:
        text = f"{target.name} raised {type(error).__name__} in {place}: {error}"
        if isinstance(error, TypeError):  # perhaps the arguments were meant as batches
            text += ". What comes with the model are the arguments of one call, or one list: "
            text += "(model, (batches,))"
        raise MisuseError(text) from error
