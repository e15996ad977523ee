"""Whether anything was done to gradient slots since a replay showed its gradients there, in three questions.

Asked slot by slot that takes 2 to 3 us: is the gradient there that was shown, are there hooks, and does
anybody else hold it, as an object, from C++, or through a view? Counts and addresses in memory say all that
(:mod:`..fingerprint.words`), and a replay notes them. As long as none has changed, every slot is as the
replay left it; where one has, all are asked.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from ..fingerprint import (
    BYTES,
    Layout,
    NotedWords,
    Owners,
    WatchedWords,
    find_layout,
    find_owners,
    is_readable,
    places,
    read,
    word,
)
from ..program import GradientEffect

Slots = Sequence[tuple[weakref.ref[torch.Tensor], Any]]
"""Parameters, weakly, each with the state its slot has to be in."""


def note_gradients(slots: Slots, effects: list[GradientEffect]) -> WatchedWords | None:
    """Note the slots after a replay, or once all are empty; None where others hold gradients by now."""
    layout, owners = find_layout(), find_owners()
    if layout is None or owners is None or not all([each.stands() or each.rests() for each in effects]):
        return None
    references = {id(reference()): reference for reference, _ in slots}
    references.update({id(effect.parameter()): effect.parameter for effect in effects})
    if id(None) in references:
        return None
    # No name may hold a gradient while the words are read: it would count as one that holds it.
    stages = _stages(layout, owners, list(references.values()), effects)
    if stages is None:
        return None
    alive = [tensor for reference in references.values() if (tensor := reference()) is not None]
    return WatchedWords(NotedWords(*stages), alive)


def _stages(
    layout: Layout, owners: Owners, references: list[weakref.ref[torch.Tensor]], effects: list[GradientEffect]
) -> tuple[list[int], ...] | None:
    objects: list[int] = []
    bodies: list[int] = []
    ends: list[int] = []
    for reference in references:
        parameter = reference()
        if parameter is None or not _is_clean(layout, owners, parameter):
            return None
        objects += places(id(parameter), [layout.body, *owners.hooks])
        bodies += places(parameter._cdata, [layout.autograd])
        autograd = word(parameter._cdata, layout.autograd)
        ends += places(autograd, [owners.gradient]) if autograd else []
    for effect in effects:
        if effect.shown is not None and effect.storage is not None:
            shown = effect.shown  # alive, and so is the storage, as long as the effect has them
            if not is_readable(layout, shown):
                return None
            objects += places(id(shown), [0, layout.body])
            objects += places(effect.storage._cdata, [owners.storage])
            bodies += places(shown._cdata, [owners.body, *layout.of_body(shown.dim())])
            autograd = word(shown._cdata, layout.autograd)
            ends += places(autograd, layout.flags) if autograd else []
    return objects, bodies, ends


def _is_clean(layout: Layout, owners: Owners, parameter: torch.Tensor) -> bool:
    """Whether a parameter never had hooks, and the words say of its gradient what it says."""
    head = read(id(parameter), type(parameter).__basicsize__ // BYTES)
    if head[layout.body] != parameter._cdata or any(head[place] for place in owners.hooks):
        return False
    autograd = word(parameter._cdata, layout.autograd)
    gradient = parameter.grad
    found = word(autograd, owners.gradient) if autograd else 0
    return found == gradient._cdata if gradient is not None else found in (0, _undefined(layout, owners))


@cache
def _undefined(layout: Layout, owners: Owners) -> int:
    """The word of a slot that was emptied: the address of the one tensor that is none."""
    parameter = torch.zeros(1, requires_grad=True)
    parameter.grad = torch.zeros(1)
    parameter.grad = None
    return word(word(parameter._cdata, layout.autograd), owners.gradient)
