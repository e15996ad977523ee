"""The sizes of openpi's models (``openpi/models/gemma.py``), and of the vision tower, which openpi never makes small.

The small one has two layers here, and four in openpi.
"""

from dataclasses import dataclass


@dataclass
class Config:
    width: int
    depth: int
    mlp_dim: int
    num_heads: int
    num_kv_heads: int
    head_dim: int


def get_config(variant: str) -> Config:
    """Returns config for specified gemma variant."""
    if variant == "dummy":
        return Config(width=64, depth=2, mlp_dim=128, num_heads=8, num_kv_heads=1, head_dim=16)
    if variant == "gemma_300m":
        return Config(width=1024, depth=18, mlp_dim=4096, num_heads=8, num_kv_heads=1, head_dim=256)
    if variant == "gemma_2b":
        return Config(width=2048, depth=18, mlp_dim=16_384, num_heads=8, num_kv_heads=1, head_dim=256)
    raise ValueError(f"Unknown variant: {variant}")


def get_vision_config(variant: str) -> dict[str, int]:
    """The sizes of the vision tower."""
    if variant == "dummy":
        return dict(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, patch_size=56,
            projection_dim=64,
        )  # fmt: skip
    if variant == "so400m":
        return dict(
            hidden_size=1152, num_hidden_layers=27, num_attention_heads=16, intermediate_size=4304, patch_size=14,
            projection_dim=2048,
        )  # fmt: skip
    raise ValueError(f"Unknown variant: {variant}")
