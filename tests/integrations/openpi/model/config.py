"""``Pi0Config`` of openpi (``openpi/models/pi0_config.py``): what PI0Pytorch reads, and two sizes openpi has fixed."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Pi0Config:
    dtype: str = "bfloat16"
    paligemma_variant: str = "gemma_2b"
    action_expert_variant: str = "gemma_300m"

    # Set the model specific defaults.
    action_dim: int = 32
    action_horizon: int = 50
    max_token_len: int = None  # type: ignore
    pi05: bool = False

    pytorch_compile_mode: str | None = "max-autotune"

    # Not in openpi.
    vision_variant: str = "so400m"
    vocab_size: int = 257152

    def __post_init__(self):
        if self.max_token_len is None:
            object.__setattr__(self, "max_token_len", 200 if self.pi05 else 48)
        if self.pytorch_compile_mode is not None:
            assert self.pytorch_compile_mode in [
                "default",
                "reduce-overhead",
                "max-autotune",
                "max-autotune-no-cudagraphs",
            ]
