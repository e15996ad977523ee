"""``torch.compile(model, backend="rote")``, and rote in the place of ``mode="reduce-overhead"``."""

from .backend import TorchCompileBackend, backend
from .policy import CudagraphPolicy, cudagraph_policy
from .wishes import Wishes
