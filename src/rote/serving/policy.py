"""What is served: an object that infers numpy arrays from numpy arrays, or a callable between tensors.

A *policy* in openpi's sense, an object with ``infer(observation)``, gets the observation as it came, and
decides itself what of it is graphed: arrays come anew with each call, so there is nothing around ``infer`` to
replay.

A *callable* gets the observation with tensors in the place of arrays, and returns tensors. That is what can
be replayed, and the server graphs it with ``keep=True``, since a client that controls something cannot bear a
plain call in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch

from ..api import Graphed, graph
from ..base import MisuseError

EXAMPLE = "example_observation"
"""The entry of a policy's metadata that clients do not get: observations for the warm-up."""


@dataclass(frozen=True)
class Served:
    """A policy, ready to be called.

    Attributes:
        metadata: What each client is told first.
        examples: Observations as clients send them.
        reset: Forgets the episode; None if there is nothing to forget.
        graphed: What is replayed, if that is known.
        device: Where tensors are made of arrays; None leaves the arrays.
        plain: What ``function`` is without graphs.
    """

    function: Callable[[Any], Any]
    metadata: Mapping[str, Any]
    examples: tuple[Any, ...]
    reset: Callable[[], object] | None
    graphed: Graphed | None
    device: torch.device | None
    plain: Callable[[Any], Any]

    def infer(self, observation: Any) -> Mapping[Any, Any]:
        """What the policy says to an observation; what is no mapping becomes ``{"actions": ...}``."""
        given = observation if self.device is None else _tensors(observation, self.device)
        result = self.function(given)
        return cast("Mapping[Any, Any]", result) if isinstance(result, Mapping) else {"actions": result}

    def without_graphs(self) -> Served:
        """The same policy, called plainly."""
        return replace(self, function=self.plain, graphed=None)


def served(
    made: Any,
    *,
    graphs: bool | None = None,
    device: str | None = None,
    examples: Sequence[Any] = (),
    name: str = "the target",
) -> Served:
    """What a target returned, ready to be served.

    Args:
        made: An object with ``infer``, and perhaps ``metadata``, ``reset`` and ``graphed``; or a callable,
            graphed or not.
        graphs: Whether a callable is graphed; None graphs callables.
        device: Where a callable gets its tensors; None is where its first parameter lies, or the host.
        examples: Observations as clients send them; without any, those of the metadata.
        name: What errors call it.

    Raises:
        MisuseError: It is neither, has malformed metadata, or is to be graphed and has ``infer``.
    """
    metadata = _metadata(made, name)
    own = metadata.pop(EXAMPLE, ())
    given = tuple(examples) or (tuple(cast("list[Any]", own)) if isinstance(own, (list, tuple)) else (own,))
    infer = None if isinstance(made, Graphed) else getattr(made, "infer", None)  # a Graphed has what it wraps
    if callable(infer):
        _check_policy(graphs, device, name)
        reset, known = getattr(made, "reset", None), getattr(made, "graphed", None)
        graphed = known if isinstance(known, Graphed) else None
        return Served(infer, metadata, given, reset, graphed, None, infer)
    if not callable(made):
        raise MisuseError(
            f"{name} returned a {type(made).__name__}; a target returns an object with infer(observation), "
            "or a callable"
        )
    place = torch.device(device) if device is not None else _place(made)
    if isinstance(made, Graphed):
        return Served(made, metadata, given, None, made, place, made)
    graphed = graph(made, keep=True) if graphs is not False else None
    return Served(graphed or made, metadata, given, None, graphed, place, made)


def _check_policy(graphs: bool | None, device: str | None, name: str) -> None:
    if graphs:
        raise MisuseError(
            f"{name} returned an object with infer, which takes and returns arrays: graph what infer calls "
            "between tensors, in the target (rote.graph(..., keep=True)), or return a callable of tensors"
        )
    if device is not None:
        raise MisuseError(
            f"{name} returned an object with infer, which gets arrays and no tensors: leave device out"
        )


def _metadata(made: Any, name: str) -> dict[str, Any]:
    found = getattr(made, "metadata", None)
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise MisuseError(f"{name}: metadata is to be a mapping, and is a {type(found).__name__}")
    return dict(cast("Mapping[str, Any]", found))


def _place(function: Callable[..., Any]) -> torch.device:
    parameters = getattr(function, "parameters", None)
    first: Any = next(cast("Any", parameters()), None) if callable(parameters) else None
    return first.device if isinstance(first, torch.Tensor) else torch.device("cpu")


def _tensors(value: Any, device: torch.device) -> Any:
    """An observation with tensors in the place of numpy's arrays and numbers; texts stay as they are."""
    if isinstance(value, np.ndarray):
        array = cast("np.ndarray[Any, Any]", value)
        return array if array.dtype.kind in "US" else torch.from_numpy(array).to(device)
    if isinstance(value, np.generic) and value.dtype.kind not in "US":
        return torch.from_numpy(np.array(value)).to(device)
    if isinstance(value, dict):
        return {key: _tensors(each, device) for key, each in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list):
        return [_tensors(each, device) for each in cast("list[Any]", value)]
    return value
