"""Shapes: results whose size depends on values, and batches whose size changes."""

from __future__ import annotations

from ..finding import Severity
from .rule import Finder, Group, Rule

DYNAMIC_SHAPE = Rule(
    "RT111",
    "shape that depends on data",
    "Use a mask of fixed shape (torch.where, or multiply by the mask) instead of selecting elements.",
    Severity.STOPS,
    Group.SHAPES,
    Finder.SCAN | Finder.TRIAL | Finder.RUNTIME,
    """
    ``x[mask]``, ``nonzero``, ``masked_select``, ``unique``, ``bincount``, ``repeat_interleave`` without
    ``output_size``, ``torch.where(mask)``: how large the result is depends on values.

    Why: The host has to know the size to allocate the result, so it waits for the device, and a capture
    stops. rote runs the operation between two segments; each size met gets segments of its own.

    Limits: The scan knows a mask when it is made by a comparison in the same function, or annotated as a
    ``BoolTensor``. ``y[mask] = 0.0`` with a number is a ``masked_fill`` and fine; with a tensor on the right
    it is not.

    Bad::

        return x[x > 2].sum()

    Good::

        return torch.where(x > 2, x, 0).sum()
    """,
)
PACKED = Rule(
    "RT112",
    "packed sequences",
    "Keep the batch padded and mask it, or pack outside and call the recurrent layer there.",
    Severity.STOPS,
    Group.SHAPES,
    Finder.SCAN | Finder.RUNTIME,
    """
    ``pack_padded_sequence``, ``pad_packed_sequence``, ``pack_sequence`` inside the call.

    Why: The lengths are needed on the host, where the batch sizes of each step are computed from them: a
    host read, or lengths that are frozen into the graph.

    Limits: A packed sequence that is an argument is not reported; its data has another shape in every batch.

    Bad::

        packed = pack_padded_sequence(x, lengths, batch_first=True)
        out, _ = self.rnn(packed)
        return pad_packed_sequence(out, batch_first=True)[0]

    Good::

        out, _ = self.rnn(x)
        mask = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        return out * mask[..., None]
    """,
)
SPARSE = Rule(
    "RT113",
    "sparse tensor made inside the call",
    "Keep it dense, or make the sparse tensor outside and use its indices and values.",
    Severity.STOPS,
    Group.SHAPES,
    Finder.SCAN,
    """
    ``to_sparse``, ``torch.sparse_coo_tensor``, ``coalesce``, ``nn.Embedding(sparse=True)`` with gradients.

    Why: The number of elements that are kept depends on values, so the host counts them and waits. A tensor
    without plain memory can't be kept in a recording (RT601).

    Limits: Only tensors that are made in the function are seen.

    Bad::

        return torch.sparse.mm(a.to_sparse(), x)

    Good::

        return a @ x
    """,
)
