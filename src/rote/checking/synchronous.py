"""Operations that wait for the device inside their CUDA kernels, which no schema says.

Read in PyTorch's sources; a host build has no way to try them. What is missing here is missed by a check.
"""

from __future__ import annotations

from ..partition.facts import Facts
from .operands import short

WAITING = {
    "aten::_linalg_check_errors": "the result of a linear algebra routine is checked on the host",
    "aten::_linalg_eigh": "the solver reports its status to the host",
    "aten::linalg_eig": "the decomposition runs partly on the host",
    "aten::_linalg_eigvals": "the decomposition runs partly on the host",
    "aten::_linalg_svd": "the solver reports its status to the host",
    "aten::linalg_lstsq": "the solver reports its status to the host",
    "aten::normal.Tensor_Tensor": "the standard deviations are checked on the host",
    "aten::normal.float_Tensor": "the standard deviations are checked on the host",
    "aten::_ctc_loss": "the lengths are read on the host",
    "aten::_ctc_loss.Tensor": "the lengths are read on the host",
    "aten::_pack_padded_sequence": "the lengths are read on the host",
    "aten::_fused_moving_avg_obs_fq_helper": "the observer is read on the host",
    "aten::to_sparse": "the number of elements that are not zero is read on the host",
    "aten::_to_sparse": "the number of elements that are not zero is read on the host",
    "aten::nested_tensor_from_mask": "the mask is read on the host",
}
"""Name of the operation, with or without its overload, and why it waits."""


def why_it_is_refused(facts: Facts) -> str | None:
    """Why an operation does not go into a graph, None if it does."""
    if facts.unsafe:
        return f"{short(facts.name)} is tagged as unsafe in CUDA graphs"
    waits = WAITING.get(facts.name) or WAITING.get(facts.name.partition(".")[0])
    return f"{short(facts.name)} waits for the device: {waits}" if waits is not None else None
