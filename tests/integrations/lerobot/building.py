"""Small policies of lerobot in pairs, and what they see.

lerobot has an environment of its own, `make test-lerobot`; elsewhere what imports this is skipped.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.robots import policies
from tests import packages
from torch import Tensor

from rote.integrations.lerobot import graph_policy, graphed

pytest.importorskip("lerobot")
if packages.missing():
    pytest.skip(f"there is no {packages.missing()}", allow_module_level=True)

BODY = policies.BODIES["pusht"]
KINDS = ("act", "diffusion", "smolvla")
TOKENS = 6


def build(kind: str, folder: Path, device: torch.device, **changed: Any) -> Any:
    """A policy with weights of one seed, ready to act."""
    torch.manual_seed(0)
    given = policies.features(BODY, device)
    made = policies.KINDS[kind](given, folder / "language-model")
    if changed:
        for name, value in changed.items():
            setattr(made.config, name, value)
        made = type(made)(made.config)
        torch.manual_seed(0)
        made = type(made)(made.config)
    return made.to(device).eval()


def pair(kind: str, folder: Path, device: torch.device, **changed: Any) -> tuple[Any, Any]:
    """The same policy twice, the second one graphed."""
    plain, ours = (build(kind, folder, device, **changed) for _ in range(2))
    ours.load_state_dict(plain.state_dict())
    assert graph_policy(ours) is ours
    return plain, ours


def seen(number: int, device: torch.device, batch: int = 1) -> dict[str, Tensor]:
    """An observation, as lerobot's transforms give it to a policy."""
    rng = torch.Generator().manual_seed(number)
    tokens = torch.randint(6, 20, (batch, TOKENS), generator=rng)
    given = {
        "observation.image": torch.rand(batch, *BODY.cameras["observation.image"], generator=rng),
        "observation.state": torch.rand(batch, BODY.state, generator=rng),
        "observation.language.tokens": tokens,
        "observation.language.attention_mask": torch.ones_like(tokens, dtype=torch.bool),
    }
    return {name: each.to(device) for name, each in given.items()}


def observation(kind: str, number: int, device: torch.device, batch: int = 1) -> dict[str, Tensor]:
    """The part of it that a policy of this type is given."""
    found = seen(number, device, batch)
    return {name: each for name, each in found.items() if kind == "smolvla" or "language" not in name}


def demonstration(kind: str, number: int, device: torch.device, batch: int = 2) -> dict[str, Tensor]:
    """A batch of a data set: observations, actions, and which of these only fill up."""
    rng = torch.Generator().manual_seed(1000 + number)
    found = observation(kind, number, device, batch)
    if kind == "diffusion":  # it sees two steps of history
        history = {name: torch.stack([each, each * 0.5], dim=1) for name, each in found.items()}
        found = history
    actions = torch.rand(batch, 16, BODY.actions, generator=rng)
    fill = torch.zeros(batch, 16, dtype=torch.bool)
    fill[:, 14:] = True
    return {**found, "action": actions.to(device), "action_is_pad": fill.to(device)}


def replays(policy: Any) -> int:
    """Calls of any part of the policy that were replayed."""
    return sum(each.report().replayed for each in graphed(policy))


def explained(policy: Any) -> str:
    """What became of its calls, for the message of a test that fails."""
    return "\n".join(each.explain() for each in graphed(policy))
