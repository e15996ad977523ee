"""What a call may change beside the state that a walk sees: its arguments, modes, the host's generators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ..hazards import rules
from ..hazards.rules import Rule
from ..recording.run import HostRandom
from ..signature.ambient import explain_ambient, read_ambient
from ..signature.leaves import Spec, flatten


class Surroundings:
    """The surroundings of a call, as they are before it.

    Args:
        spec: Structure of its arguments.
        leaves: Their leaves.
        names: Names of the leaves.

    Attributes:
        random: The host's generators.
    """

    def __init__(self, spec: Spec, leaves: list[Any], names: list[str]) -> None:
        self._spec = spec
        self._leaves = leaves
        self._names = names
        self._ambient = read_ambient()
        self._forms = [_form(leaf) for leaf in leaves]
        self.random = HostRandom.read()

    def effects(self, args: Any, kwargs: Any, value: Any) -> list[tuple[Rule, str]]:
        """What the call has changed, by rule.

        Args:
            args: The positional arguments it was given.
            kwargs: The keyword arguments it was given.
            value: What it returned.
        """
        return [*self._stored(args, kwargs), *self._reshaped(), *self._returned(value), *self._modes()]

    def _stored(self, args: Any, kwargs: Any) -> Iterator[tuple[Rule, str]]:
        leaves: list[Any] = []
        spec = flatten((args, kwargs), leaves)
        if spec != self._spec or any(a is not b for a, b in zip(leaves, self._leaves, strict=True)):
            yield rules.ARGUMENT_CHANGED, "the call stores something in one of its arguments"

    def _reshaped(self) -> Iterator[tuple[Rule, str]]:
        for name, was, leaf in zip(self._names, self._forms, self._leaves, strict=True):
            now = _form(leaf)
            if now != was:
                yield rules.RESHAPED, f"{name} was {was} before the call and is {now}"

    def _returned(self, value: Any) -> Iterator[tuple[Rule, str]]:
        if isinstance(value, Iterator):
            text = f"the call returns a {type(value).__name__}, which runs when the call is over"
            yield rules.OPAQUE_OUTPUT, text

    def _modes(self) -> Iterator[tuple[Rule, str]]:
        changed = explain_ambient(self._ambient, read_ambient())
        if changed is not None:
            yield rules.AMBIENT_CHANGES, f"the call leaves another mode: {changed}"


def _form(leaf: Any) -> str:
    """Shape and strides of a tensor as text; nothing for other values."""
    if not isinstance(leaf, torch.Tensor) or leaf.layout is not torch.strided:
        return ""
    return f"{list(leaf.shape)} with strides {list(leaf.stride())}"
