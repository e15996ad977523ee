"""The quantized layer: how it is built, called, fused with its siblings, and walked back."""

from .buffers import InputTransform
from .fusion import fuse_, unfuse_
from .linear import PATHS, DuQuantLinear
from .replacing import replace
from .warming import warmup
