"""Attributes of TorchScript modules.

They lie in C++, and the C++ code that runs may read any of them, so all count as read. Objects of classes
registered in C++ are compared by their class only.
"""

from __future__ import annotations

from typing import Any

import torch

from ..pytorch import scripted_value
from .marks import Content, mark

_PLAIN = (int, float, str, bytes, complex, type(None), torch.dtype, torch.device)


def scripted(module: Any, name: str) -> Any:
    """The value of an attribute: a tensor, a plain value, or the content of a container (a copy)."""
    value = scripted_value(module, name)
    return value if isinstance(value, (torch.Tensor, *_PLAIN)) else Content(_text(value))


def _text(value: Any) -> str:
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, torch.Tensor):
        return repr(mark(value))
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}({', '.join(map(_text, value))})"
    if isinstance(value, dict):
        return f"{{{', '.join([f'{_text(key)}: {_text(item)}' for key, item in value.items()])}}}"
    return type(value).__name__
