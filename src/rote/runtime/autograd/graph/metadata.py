"""What a tensor is besides its values: its place in the graph, its hooks, its memory, its attributes.

A replay writes memory and nothing else. So a call that changes one of these on a tensor which the caller has
(``x.detach_()``, ``x.register_hook(...)``, ``x.tag = 1``) is not recorded. Arguments are looked at before and
after each traced call. Tensors of the state are looked at where the call uses a function that may do it;
their attributes and their memory are slots of the state, :mod:`...program.gradients` watches their gradients,
and :class:`..tracked.GradientUse` whether they require grad.
"""

from __future__ import annotations

import weakref
from collections.abc import Container
from typing import Any

import torch

from ....base import Site
from ....hazards import rules
from ....hazards.rules import Reason, Rule, reason
from ...objects import hooks_of, mark
from ...program import history_of
from ...pytorch import has_memory, plain_functions
from ...state import MISSING, same, show

OUTSIDE = "Do it outside of the call, before or after it."

_RULES: dict[str, Rule] = {
    "the class": rules.ARGUMENT_CHANGED,
    "requires_grad": rules.INPUT_GRADIENT,
    "the history": rules.INPUT_GRADIENT,
    "the gradient": rules.INPUT_GRADIENT,
    "retains_grad": rules.GRADIENT_HOOK,
    "the number of hooks": rules.GRADIENT_HOOK,
    "the memory": rules.RESHAPED,
}
"""What is compared, and the rule that a change of it breaks."""
_LEFT = frozenset({"requires_grad", "the gradient"})
_OF_STATE = frozenset({"the history", "retains_grad", "the number of hooks"})


class Metadata:
    """What one tensor, called so by the user, is before a call; ``given`` as an argument or not."""

    def __init__(self, tensor: torch.Tensor, name: str, *, given: bool) -> None:
        self._tensor, self._name, self._given = weakref.ref(tensor), name, given
        self._facts, self._attributes = self._look(tensor)

    @property
    def tensor(self) -> torch.Tensor | None:
        """The tensor, if it is alive."""
        return self._tensor()

    def _look(self, tensor: torch.Tensor) -> tuple[list[Any], dict[str, Any]]:
        attributes = vars(tensor) if self._given else {}
        return _facts_of(tensor), {name: mark(value) for name, value in attributes.items()}

    @property
    def asks(self) -> bool:
        """Whether the tensor required grad."""
        return self._facts[1]

    def change(self, site: Site, left: Container[int] = ()) -> Reason | None:
        """What the call has changed of the tensor, if anything, perhaps in this line.

        Not whether those in ``left``, by identity, require grad, and their gradients: replays leave them so.
        """
        tensor = self._tensor()
        if tensor is None:
            return None
        again = _LEFT if id(tensor) in left else frozenset()
        facts, attributes = self._look(tensor)
        for (what, rule), was, now in zip(_RULES.items(), self._facts, facts, strict=True):
            compared = what not in again and (self._given or what in _OF_STATE)
            if compared and not _is_same(was, now):
                text = f"{what} of {self._name} was {_text(was)} and is {_text(now)}"
                return reason(rule, text, site, OUTSIDE)
        for name in (*self._attributes, *attributes):
            was, now = self._attributes.get(name, MISSING), attributes.get(name, MISSING)
            if not same(was, now):
                text = f"{self._name}.{name} was {_shown(was)} and is {_shown(now)}"
                return reason(rules.ARGUMENT_CHANGED, text, site, OUTSIDE)
        return None


def tagged(results: list[torch.Tensor], tags: set[tuple[int, Any]], site: Site) -> Reason | None:
    """Why results that the call has made cannot be handed out by a replay: they have attributes.

    Attributes that a replay sets, too, are in ``tags``, behind the identity of their tensor.
    """
    for result in results:
        for name in [name for name in vars(result) if (id(result), name) not in tags]:
            text = f"the attribute {name!r} is set on a tensor of the result"
            return reason(rules.OPAQUE_OUTPUT, text, site, "Return the value beside the tensor.")
    return None


def _facts_of(tensor: torch.Tensor) -> list[Any]:
    """What is compared, in the order of the rules; objects, whose identity lasts while they are kept here."""
    with plain_functions():
        return [
            type(tensor),
            tensor.requires_grad,
            history_of(tensor),
            tensor.grad if tensor.is_leaf else None,
            tensor.retains_grad,
            tuple([key for _, table in hooks_of(tensor) for key in table]),
            tensor.data_ptr() if has_memory(tensor) else 0,
        ]


def _is_same(was: Any, now: Any) -> bool:
    return was is now or (type(was) is type(now) and isinstance(was, (bool, int, tuple)) and was == now)


def _text(fact: Any) -> str:
    if isinstance(fact, tuple):
        return str(len(fact))  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(fact, bool) or fact is None:
        return str(fact)
    if isinstance(fact, int):
        return f"at {fact:#x}"
    if isinstance(fact, torch.Tensor):
        return "a tensor"
    return fact.__name__ if isinstance(fact, type) else fact.name()


def _shown(value: Any) -> str:
    return "absent" if value is MISSING else show(value)
