"""``Policy`` and ``PolicyRecorder`` of openpi (``openpi/policies/policy.py``) without JAX, and numpy transforms like its own.

The branch for PyTorch models is openpi's, with ``tree_map`` for ``jax.tree.map``. Of the branch for JAX models there is
as much as a caller can see. The transforms are those that a policy of ALOHA goes through, cut down: a prompt if there
is none, cameras by openpi's names, numbers normalized and padded, tokens.
"""

import pathlib
import time
import zlib
from typing import Any

import numpy as np
import torch

from tests.integrations.openpi.model import observation as _model


def tree_map(function, tree):
    if isinstance(tree, dict):
        return {key: tree_map(function, value) for key, value in tree.items()}
    return function(tree)


class Policy:
    def __init__(
        self,
        model,
        *,
        rng=None,
        transforms=(),
        output_transforms=(),
        sample_kwargs: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
        pytorch_device: str = "cpu",
        is_pytorch: bool = False,
    ):
        self._model = model
        self._input_transform = _compose(transforms)
        self._output_transform = _compose(output_transforms)
        self._sample_kwargs = sample_kwargs or {}
        self._metadata = metadata or {}
        self._is_pytorch_model = is_pytorch
        self._pytorch_device = pytorch_device

        if self._is_pytorch_model:
            self._model = self._model.to(pytorch_device)
            self._model.eval()
            self._sample_actions = model.sample_actions
        else:
            # JAX model setup
            self._sample_actions = model.sample_actions
            self._rng = rng or 0

    def infer(self, obs: dict, *, noise: np.ndarray | None = None) -> dict:  # type: ignore[misc]
        # Make a copy since transformations may modify the inputs in place.
        inputs = tree_map(lambda x: x, obs)
        inputs = self._input_transform(inputs)
        # Convert inputs to PyTorch tensors and move to correct device
        inputs = tree_map(lambda x: torch.from_numpy(np.array(x)).to(self._pytorch_device)[None, ...], inputs)
        sample_rng_or_pytorch_device = self._pytorch_device

        # Prepare kwargs for sample_actions
        sample_kwargs = dict(self._sample_kwargs)
        if noise is not None:
            noise = torch.from_numpy(noise).to(self._pytorch_device)

            if noise.ndim == 2:  # If noise is (action_horizon, action_dim), add batch dimension
                noise = noise[None, ...]  # Make it (1, action_horizon, action_dim)
            sample_kwargs["noise"] = noise

        observation = _model.Observation.from_dict(inputs)
        start_time = time.monotonic()
        outputs = {
            "state": inputs["state"],
            "actions": self._sample_actions(sample_rng_or_pytorch_device, observation, **sample_kwargs),
        }
        model_time = time.monotonic() - start_time
        outputs = tree_map(lambda x: np.asarray(x[0, ...].detach().cpu()), outputs)

        outputs = self._output_transform(outputs)
        outputs["policy_timing"] = {
            "infer_ms": model_time * 1000,
        }
        return outputs

    @property
    def metadata(self) -> dict[str, Any]:
        return self._metadata


class PolicyRecorder:
    """Records the policy's behavior to disk."""

    def __init__(self, policy, record_dir: str):
        self._policy = policy
        self._record_dir = pathlib.Path(record_dir)
        self._record_dir.mkdir(parents=True, exist_ok=True)
        self._record_step = 0

    def infer(self, obs: dict) -> dict:  # type: ignore[misc]
        results = self._policy.infer(obs)
        output_path = self._record_dir / f"step_{self._record_step}"
        self._record_step += 1
        np.save(output_path, np.asarray({"inputs": obs, "outputs": results}))
        return results


def _compose(transforms):
    def composed(data):
        for transform in transforms:
            data = transform(data)
        return data

    return composed


class InjectDefaultPrompt:
    def __init__(self, prompt):
        self.prompt = prompt

    def __call__(self, data):
        return data if "prompt" in data else {**data, "prompt": self.prompt}


class Cameras:
    """Views by openpi's names; one that is missing is black and masked."""

    def __call__(self, data):
        found = {
            "base_0_rgb": "cam_high",
            "left_wrist_0_rgb": "cam_left_wrist",
            "right_wrist_0_rgb": "cam_right_wrist",
        }
        views = data.pop("images")
        first = views["cam_high"]
        images = {ours: views.get(theirs, np.zeros_like(first)) for ours, theirs in found.items()}
        masks = {ours: np.bool_(theirs in views) for ours, theirs in found.items()}
        return {**data, "image": images, "image_mask": masks}


class Normalize:
    def __init__(self, stats, action_dim):
        self.stats, self.action_dim = stats, action_dim

    def __call__(self, data):
        mean, std = self.stats["state"]
        state = (np.asarray(data["state"], dtype=np.float32) - mean) / (std + 1e-6)
        return {**data, "state": np.pad(state, (0, self.action_dim - len(state))).astype(np.float32)}


class TokenizePrompt:
    """One token a word; openpi's tokenizer is a file that has to be downloaded."""

    def __init__(self, max_len, vocab_size):
        self.max_len, self.vocab_size = max_len, vocab_size

    def __call__(self, data):
        words = str(data.pop("prompt")).split()[: self.max_len]
        tokens = np.zeros(self.max_len, dtype=np.int64)
        tokens[: len(words)] = [2 + zlib.crc32(word.encode()) % (self.vocab_size - 2) for word in words]
        mask = np.arange(self.max_len) < len(words)
        return {**data, "tokenized_prompt": tokens, "tokenized_prompt_mask": mask}


class Unnormalize:
    def __init__(self, stats):
        self.stats = stats

    def __call__(self, data):
        mean, std = self.stats["actions"]
        data["actions"] = data["actions"][:, : len(mean)] * (std + 1e-6) + mean
        return data
