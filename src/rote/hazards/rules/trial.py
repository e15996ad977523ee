"""Rules of the trial run: what a capture minds beside the runtime's own reasons."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ..finding import Severity
from .rule import Finder, Group, Rule

FROZEN_HOST_VALUE = Rule(
    "RT141",
    "value of a host tensor frozen into the graph",
    "Keep the tensor on the device and change it in place, or pass the value in as an argument.",
    severity=Severity.WRONG,
    group=Group.HOST_DATA,
    found_by=Finder.TRIAL,
)
MIXED_DEVICES = Rule(
    "RT143",
    "operands on the host and on the device",
    "Make the host tensor on the device (device=x.device), or register it as a buffer, which .to() moves.",
    severity=Severity.STOPS,
    group=Group.DEVICES,
    found_by=Finder.TRIAL,
)
ADDRESS_READ = Rule(
    "RT149",
    "address of a tensor read",
    "Hand tensors to operators; an address is that of the first call for ever.",
    severity=Severity.WRONG,
    group=Group.MEMORY,
    found_by=Finder.TRIAL,
)
RAISES = Rule(
    "RT161",
    "callable raises",
    "Run it once without rote, on small real tensors, and mend it; a check needs a call that returns.",
    severity=Severity.STOPS,
    group=Group.LIMITS,
    found_by=Finder.TRIAL,
)
NO_FAKE = Rule(
    "RT171",
    "operator without a fake implementation",
    "Register one, so that the operator can be checked: @torch.library.register_fake(name).",
    severity=Severity.UNKNOWN,
    group=Group.LIBRARIES,
    found_by=Finder.TRIAL,
)
FOREIGN_KERNEL = Rule(
    "RT172",
    "kernel launched past PyTorch's dispatcher",
    "Wrap the kernel in an operator: torch.library.triton_op or torch.library.custom_op with register_fake.",
    severity=Severity.UNKNOWN,
    group=Group.LIBRARIES,
    found_by=Finder.TRIAL,
)

TRIAL_RULES: Mapping[str, Rule] = MappingProxyType(
    {rule.code: rule for rule in list(globals().values()) if isinstance(rule, Rule)}
)
"""The rules of the trial run, by code."""
