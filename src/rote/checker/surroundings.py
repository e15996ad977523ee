"""What a call may change besides the state that a walk sees: its arguments, modes, the host's generators."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any, NamedTuple

import torch

from ..base import identity
from ..hazards import rules
from ..hazards.rules import Rule, Severity
from ..runtime.arguments import Spec, containers, explain_ambient, flatten, read_ambient
from ..runtime.numbers import HostRandom
from ..runtime.reads.trace import PLAIN_TYPES

AGAIN = "replays of rote do that again, a graph captured by hand does not"


class SurroundingEffect(NamedTuple):
    """What a call does to its surroundings; the severity is the rule's if None."""

    rule: Rule
    text: str
    severity: Severity | None = None


def handed_back(value: Any, apart: Container[int]) -> Iterator[SurroundingEffect]:
    """A list or dict in the result that the callable keeps, and of which no condition says which it is.

    A graph captured by hand goes on filling the same tensors, so nothing is wrong; rote does not record the
    call.
    """
    for branch in containers(flatten(value, []), value):
        if identity(branch) in apart and not isinstance(branch, tuple):
            kind = type(branch).__name__
            text = f"the result contains a {kind} that the callable keeps, and rote does not record the call"
            yield SurroundingEffect(rules.CONTAINER_RETURNED, text, Severity.SPEED)
            return


class Surroundings:
    """The surroundings of a call before it; ``random`` are the host's generators."""

    def __init__(self, spec: Spec, leaves: list[Any], names: list[str]) -> None:
        self._spec = spec
        self._leaves = leaves
        self._names = names
        self._ambient = read_ambient()
        self._forms = [_form(leaf) for leaf in leaves]
        self.random = HostRandom.read(of_devices=False)

    def effects(self, args: Any, kwargs: Any, value: Any) -> Iterator[SurroundingEffect]:
        """What the call, which returned ``value``, has changed."""
        leaves: list[Any] = []
        spec = flatten((args, kwargs), leaves)
        if spec != self._spec or any(a is not b for a, b in zip(leaves, self._leaves, strict=True)):
            yield self._stored(spec, leaves)
        for name, was, leaf in zip(self._names, self._forms, self._leaves, strict=True):
            now = _form(leaf)
            if now != was:
                yield SurroundingEffect(rules.RESHAPED, f"{name} was {was} before the call and is {now}")
        if isinstance(value, Iterator):
            text = f"the call returns a {type(value).__name__}, which runs when the call is over"
            yield SurroundingEffect(rules.OPAQUE_OUTPUT, text)
        changed = explain_ambient(self._ambient, read_ambient())
        if changed is not None:
            yield SurroundingEffect(rules.AMBIENT_CHANGES, f"the call leaves another mode: {changed}")

    def _stored(self, spec: Spec, leaves: list[Any]) -> SurroundingEffect:
        text = "the call stores something in one of its arguments"
        known = {id(leaf) for leaf in self._leaves}
        new = [leaf for leaf in leaves if id(leaf) not in known]
        again = all(isinstance(leaf, torch.Tensor) or type(leaf) in PLAIN_TYPES for leaf in new)
        if again and _branches(spec) <= _branches(self._spec):
            return SurroundingEffect(rules.ARGUMENT_CHANGED, f"{text}; {AGAIN}", Severity.SPEED)
        return SurroundingEffect(rules.ARGUMENT_CHANGED, text)


def _branches(spec: Spec) -> int:
    """How many lists, dicts and objects a structure has."""
    return 0 if spec is None else 1 + sum(map(_branches, spec[3]))


def _form(leaf: Any) -> str:
    """Shape and strides of a tensor as text; nothing for other values."""
    if not isinstance(leaf, torch.Tensor) or leaf.layout is not torch.strided:
        return ""
    return f"{list(leaf.shape)} with strides {list(leaf.stride())}"
