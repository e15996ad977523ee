"""Convolutions of images whose channels lie together, for those whose channels lie apart.

cuDNN convolves images of 16 bits on tensor cores, whose kernels want channels beside one another. Where they
lie apart it turns image, filters and result, and turning the filters takes longer than the convolution if
images are small. Here they are turned by :mod:`.turning`, and the bias is added on the way back.

Which kernel cuDNN chooses may depend on how the operands lie, so the sums may come in another order. Whether
they do is shown where the alternative is to stand: the gate compares results of ordinary numbers, of which
another order would change one of some hundreds (:func:`_proof`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ....backends.protocol import ALIGNMENT
from ....compiling import KernelSource
from ....fusion import ORDINARY, hostile_like
from ..offered import OLDEST, Alternative, AlternativeRun, Operands, properties_of
from .turning import MatrixTurn

_TYPES = (torch.bfloat16, torch.float16)
_FEWEST_CHANNELS, _LEAST_FILTERS, _MOST_OFFSET = 8, 1 << 14, 1 << 31
_PROOF_NUMBERS, _FEWEST_PROOFS = 1 << 21, 4
_PROOFS_OF_FILTERS = 32
"""Images are drawn in no time, and filters are not."""
_convolution = torch.ops.aten.convolution.default


@dataclass(frozen=True)
class _Convolution:
    """The operands of a convolution in two dimensions.

    Attributes:
        x: ``(images, channels, height, width)``.
        filters: ``(channels of the result, channels, height, width)``.
        bias: ``(channels of the result,)``.
        options: Steps, padding and dilation.
    """

    x: torch.Tensor
    filters: torch.Tensor
    bias: torch.Tensor | None
    options: tuple[Sequence[int], Sequence[int], Sequence[int]]

    @property
    def is_plain(self) -> bool:
        """Whether shapes, types and layouts are those for which turning helps."""
        x, filters = self.x, self.filters
        given = [each for each in (x, filters, self.bias) if each is not None]
        lie = all([each.is_contiguous() and each.data_ptr() % ALIGNMENT == 0 for each in given])
        most = max([each.numel() for each in given])
        sized = most < _MOST_OFFSET and x.numel() > 0 and filters.numel() >= _LEAST_FILTERS
        channels = min(filters.shape[:2]) >= _FEWEST_CHANNELS if filters.dim() == 4 else False
        alike = x.dtype in _TYPES and all([each.dtype is x.dtype for each in given])
        # one pixel is turned already: cuDNN then has a product of matrices
        return x.dim() == 4 and channels and lie and sized and alike and _pixels(x) > 1 < _pixels(filters)

    @property
    def sources(self) -> list[KernelSource]:
        """The kernels that turn."""
        found = [self._turn(self.x).source, self._turn(self.filters).source]
        return [*found, self._turn_back(self._shape).source]

    def run(self, run: AlternativeRun) -> torch.Tensor:
        """Turn, convolve, turn back."""
        x, filters = (
            self._turn(each).run(run, each, tuple(each.shape), _channels_last(each.shape))
            for each in (self.x, self.filters)
        )
        steps, padding, dilation = self.options
        found = run(_convolution, (x, filters, None, steps, padding, dilation, False, [0, 0], 1), {})
        shape = tuple(found.shape)
        if found.stride() != _channels_last(shape):  # whose the kernels are not
            return found if self.bias is None else found + self.bias[:, None, None]
        return self._turn_back(shape).run(run, found, shape, _channels_first(shape), self.bias)

    @property
    def _shape(self) -> tuple[int, ...]:
        """Of the result."""
        given = zip(self.x.shape[2:], self.filters.shape[2:], *self.options, strict=True)
        sides = [
            (side + 2 * padding - dilation * (width - 1) - 1) // step + 1
            for side, width, step, padding, dilation in given
        ]
        return (self.x.shape[0], self.filters.shape[0], *sides)

    def _turn(self, x: torch.Tensor) -> MatrixTurn:
        return MatrixTurn.of(x, x.shape[1], _pixels(x))

    def _turn_back(self, shape: Sequence[int]) -> MatrixTurn:
        _, channels, height, width = shape
        capability = properties_of(self.x.device.index).capability
        biased = self.bias is not None
        return MatrixTurn(shape[0], height * width, channels, self.x.dtype, True, capability, biased)


def _pixels(x: torch.Tensor) -> int:
    return math.prod(x.shape[2:])


def _channels_last(shape: Sequence[int]) -> tuple[int, ...]:
    _, channels, height, width = shape
    return (channels * height * width, 1, width * channels, channels)


def _channels_first(shape: Sequence[int]) -> tuple[int, ...]:
    _, channels, height, width = shape
    return (channels * height * width, height * width, width, 1)


def _read(
    x: torch.Tensor, filters: torch.Tensor, bias: torch.Tensor | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool, output_padding: Sequence[int],
    groups: int,
) -> _Convolution | None:  # fmt: skip
    """What the operator is given; None if it is another kind of convolution."""
    plain = not transposed and groups == 1 and len(stride) == len(padding) == len(dilation) == 2
    return _Convolution(x, filters, bias, (stride, padding, dilation)) if plain else None


def _fits(*operands: Any) -> bool:
    given = _read(*operands)
    times = torch.backends.cudnn.benchmark  # then cuDNN may choose another way each time it is asked
    if given is None or not given.x.is_cuda or times:
        return False
    return given.is_plain and properties_of(given.x.device.index).capability >= OLDEST


def _known(*operands: Any) -> _Convolution:
    given = _read(*operands)
    assert given is not None, "it was asked whether it fits"
    return given


def _proof(*operands: Any) -> Iterator[Operands]:
    """Operands that lie as these do: sums of ordinary numbers."""
    given, drawn = _known(*operands), list(operands)
    made = given.x.shape[0] * given.filters.shape[0] * _pixels(given.x)
    for seed in range(max(_FEWEST_PROOFS, -(-_PROOF_NUMBERS // made))):
        for number, tensor in enumerate(operands[:3]):
            if tensor is not None and (number == 0 or seed % _PROOFS_OF_FILTERS == 0):
                drawn[number] = hostile_like(tensor, ORDINARY, 3 * seed + number)
        yield list(drawn), {}


CONVOLUTIONS = (
    Alternative(
        operator="aten::convolution",
        name="convolution of turned images",
        fits=_fits,
        calculate=lambda run, *operands: _known(*operands).run(run),
        kernels=lambda *operands: _known(*operands).sources,
        proof=_proof,
        also_near=True,
        on_host=False,
    ),
)
