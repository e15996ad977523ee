"""Small policies of lerobot with random weights, or whole ones from a checkpoint, with their transforms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tests import packages
from torch import Tensor

SPECIAL = ("<pad>", "<unk>", "<fake_token_around_image>", "<image>", "<global-img>", "<end_of_utterance>")
WORDS = "push the t shaped block onto target pick up cube with right arm and transfer it to left"


@dataclass(frozen=True)
class Body:
    """What a policy sees and moves.

    Attributes:
        cameras: Names of pictures, as lerobot calls them, with ``(3, height, width)``.
        state: Numbers of the state.
        actions: Numbers of an action.
        middle: What a policy's output of zero means, for state and actions.
        spread: What a policy's output of one adds.
    """

    cameras: dict[str, tuple[int, int, int]]
    state: int
    actions: int
    middle: float
    spread: float


BODIES = {
    "pusht": Body({"observation.image": (3, 96, 96)}, 2, 2, 256.0, 160.0),
    "aloha": Body({"observation.images.top": (3, 480, 640)}, 14, 14, 0.0, 0.5),
    "libero": Body(
        dict.fromkeys(("observation.images.image", "observation.images.image2"), (3, 256, 256)),
        8,
        7,
        0.0,
        0.3,
    ),
}


@dataclass(frozen=True)
class Brain:
    """A policy with its transforms.

    Attributes:
        policy: One of lerobot's.
        before: From an observation of lerobot's to what the policy takes.
        after: From the policy's action to one of the world's.
    """

    policy: Any
    before: Callable[[dict[str, Any]], dict[str, Any]]
    after: Callable[[Tensor], Tensor]


def vision() -> None:
    """Make torchvision importable, on which lerobot's policies stand.

    Raises:
        ImportError: It is not installed.
    """
    if absent := packages.missing():
        raise ImportError(f"there is no {absent}")


def random_brain(kind: str, body: Body, device: torch.device, folder: Path, seed: int = 0) -> Brain:
    """A small policy with random weights.

    Args:
        kind: ``act``, ``diffusion`` or ``smolvla``.
        body: What it sees and moves.
        device: Where it runs.
        folder: Where SmolVLA's language model is described, as in a checkpoint of it.
        seed: Of the weights.
    """
    vision()
    from lerobot.policies.factory import make_pre_post_processors

    torch.manual_seed(seed)
    policy = KINDS[kind](features(body, device), folder).to(device).eval()
    before, after = make_pre_post_processors(policy.config, dataset_stats=statistics(body))
    return Brain(policy, before, after)


def loaded_brain(checkpoint: Path, device: torch.device) -> Brain:
    """A policy from a folder that lerobot has written, with the transforms that lie there."""
    vision()
    from lerobot.configs.policies import PreTrainedConfig
    from lerobot.policies.factory import get_policy_class, make_pre_post_processors

    config = PreTrainedConfig.from_pretrained(str(checkpoint))
    config.device = str(device)
    policy = get_policy_class(config.type).from_pretrained(str(checkpoint), config=config).eval()
    before, after = make_pre_post_processors(
        config,
        pretrained_path=str(checkpoint),
        preprocessor_overrides={"device_processor": {"device": str(device)}},
    )
    return Brain(policy, before, after)


def save_brain(brain: Brain, folder: Path) -> None:
    """Write a checkpoint as lerobot does: weights, configuration, transforms."""
    brain.policy.save_pretrained(folder)
    brain.before.save_pretrained(folder)  # pyright: ignore[reportFunctionMemberAccess]
    brain.after.save_pretrained(folder)  # pyright: ignore[reportFunctionMemberAccess]


def features(body: Body, device: torch.device) -> dict[str, Any]:
    """The part that all of lerobot's configurations have."""
    from lerobot.configs.types import FeatureType, PolicyFeature

    seen = {name: PolicyFeature(FeatureType.VISUAL, shape) for name, shape in body.cameras.items()}
    seen["observation.state"] = PolicyFeature(FeatureType.STATE, (body.state,))
    moved = {"action": PolicyFeature(FeatureType.ACTION, (body.actions,))}
    return {"input_features": seen, "output_features": moved, "device": str(device)}


def statistics(body: Body) -> dict[str, dict[str, Tensor]]:
    """What a data set would tell: of pictures as of photographs, of state and actions what the body says."""

    def of(size: int) -> dict[str, Tensor]:
        middle, spread = torch.full((size,), body.middle), torch.full((size,), body.spread)
        return {"mean": middle, "std": spread, "min": middle - spread, "max": middle + spread}

    colours = {"mean": torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1), "std": torch.full((3, 1, 1), 0.225)}
    colours.update(min=torch.zeros(3, 1, 1), max=torch.ones(3, 1, 1))
    seen = dict.fromkeys(body.cameras, colours)
    return {**seen, "observation.state": of(body.state), "action": of(body.actions)}


def act(given: dict[str, Any], folder: Path) -> Any:
    """Action chunking transformer."""
    from lerobot.policies.act.modeling_act import ACTConfig, ACTPolicy

    sizes: dict[str, Any] = dict(dim_model=64, n_heads=4, dim_feedforward=128, latent_dim=16)
    layers: dict[str, Any] = dict(n_encoder_layers=2, n_vae_encoder_layers=2)
    chunk: dict[str, Any] = dict(chunk_size=16, n_action_steps=8, pretrained_backbone_weights=None)
    return ACTPolicy(ACTConfig(**given, **sizes, **layers, **chunk))


def diffusion(given: dict[str, Any], folder: Path) -> Any:
    """Diffusion policy: five steps of DDIM."""
    from lerobot.policies.diffusion.modeling_diffusion import DiffusionConfig, DiffusionPolicy

    sizes: dict[str, Any] = dict(down_dims=(32, 64), diffusion_step_embed_dim=32)
    seen: dict[str, Any] = dict(crop_shape=(84, 84), spatial_softmax_num_keypoints=16)
    steps: dict[str, Any] = dict(noise_scheduler_type="DDIM", num_inference_steps=5)
    steps.update(horizon=16, n_action_steps=8)
    eyes: dict[str, Any] = dict(pretrained_backbone_weights=None, use_group_norm=True)  # defaults change
    return DiffusionPolicy(DiffusionConfig(**given, **sizes, **seen, **steps, **eyes))


def smolvla(given: dict[str, Any], folder: Path, **others: Any) -> Any:
    """SmolVLA: a language model that sees, and an expert that denoises actions over its cache, as in pi0."""
    from lerobot.policies.smolvla.modeling_smolvla import SmolVLAConfig, SmolVLAPolicy

    if not (folder / "config.json").exists():
        describe_language_model(folder)
    sizes: dict[str, Any] = dict(max_state_dim=16, max_action_dim=16, resize_imgs_with_padding=(64, 64))
    parts: dict[str, Any] = dict(vlm_model_name=str(folder), num_vlm_layers=4, expert_width_multiplier=0.5)
    chunk: dict[str, Any] = dict(chunk_size=16, n_action_steps=8, num_steps=5, pad_language_to="max_length")
    return SmolVLAPolicy(SmolVLAConfig(**given, **sizes, **parts, **chunk, **others))


def describe_language_model(folder: Path) -> None:
    """Write configuration and tokenizer of a small SmolVLM, as a checkpoint of it has them."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.normalizers import Lowercase
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import (
        PreTrainedTokenizerFast,
        SmolVLMConfig,
        SmolVLMImageProcessor,
        SmolVLMProcessor,
        SmolVLMVideoProcessor,
    )

    shared = dict(num_attention_heads=4, intermediate_size=128, hidden_size=64)
    text = dict(
        model_type="llama", num_hidden_layers=4, num_key_value_heads=2, head_dim=16, vocab_size=64, **shared
    )
    eyes = dict(num_hidden_layers=2, image_size=64, patch_size=16, **shared)
    config: Any = dict(text_config=text, vision_config=eyes, scale_factor=2, image_token_id=3, pad_token_id=0)
    SmolVLMConfig(**config).save_pretrained(folder)
    known = {word: number for number, word in enumerate((*SPECIAL, *WORDS.split()))}
    words = Tokenizer(WordLevel(known, unk_token="<unk>"))
    words.pre_tokenizer, words.normalizer = Whitespace(), Lowercase()
    special = dict(zip(("fake_image", "image", "global_image", "end_of_utterance"), SPECIAL[2:], strict=True))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words,
        unk_token="<unk>",
        pad_token="<pad>",
        extra_special_tokens={f"{name}_token": word for name, word in special.items()},
    )
    parts = SmolVLMImageProcessor(), tokenizer, SmolVLMVideoProcessor()
    SmolVLMProcessor(*parts, image_seq_len=4).save_pretrained(folder)


KINDS: dict[str, Callable[[dict[str, Any], Path], Any]] = {
    "act": act,
    "diffusion": diffusion,
    "smolvla": smolvla,
}
