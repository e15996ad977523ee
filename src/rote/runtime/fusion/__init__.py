"""Regions of pointwise operations as one kernel, equal to the bit."""

from .body import Body, Loaded
from .device import DeviceKernels, KernelRequest, kernels_of
from .groups import GroupPlans
from .hostile import HOSTILE, ORDINARY, hostile_like
from .positions import ElementPosition
from .proofs import UNPROVED, OperationProof, is_equal
from .rules import NoKernelError, common_type
from .writing import Fusible, Written
