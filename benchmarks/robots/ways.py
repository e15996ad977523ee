"""Ways to run a policy, and W4A8 weights for any of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from rote.integrations.lerobot import graph_policy
from rote.integrations.torch_compile import backend
from rote.quant import DuQuantConfig, calibrate, load_quantized, quantize_, save_quantized

from .episodes import play
from .policies import Brain
from .worlds import World

METHODS = {
    "act": ("model", "forward"),
    "diffusion": ("diffusion", "generate_actions"),
    "smolvla": ("model", "sample_actions"),
    "pi0": ("model", "sample_actions"),
    "pi05": ("model", "sample_actions"),
}
"""What gives a chunk, by the type of a policy: what is compiled, and what ``graph_policy`` graphs."""

CALIBRATION = DuQuantConfig(block_size=32, rotation_steps=32, calib_batches=4)
CALIBRATION_SEED = 1000


def compiled(policy: Any, **how: Any) -> None:
    """Put the compiled method in the place of the one that gives a chunk."""
    owner, name = METHODS[policy.name]
    network = getattr(policy, owner)
    setattr(network, name, torch.compile(getattr(network, name), **how))


# The name of rote's backend is known where rote is installed, the object everywhere.
WAYS: dict[str, Callable[[Any], Any]] = {
    "eager": lambda policy: None,
    "compile": compiled,
    "reduce-overhead": lambda policy: compiled(policy, mode="reduce-overhead"),
    "backend=rote": lambda policy: compiled(policy, backend=backend),
    "rote.graph": graph_policy,
}


def ways_on(device: torch.device) -> list[str]:
    """Those that mean something there: on a CPU ``reduce-overhead`` is the default."""
    return [name for name in WAYS if device.type == "cuda" or name != "reduce-overhead"]


def quantize(brain: Brain, world: World, device: torch.device, file: Path) -> None:
    """Write the W4A8 weights of a policy, calibrated by the first steps of a few episodes."""
    with deterministic(), calibrate(brain.policy, CALIBRATION, manual=True) as stats:
        for number in range(CALIBRATION.calib_batches):
            play(brain, world, CALIBRATION_SEED + number, device, bf16=False, steps=1)
            stats.end_batch()
    quantize_(brain.policy, CALIBRATION, stats)
    file.parent.mkdir(parents=True, exist_ok=True)
    save_quantized(brain.policy, file)


def quantized(brain: Brain, file: Path) -> Brain:
    """The same policy with the weights of such a file."""
    load_quantized(brain.policy, file)
    return brain


@contextmanager
def deterministic() -> Iterator[None]:
    """Random numbers within come from one seed, and those without are left alone."""
    state = torch.get_rng_state()
    torch.manual_seed(0)
    try:
        yield
    finally:
        torch.set_rng_state(state)
