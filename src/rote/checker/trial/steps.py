"""The step count of an optimizer, which some keep on the host: its rule says more than that of a read."""

from __future__ import annotations

import torch

from ...base import user_site
from ...hazards import rules
from ...hazards.rules import Severity
from ...runtime.capture import count_reason, stepping
from .notes import TrialNotes


def is_step_count(notes: TrialNotes, tensor: torch.Tensor, severity: Severity) -> bool:
    """Whether a tensor counts the steps of the optimizer that is stepping; if so, that is noted."""
    running = stepping()
    why = count_reason(running, tensor, user_site()) if running is not None else None
    if why is None:
        return False
    notes.add(rules.OPTIMIZER_COUNT, why.message, remedy=why.remedy, severity=severity)
    return True
