"""Globals of PyTorch's Python code that its functions read: switches, and hooks for all modules.

Every name here was seen in torch 2.11 and 2.13; what is missing is left out.
"""

from __future__ import annotations

import sys
from typing import Any

_CLASS_SWITCHES = (("torch.distributions.distribution", "Distribution", "_validate_args"),)
"""Attributes of PyTorch's classes that a function of PyTorch sets (seen in torch 2.11 and 2.13)."""


def class_switches() -> list[tuple[type, str]]:
    """Classes of PyTorch with an attribute that a call may read, and a public function sets."""
    found = [(getattr(sys.modules.get(module), owner, None), name) for module, owner, name in _CLASS_SWITCHES]
    return [(owner, name) for owner, name in found if isinstance(owner, type) and name in vars(owner)]


_GLOBAL_HOOKS = (
    *[("torch.nn.modules.module", f"_global_{kind}_hooks")
      for kind in ("forward", "forward_pre", "backward", "backward_pre")],
    *[("torch.optim.optimizer", f"_global_optimizer_{kind}_hooks") for kind in ("pre", "post")],
)  # fmt: skip


def global_hooks() -> list[tuple[str, dict[Any, Any]]]:
    """The tables of hooks for all modules, and for all optimizers, by name (seen in torch 2.11 and 2.13)."""
    found = [
        (f"{module}.{table}", getattr(sys.modules.get(module), table, None))
        for module, table in _GLOBAL_HOOKS
    ]
    return [(name, hooks) for name, hooks in found if isinstance(hooks, dict)]


_IN_PYTHON = (
    ("torch.nn.utils.parametrize", "_cache_enabled"),
    ("torch.backends.mha", "_is_fastpath_enabled"),
    ("torch.__future__", "_overwrite_module_params_on_conversion"),
    ("torch.__future__", "_swap_module_params_on_conversion"),
)
"""Globals of PyTorch's Python modules that its code reads, and that public functions set."""


def python_switches() -> list[tuple[dict[str, Any], str]]:
    """The namespaces and names of the switches that are globals of PyTorch's Python modules."""
    found = [(vars(sys.modules[module]), name) for module, name in _IN_PYTHON if module in sys.modules]
    return [(namespace, name) for namespace, name in found if name in namespace]
