"""A program for each operator that cannot be captured, under the name that it has in the table."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

aten = torch.ops.aten
Program = Callable[[Tensor], Tensor]


def symmetric(x: Tensor) -> Tensor:
    return x + x.mT


def observed(x: Tensor) -> Tensor:
    def one(value: float, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.full((1,), value, dtype=dtype, device=x.device)

    on = one(1, torch.long)
    return aten._fused_moving_avg_obs_fq_helper(
        x, on, on, one(-1.0), one(1.0), one(0.1), one(0, torch.int32), 0.01, 0, 255, 0
    )[0]


def nested(x: Tensor) -> Tensor:
    mask = torch.arange(4, device=x.device) < torch.arange(4, 0, -2, device=x.device)[:, None]
    return torch._nested_tensor_from_mask(x[None].expand(2, 4, 4), mask).to_padded_tensor(0.0)


def packed(x: Tensor) -> torch.nn.utils.rnn.PackedSequence:
    return pack_padded_sequence(x[None].expand(2, 4, 4), torch.tensor([4, 2]), batch_first=True)


def recurrent(kind: str, **options: str) -> Program:
    layer = getattr(torch.nn, kind)(4, 3, **options).requires_grad_(False)
    return lambda x: layer.to(x.device)(packed(x))[0].data


PROGRAMS: dict[str, Program] = {
    "_linalg_check_errors": lambda x: torch.linalg.inv(x + 9 * torch.eye(4, device=x.device)),
    "_linalg_eigh": lambda x: torch.linalg.eigh(symmetric(x)).eigenvectors.abs(),
    "_linalg_svd": lambda x: torch.linalg.svd(x).S,
    "linalg_eig": lambda x: torch.linalg.eig(x).eigenvalues.abs().sum(),
    "_linalg_eigvals": lambda x: aten._linalg_eigvals(x).abs().sum(),
    "normal.Tensor_Tensor": lambda x: torch.normal(x, x.abs()),
    "normal.float_Tensor": lambda x: torch.normal(0.0, x.abs()),
    "_fused_moving_avg_obs_fq_helper": observed,
    "_to_sparse": lambda x: x.to_sparse().to_dense() * 2,
    "_nested_tensor_from_mask": nested,
    "index.Tensor": lambda x: x[torch.eye(4, device=x.device) > 0] * 2,
    "index_put": lambda x: x.index_put((x > 0,), x.sum(), accumulate=True),
    "index_put_": lambda x: x.clone().index_put_((x > 0,), x.sum(), accumulate=True),
    "_index_put_impl_": lambda x: aten._index_put_impl_(x.clone(), [x > 0], x.sum(), True),
    "_unsafe_index_put": lambda x: aten._unsafe_index_put(x, [x > 0], x.sum(), True),
    "tensor_split": lambda x: torch.tensor_split(x, torch.tensor([1, 3]))[1] * 2,
    "_pack_padded_sequence": lambda x: packed(x).data,
    "_pad_packed_sequence": lambda x: pad_packed_sequence(packed(x))[0],
    "lstm": recurrent("LSTM"),
    "gru": recurrent("GRU"),
    "rnn_tanh": recurrent("RNN"),
    "rnn_relu": recurrent("RNN", nonlinearity="relu"),
    "linalg_svdvals": torch.linalg.svdvals,
    "linalg_eigvalsh": lambda x: torch.linalg.eigvalsh(symmetric(x)),
    "linalg_cond": lambda x: torch.linalg.cond(x),
    "linalg_norm": lambda x: torch.linalg.norm(x, "nuc"),
    "linalg_matrix_norm": lambda x: torch.linalg.matrix_norm(x, "nuc"),
    "linalg_matrix_rank": lambda x: torch.linalg.matrix_rank(x) * 2,
    "norm": lambda x: x.norm("nuc"),
    "nuclear_norm": lambda x: torch.nuclear_norm(x),
    "matmul": lambda x: torch.matmul(x[None].expand(5, 4, 4), x[None]),
    "linalg_matmul": lambda x: torch.linalg.matmul(x[None].expand(5, 4, 4), x[None]),
}
"""By name in the table; each takes a matrix of 4 x 4 on the device and returns a tensor."""
