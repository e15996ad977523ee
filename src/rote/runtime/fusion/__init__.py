"""Regions of pointwise operations as one kernel, equal to the bit."""

from .body import Body, Loaded
from .device import DeviceKernels, KernelRequest, kernels_of
from .groups import GroupPlans, plan_group
from .hostile import HOSTILE, ORDINARY, hostile_like
from .positions import ElementPosition, Term, aligned, behind, digit_behind, digits_of, piece
from .proofs import UNPROVED, OperationProof, is_equal, proof_of
from .rows import RowOrder
from .rules import NoKernelError, common_type
from .triton import triton_source
from .writing import Fusible, Written
