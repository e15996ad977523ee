"""The ``.grad`` slots of external parameters, which a training step changes without returning anything.

A step that clears its gradients with ``set_to_none`` leaves fresh tensors in ``.grad``. In a recording they
are static memory: after each replay ``.grad`` shows that memory. Somebody who still holds the gradient of an
earlier step would see it change, so before each replay the storage is asked how many owners it has; when there
is one more than the recording itself, the recording stops handing out its memory and copies instead.

What is not recorded: a call that leaves a gradient where there was none (forward and backward inside,
optimizer outside). Replaying it would need to know whether the next call accumulates.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import torch

from ..base.location import Site
from ..hazards import rules
from ..hazards.rules import Reason, reason
from .compat import storage_owners
from .ledger import NEW, Ledger

OWNERS = 2
"""References to a static gradient's storage that are the recording's own: the alias and the handle."""


@dataclass
class GradientEffect:
    """A parameter whose ``.grad`` a call replaces.

    Attributes:
        parameter: The parameter, weakly.
        name: Its name, for messages.
        static: The gradient in the recording's memory, or None if the call clears the slot.
        storage: Handle of the static memory, kept to count its owners.
    """

    parameter: weakref.ref[torch.Tensor]
    name: str
    static: torch.Tensor | None
    storage: torch.UntypedStorage | None

    def ready(self) -> bool:
        """Whether the slot holds a gradient, as it did when the call was recorded."""
        parameter = self.parameter()
        return parameter is not None and parameter.grad is not None

    def withdraw(self) -> bool:
        """Empty the slot before a replay; False if somebody else still holds the static gradient."""
        parameter = self.parameter()
        if parameter is None:
            return True
        parameter.grad = None
        return self.storage is None or storage_owners(self.storage) <= OWNERS

    def restore(self) -> None:
        """Leave the static memory to whoever holds it: its tensors move to memory of their own."""
        parameter = self.parameter()
        if self.storage is not None and self.static is not None:
            self.storage.resize_(self.storage.nbytes())
            if parameter is not None:
                parameter.grad = self.static.detach()

    def hand_out(self, copy: bool) -> None:
        """Show the replayed gradient in the slot."""
        parameter = self.parameter()
        if parameter is not None and self.static is not None:
            parameter.grad = self.static.clone() if copy else self.static.detach()


class GradientWatch:
    """Compares the ``.grad`` slots of parameters before and after a call.

    Args:
        leaves: The reachable parameters with their names.
    """

    def __init__(self, leaves: list[tuple[str, torch.Tensor]]) -> None:
        self._before = {id(tensor): (tensor, name, tensor.grad) for name, tensor in leaves}

    def leaves(self) -> list[tuple[str, weakref.ref[torch.Tensor]]]:
        """The parameters, weakly, to watch them again at another call."""
        return [(name, weakref.ref(tensor)) for tensor, name, _ in self._before.values()]

    def gradients(self) -> list[tuple[str, torch.Tensor, torch.Tensor]]:
        """The parameters that had a gradient before the call: name, parameter, gradient."""
        return [(name, tensor, grad) for tensor, name, grad in self._before.values() if grad is not None]

    def presence(self) -> list[tuple[weakref.ref[torch.Tensor], bool]]:
        """For each parameter whether it had a gradient before the call."""
        return [(weakref.ref(tensor), grad is not None) for tensor, _, grad in self._before.values()]

    def changed(self, ledger: Ledger, site: Site) -> tuple[list[GradientEffect], list[Any], list[Reason]]:
        """What the call did to the slots: effects, their comparable form, and reasons against replaying."""
        effects: list[GradientEffect] = []
        keys: list[Any] = []
        blockers: list[Reason] = []
        for tensor, name, before in self._before.values():
            after = tensor.grad
            if after is before:
                continue
            if after is None:
                effects.append(GradientEffect(weakref.ref(tensor), name, None, None))
                keys.append((name, "cleared"))
                continue
            token = ledger.token(after)
            keys.append((name, token))
            if before is None:
                text = f"{name}.grad was None before the call and holds a gradient after it"
                blockers.append(reason(rules.GRADIENT_LEAVES, text, site))
            elif token.origin[0] != NEW:
                text = f"{name}.grad was replaced by a tensor made outside the call"
                blockers.append(reason(rules.TENSOR_ESCAPES, text, site))
            static = after.detach()
            effects.append(GradientEffect(weakref.ref(tensor), name, static, static.untyped_storage()))
        return effects, keys, blockers
