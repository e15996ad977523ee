"""Measurements of rote against eager and against its peers; ``python -m benchmarks.run``."""

import os

# Some fork. A process in which PyTorch has asked the driver whether there is a GPU may not, and to import
# torch._inductor asks that. With this it asks NVML.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
