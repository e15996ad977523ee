"""``torch.compile(model, backend="rote")``."""

from __future__ import annotations

from .backend import TorchCompileBackend, backend
from .wishes import Wishes
