"""The owner of a class or module: the user, PyTorch, Python or rote. Only the user's state is walked."""

from __future__ import annotations

import argparse
import sys
import types
import weakref
from collections import ChainMap, UserDict, UserList, deque
from typing import Any

import torch

from ...base import TORCH_NEEDS
from .origin import module_of, modules_of
from .standard import holds_state

_NAMESPACES = (
    *(types.SimpleNamespace, argparse.Namespace, UserDict, UserList, ChainMap),
    *(weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet),
)
_SKIPPED_PACKAGES = (frozenset(sys.stdlib_module_names) - {"__main__"}) | frozenset(TORCH_NEEDS) | {"rote"}
_SKIPPED_TORCH = ("torch._", "torch.fx", "torch.jit", "torch.distributed", "torch.cuda", "torch.autograd")


def is_open(kind: type) -> bool:
    """Whether instances of a class hold the user's state in attributes."""
    if kind in (dict, list, tuple, deque):
        return False
    if kind in _NAMESPACES or issubclass(kind, (torch.nn.Module, torch.optim.Optimizer, BaseException)):
        return True
    module = module_of(kind)
    package = _package(module)
    if holds_state(kind):
        return True
    if package == "torch":
        iterates = hasattr(kind, "__next__")  # of a DataLoader: its position counts, not its attributes
        return not module.startswith(_SKIPPED_TORCH) and hasattr(kind, "__dict__") and not iterates
    return package not in _SKIPPED_PACKAGES


def is_users(value: Any) -> bool:
    """Whether a class, a function or a module is the user's."""
    if isinstance(value, types.ModuleType):
        return is_user(str(vars(value).get("__name__")))
    if isinstance(value, types.FunctionType):
        return any(map(is_user, modules_of(value)))
    return is_user(module_of(value))


def is_user(module: str) -> bool:
    """Whether a module is the user's or a third party's, and not PyTorch's, Python's or rote's."""
    package = _package(module)
    return package != "torch" and package not in _SKIPPED_PACKAGES


def _package(module: str) -> str:
    return module.partition(".")[0]
