"""A module in another's place."""

from __future__ import annotations

from torch import nn

_HOOKS = (
    "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs", "_backward_hooks", "_backward_pre_hooks", "_is_full_backward_hook",
)  # fmt: skip


def replace(model: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Put a module in another's place, wherever that is registered, with the hooks on its calls."""
    for name in _HOOKS:  # the tables themselves, so that old handles still remove their hooks
        setattr(new, name, getattr(old, name))
    for parent in model.modules():
        for key, child in parent._modules.items():
            if child is old:
                parent._modules[key] = new
