"""Regions of pointwise operations as one kernel, equal to the bit."""

from __future__ import annotations

from .body import Body
from .cpp import cpp_source
from .device import KERNELS, DeviceKernels, Request
from .groups import plan_group
from .positions import Position, Term, aligned, behind, digit_behind, digits_of, piece
from .proofs import Probe, Signature, is_equal, probe_of
from .rules import NoKernelError
from .triton import triton_source
from .writing import Fusible, Written
