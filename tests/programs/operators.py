"""Operators: sorting, scans, linear algebra, transforms of Fourier, sampling of images, indices."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .program import Made, batches, frozen, normal, program


@program()
def boxes_kept(device: torch.device) -> Made:
    """The best boxes, without those that overlap with better ones."""

    @torch.no_grad()
    def keep(boxes: Tensor, scores: Tensor) -> Tensor:
        boxes = boxes[scores.topk(50).indices]
        left, top, right, bottom = boxes.unbind(-1)
        area = (right - left).clamp(min=0) * (bottom - top).clamp(min=0)
        width = torch.minimum(right[:, None], right) - torch.maximum(left[:, None], left)
        height = torch.minimum(bottom[:, None], bottom) - torch.maximum(top[:, None], top)
        shared = width.clamp(min=0) * height.clamp(min=0)
        overlap = shared / (area[:, None] + area - shared + 1e-6)
        return boxes[overlap.triu(1).amax(0) < 0.5]

    return Made(keep, batches(device, (200, 4), (200,)))


@program(tolerance=1e-4)
def sums_by_index(device: torch.device) -> Made:
    """Rows are added and compared by index."""

    def gather(x: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        zeros = torch.zeros(10, 64, device=device)
        wide = index[:, None].expand(-1, 64)
        return zeros.index_add(0, index, x), zeros.scatter_reduce(0, wide, x, "amax", include_self=False)

    return Made(gather, lambda: (normal(device, 32, 64), torch.randint(0, 10, (32,), device=device)))


@program()
def farthest_points(device: torch.device) -> Made:
    """Points that lie far from one another, as PointNet++ samples them."""

    def sample(points: Tensor) -> Tensor:
        batch, count, _ = points.shape
        chosen = torch.zeros(batch, 8, dtype=torch.long, device=device)
        distance = torch.ones(batch, count, device=device) * 1e10
        farthest = torch.zeros(batch, dtype=torch.long, device=device)
        rows = torch.arange(batch, dtype=torch.long, device=device)
        for each in range(8):
            chosen[:, each] = farthest
            centroid = points[rows, farthest, :].view(batch, 1, 3)
            from_here = torch.sum((points - centroid) ** 2, -1)
            mask = from_here < distance
            distance[mask] = from_here[mask]
            farthest = torch.max(distance, -1)[1]
        return chosen

    return Made(sample, batches(device, (4, 64, 3)))


@program()
def sorted_and_unique(device: torch.device) -> Made:
    """Numbers in order, their sums, and each of them once."""

    def order(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ordered, where = x.flatten().sort()
        return ordered.cumsum(0), where, torch.unique((x * 2).round())

    return Made(order, batches(device))


@program()
def solved(device: torch.device) -> Made:
    """A system of equations by its factors, with eigenvalues and determinant."""

    def solve(x: Tensor) -> tuple[Tensor, ...]:
        matrix = x @ x.mT + 64 * torch.eye(8, device=device)
        factor = torch.linalg.cholesky(matrix)
        return torch.linalg.solve(matrix, x), factor, torch.linalg.eigvalsh(matrix), torch.linalg.det(matrix)

    return Made(solve, batches(device))


@program()
def singular_values(device: torch.device) -> Made:
    """Factors by QR, and singular values."""

    def factor(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, r = torch.linalg.qr(x.mT)
        return q, r, torch.linalg.svd(x, full_matrices=False)[1]

    return Made(factor, batches(device))


@program()
def spectra(device: torch.device) -> Made:
    """There and back by Fourier, and a spectrum of short times."""

    def transform(x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.fft.rfft(x)
        short = torch.stft(x.flatten(), 64, window=torch.hann_window(64, device=device), return_complex=True)
        return torch.fft.irfft(y * y.abs(), n=64), short.abs()

    return Made(transform, batches(device))


@program()
def image_by_a_grid(device: torch.device) -> Made:
    """An image at another size, read at the places of a grid."""

    def warp(x: Tensor) -> Tensor:
        affine = torch.eye(2, 3, device=device)[None].expand(2, -1, -1) * 0.9
        grid = F.affine_grid(affine, [2, 3, 16, 16], align_corners=False)
        small = F.interpolate(x, (16, 16), mode="bilinear")
        return F.grid_sample(small, grid, align_corners=False)

    return Made(warp, batches(device, (2, 3, 32, 32)))


@program()
def loss_of_sequences(device: torch.device) -> Made:
    """CTC with lengths that are made inside."""

    def loss_of(x: Tensor, target: Tensor) -> Tensor:
        given, wanted = torch.full((4,), 20, device=device), torch.full((4,), 5, device=device)
        return F.ctc_loss(x.log_softmax(-1), target, given, wanted)

    return Made(loss_of, lambda: (normal(device, 20, 4, 10), torch.randint(1, 10, (4, 5), device=device)))


@program()
def branch_on_nan(device: torch.device) -> Made:
    """A result is replaced where anything in it is not a number."""

    @torch.no_grad()
    def guard(x: Tensor) -> Tensor:
        y = x.log1p()
        return torch.zeros_like(y) if y.isnan().any() else y

    return Made(guard, lambda: (torch.rand(8, 64, device=device) * 2 - (torch.rand(()) < 0.2).item() * 1.5,))


@program()
def counted(device: torch.device) -> Made:
    """Numbers are counted: how often each occurs, in bins, and in runs of equal ones."""

    def count(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.bincount(x, minlength=10), torch.histc(x.float(), 10)

    return Made(count, lambda: (torch.randint(0, 10, (64,), device=device),))


@program()
def runs_of_equal_numbers(device: torch.device) -> Made:
    """Each run of equal numbers once."""
    return Made(
        lambda x: torch.unique_consecutive(x.sort().values),
        lambda: (torch.randint(0, 10, (64,), device=device),),
    )


@program(replays=False, code="RT304")
def written_by_a_mask(device: torch.device) -> Made:
    """Elements are written where a mask says so, and multiplied where it does not."""

    def write(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mask, y = x > 0, x.clone()
        y[mask] = 0
        y[~mask] *= 2
        return y, x.masked_fill(mask, 1), torch.where(mask, x, -x)

    return Made(write, batches(device))


@program()
def unfolded(device: torch.device) -> Made:
    """Patches of images, put together again and multiplied with each other."""

    def patches(x: Tensor) -> tuple[Tensor, Tensor]:
        columns = F.unfold(x, 3, padding=1)
        return F.fold(columns, (8, 8), 3, padding=1), torch.einsum("bck,bdk->bcd", columns, columns)

    return Made(patches, batches(device, (2, 3, 8, 8)))


@program()
def complex_numbers(device: torch.device) -> Made:
    """Numbers of a length and an angle."""

    def turn(x: Tensor) -> tuple[Tensor, ...]:
        z = torch.polar(x.abs(), x)
        return (z * z.conj()).real, torch.view_as_real(z), z.angle(), torch.fft.fft2(z).abs()

    return Made(turn, batches(device))


@program()
def scans_and_ranks(device: torch.device) -> Made:
    """Running maxima, sums and products, and members by their rank."""

    def scan(x: Tensor) -> tuple[Tensor, ...]:
        running = torch.cummax(x, 1)[0], torch.logcumsumexp(x, 1), torch.cumprod(x.double(), 1)
        ranked = x.kthvalue(3)[0], x.median(1)[0], x.mode(1)[0], torch.quantile(x, 0.3, dim=1)
        return *running, x.diff(dim=1), torch.trapezoid(x), *ranked

    return Made(scan, batches(device))


@program()
def indices_of_bins(device: torch.device) -> Made:
    """Bins of numbers, by which others are scattered, gathered and chosen."""

    def choose(x: Tensor) -> tuple[Tensor, ...]:
        bins = torch.bucketize(x, torch.linspace(-2, 2, 9, device=device))
        marked = torch.zeros(8, 10, device=device).scatter_(1, bins[:, :10], 1.0)
        chosen = x.gather(1, bins), torch.take_along_dim(x, bins, 1), x.index_select(1, bins[0])
        return bins, marked, *chosen, torch.isin(bins, torch.tensor([1, 2], device=device))

    return Made(choose, batches(device))


@program()
def rotary_positions(device: torch.device) -> Made:
    """Queries are rotated by angles of their positions, which are made inside."""

    def rotate(q: Tensor) -> tuple[Tensor, Tensor]:
        places = torch.arange(q.shape[1], device=q.device, dtype=q.dtype)
        rates = 1 / (10000 ** (torch.arange(0, 16, 2, device=q.device).float() / 16))
        angles = torch.outer(places, rates)
        cosine, sine, even, odd = angles.cos(), angles.sin(), q[..., ::2], q[..., 1::2]
        turned = torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], -1).flatten(-2)
        return turned, torch.stack(torch.meshgrid(places, places, indexing="ij"), -1)

    return Made(rotate, batches(device, (2, 10, 16)))


@program(replays=False, code="RT601")
def sparse_matrix(device: torch.device) -> Made:
    """A product with a sparse matrix that is kept."""
    places = torch.randint(0, 64, (2, 200))
    matrix = torch.sparse_coo_tensor(places, torch.ones(200), (64, 64)).coalesce().to(device).to_sparse_csr()
    return Made(frozen(lambda x: matrix @ x.T), batches(device))


@program()
def special_functions(device: torch.device) -> Made:
    """Functions of Bessel, of errors and of gamma."""

    def special(x: Tensor) -> tuple[Tensor, ...]:
        near = x.sigmoid() * 0.98 + 0.01
        found = torch.special.i0e(x), torch.special.erfcx(x), torch.lgamma(near), torch.special.entr(near)
        return *found, torch.special.xlog1py(x, near), torch.special.ndtri(near), torch.igamma(near, near)

    return Made(special, batches(device))


@program()
def results_given_by_name(device: torch.device) -> Made:
    """Results are written to tensors that are kept, by ``out``."""
    kept = [torch.zeros(8, 64, device=device), torch.zeros(8, 8, device=device)]

    def fill(x: Tensor) -> Tensor:
        torch.mul(x, 2, out=kept[0])
        torch.mm(kept[0], x.T, out=kept[1])
        return kept[1].sum()

    return Made(fill, batches(device), (kept,))
