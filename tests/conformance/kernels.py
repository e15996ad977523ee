"""A compiled kernel for each backend: the same arithmetic, in C++ and in Triton."""

from __future__ import annotations

import functools

import pytest
import torch

from rote.runtime.backends.protocol import Backend
from rote.runtime.compiling import COMPILERS, Binary, KernelSource, Language, Programs

SIZE = 1000
"""Elements of each tensor."""

_CPP = f"""
#include <cstdint>
extern "C" void scaled_sum(void* const* tensors, const double* reals, const int64_t* integers) {{
    const float* x = static_cast<const float*>(tensors[0]);
    const float* y = static_cast<const float*>(tensors[1]);
    float* sum = static_cast<float*>(tensors[2]);
    int64_t* rounded = static_cast<int64_t*>(tensors[3]);
    const float scale = static_cast<float>(reals[0]);
    for (int64_t i = 0; i < {SIZE}; i++) {{
        sum[i] = x[i] * scale + y[i];
        rounded[i] = static_cast<int64_t>(x[i]) + integers[0];
    }}
}}
"""

_TRITON = f"""
import triton
import triton.language as tl


@triton.jit
def scaled_sum(x, y, sum, rounded, scale, plus):
    i = tl.program_id(0) * 256 + tl.arange(0, 256)
    inside = i < {SIZE}
    a = tl.load(x + i, mask=inside)
    b = tl.load(y + i, mask=inside)
    tl.store(sum + i, a * scale.to(tl.float32) + b, mask=inside)
    tl.store(rounded + i, a.to(tl.int64) + plus, mask=inside)
"""


def source_for(backend: Backend) -> KernelSource:
    """Takes x and y, one real number and one integer; makes ``x * real + y`` and ``int(x) + integer``."""
    cuda = backend.name == "cuda"
    major, minor = torch.cuda.get_device_capability() if cuda else (0, 0)
    return KernelSource(
        Language.TRITON if cuda else Language.CPP,
        "scaled_sum",
        _TRITON if cuda else _CPP,
        tensors=("fp32", "fp32", "fp32", "i64"),
        aligned=(True, False, True, True),
        reals=1,
        integers=1,
        grid=Programs(4, 4) if cuda else Programs(),
        capability=10 * major + minor,
    )


@functools.cache
def binary_of(source: KernelSource) -> Binary:
    """The kernel, compiled once for all tests; the test is skipped where there is no compiler."""
    job = COMPILERS.get().submit([source])
    assert job.wait(120)
    (found,) = job.results().values()
    if isinstance(found, Binary):
        return found
    pytest.skip(found.why)


def eager(x: torch.Tensor, y: torch.Tensor, scale: float, plus: int) -> tuple[torch.Tensor, torch.Tensor]:
    """What the kernel calculates."""
    return x * scale + y, x.long() + plus
