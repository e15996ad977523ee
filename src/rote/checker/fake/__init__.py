"""Fake tensors that stand for real ones, and the values that the host reads from them."""

from . import torch_private
from .invented import LARGEST, Inventor, host_copy, nested
from .standins import FakeMemory, StandIns, is_module_dict, refuse_lazy
from .torch_private import (
    PRETENDED,
    FakeTensor,
    FakeTensorMode,
    depends_on_data,
    fake_device,
    import_ahead,
    lacks_fake,
    script_line,
    without_function_modes,
)
