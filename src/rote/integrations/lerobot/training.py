"""What two policies need so that their losses replay; both with the values and gradients of lerobot's code.

- **ACT** gives the mean and the spread of its latent as two views of one tensor. A recorded graph hands out
  no views of one memory that require grad, so they are copied in what is recorded. ``ACTPolicy.forward`` only
  calculates with them.
- **Diffusion policy** crops pictures at random in training. A crop begins at a place that the host draws, one
  of hundreds, and each would be a path. So pictures are cropped before the recorded part, by the transform of
  the encoder. It comes before all other draws in lerobot's code too, so all draws are what they would be. In
  what is recorded it finds pictures of the size that it would give, draws nothing, and leaves them.

What does not work: to replace the encoder's transform. A copy of the policy, and its evaluation, need it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...api import Graphed

_IMAGES = "observation.images"
"""Of all cameras together, ``[batch, steps, cameras, 3, height, width]``, in ``DiffusionPolicy.forward``."""


@dataclass(frozen=True, eq=False)
class LatentApart:
    """``forward`` of ACT, whose mean and spread share no memory."""

    network: nn.Module
    forward: Callable[[dict[str, Any]], Any]

    def __call__(self, batch: dict[str, Any]) -> Any:
        """A chunk, and mean and spread of the latent or two times None."""
        chunk, (mean, spread) = self.forward(batch)
        return (chunk, (mean, spread)) if mean is None else (chunk, (mean.clone(), spread.clone()))


@dataclass(frozen=True, eq=False)
class CroppedBefore:
    """``compute_loss`` of a diffusion policy, which is graphed, behind the random crop, which is not."""

    network: nn.Module
    graphed: Graphed

    def __call__(self, batch: dict[str, Tensor]) -> Any:
        """The loss."""
        network: Any = self.network
        if not network.config.image_features or network.config.crop_shape is None:
            return self.graphed(batch)
        encoders = network.rgb_encoder
        if not (network.config.crop_is_random and encoders.training):
            return self.graphed(batch)
        return self.graphed({**batch, _IMAGES: _cropped(encoders, batch[_IMAGES])})


def _cropped(encoders: Any, images: Tensor) -> Tensor:
    """Pictures as the encoders would crop them, in their order."""
    if not isinstance(encoders, nn.ModuleList):
        return encoders.maybe_random_crop(images)
    of_cameras: list[Any] = list(encoders)
    cameras = zip(of_cameras, images.unbind(dim=2), strict=True)
    return torch.stack([encoder.maybe_random_crop(each) for encoder, each in cameras], dim=2)
