"""Orthogonal matrices that spread outliers over a block: greedy search, Hadamard, and the weight's own basis.

The greedy search (DuQuant, section 3.2 of the paper) starts from a basis whose row 0 is flat: it spreads an
outlier in channel 0 over all channels, 1/sqrt(size) of its height in each. The other rows are random. Each
step moves the channel with the largest entry to row 0 and rotates. Of all prefixes of the steps, the empty
one included, the search keeps the one with the smallest peak, which is the largest minus the smallest entry.

The published code differs from the paper in two ways. It takes the *row* of the reshaped activations, modulo
the block, for the outlier's channel; the errors are within 2.5 % of each other. And it multiplies the
completion from the right, after which row 0 is no longer flat (its entries are normally distributed, the
largest about three times what they were); here the completion multiplies from the left, as in the paper.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...base import OptionError
from .transforms import pad_columns


def flat_row_basis(size: int) -> Tensor:
    """An orthogonal matrix, float64, ``(size, size)``, whose row 0 is flat, while column 0 is not.

    The product of ``size - 1`` Givens rotations with cosines ``1 / sqrt(i + 2)``, then rows and columns 0
    and ``size - 1`` exchanged.
    """
    basis = torch.eye(size, dtype=torch.float64)
    for i in range(size - 1):
        cos, sin = 1 / math.sqrt(i + 2), math.sqrt(i + 1) / math.sqrt(i + 2)
        # Each rotation adds a row to the sum that becomes the flat one.
        upper, lower = basis[i].clone(), basis[i + 1].clone()
        basis[i], basis[i + 1] = cos * upper - sin * lower, sin * upper + cos * lower
    swap = torch.arange(size)
    swap[0], swap[-1] = size - 1, 0
    return basis[swap][:, swap]


def random_orthogonal(size: int, generator: torch.Generator) -> Tensor:
    """A random orthogonal matrix from the QR of a Gaussian one, float64, of shape ``(size, size)``."""
    gaussian = torch.randn(size, size, dtype=torch.float64, generator=generator)
    q, r = torch.linalg.qr(gaussian)
    return q * torch.sign(torch.diagonal(r))  # without this Q would depend on LAPACK's choice of signs


def greedy_rotation(x: Tensor, steps: int, generator: torch.Generator) -> Tensor:
    """The rotations that a greedy search of so many steps finds for activations.

    ``x`` are sets of rows, of shape ``(sets, rows, size)``; each set gets its own matrix, float64 on the CPU.
    """
    sets, _, size = x.shape
    basis = completed_basis(size, generator)
    product = torch.eye(size, dtype=torch.float64).repeat(sets, 1, 1)
    if x.numel() == 0:
        return product
    current = x.to(torch.promote_types(x.dtype, torch.float32), copy=True)
    best, best_peak = product, _peak(current)
    for _ in range(steps):
        outliers = (current.abs().flatten(1).argmax(1) % size).cpu()
        step = _conjugated(basis, outliers)
        product = product @ step
        current = torch.bmm(current, step.to(current))
        peak = _peak(current)
        better = (peak < best_peak).cpu()
        best = torch.where(better[:, None, None], product, best)
        best_peak = torch.minimum(best_peak, peak)
    return best


def completed_basis(size: int, generator: torch.Generator) -> Tensor:
    """The flat row with a random completion: ``diag(1, Q)`` times :func:`flat_row_basis`."""
    completion = torch.eye(size, dtype=torch.float64)
    if size > 1:
        completion[1:, 1:] = random_orthogonal(size - 1, generator)
    return completion @ flat_row_basis(size)


def _peak(x: Tensor) -> Tensor:
    """The largest minus the smallest entry of each set."""
    return x.amax((1, 2)) - x.amin((1, 2))


def _conjugated(basis: Tensor, channels: Tensor) -> Tensor:
    """The basis of each set with rows and columns 0 and ``channel`` exchanged."""
    sets, size = len(channels), basis.shape[0]
    order = torch.arange(size).repeat(sets, 1)
    order[:, 0] = channels
    order.scatter_(1, channels[:, None], 0)
    order[channels == 0, 0] = 0
    return basis[order[:, :, None], order[:, None, :]]


def hadamard(size: int) -> Tensor:
    """The normalized Hadamard matrix, float64; an OptionError if the size is no power of two."""
    if size < 1 or size & (size - 1):
        raise OptionError(f"block_size={size!r} must be a power of two for a Hadamard rotation")
    matrix = torch.ones(1, 1, dtype=torch.float64)
    while matrix.shape[0] < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix / math.sqrt(size)


def block_basis(rows: Tensor, size: int) -> Tensor:
    """The principal basis of each block of columns, the strongest direction first.

    It is the left singular vectors of the transposed block, found as eigenvectors of its Gram matrix. The
    largest entry of each vector is positive, so that the result does not depend on the solver. Missing
    columns of the last block are left alone. For rows ``(count, width)`` the result has the shape
    ``(ceil(width / size), size, size)``, float64 on their device.
    """
    missing = -rows.shape[1] % size
    columns = pad_columns(rows.double(), rows.shape[1] + missing)
    columns = columns.reshape(rows.shape[0], -1, size).permute(1, 2, 0)
    gram = torch.bmm(columns, columns.mT)
    if missing:  # negative eigenvalues, which no Gram matrix has: the padding's directions come last, unmixed
        ranks = torch.arange(1, missing + 1, device=gram.device)
        gram[-1].diagonal()[-missing:] = -ranks * (1 + gram[-1].abs().max())
    _, vectors = torch.linalg.eigh(gram)
    return fixed_signs(vectors.flip(-1))


def fixed_signs(vectors: Tensor) -> Tensor:
    """Columns with signs such that the first entry of (nearly) largest size is positive."""
    size = vectors.abs()
    candidates = size >= size.amax(-2, keepdim=True) * (1 - 1e-6)
    first = candidates.to(torch.int8).argmax(-2, keepdim=True)
    return vectors * torch.where(vectors.gather(-2, first) < 0, -1.0, 1.0).to(vectors)
