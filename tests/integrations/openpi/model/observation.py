"""``Observation`` of openpi (``openpi/models/model.py``) as a frozen dataclass, without JAX."""

import dataclasses
from typing import Generic, TypeVar

import torch

ArrayT = TypeVar("ArrayT")


@dataclasses.dataclass(frozen=True)
class Observation(Generic[ArrayT]):
    """Holds observations, i.e., inputs to the model."""

    # Images, in [-1, 1] float32.
    images: dict[str, ArrayT]
    # Image masks, with same keys as images.
    image_masks: dict[str, ArrayT]
    # Low-dimensional robot state.
    state: ArrayT

    # Tokenized prompt.
    tokenized_prompt: ArrayT | None = None
    # Tokenized prompt mask.
    tokenized_prompt_mask: ArrayT | None = None

    # pi0-fast model specific fields.

    # Token auto-regressive mask (for FAST autoregressive model).
    token_ar_mask: ArrayT | None = None
    # Token loss mask (for FAST autoregressive model).
    token_loss_mask: ArrayT | None = None

    @classmethod
    def from_dict(cls, data):
        """This method defines the mapping between unstructured data (i.e., nested dict) to the structured Observation format."""
        # Ensure that tokenized_prompt and tokenized_prompt_mask are provided together.
        if ("tokenized_prompt" in data) != ("tokenized_prompt_mask" in data):
            raise ValueError("tokenized_prompt and tokenized_prompt_mask must be provided together.")
        # If images are uint8, convert them to [-1, 1] float32.
        for key in data["image"]:
            if data["image"][key].dtype == torch.uint8:
                data["image"][key] = data["image"][key].to(torch.float32).permute(0, 3, 1, 2) / 255.0 * 2.0 - 1.0
        return cls(
            images=data["image"],
            image_masks=data["image_mask"],
            state=data["state"],
            tokenized_prompt=data.get("tokenized_prompt"),
            tokenized_prompt_mask=data.get("tokenized_prompt_mask"),
            token_ar_mask=data.get("token_ar_mask"),
            token_loss_mask=data.get("token_loss_mask"),
        )
