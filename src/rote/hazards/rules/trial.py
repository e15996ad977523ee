"""Rules of the trial run: what a capture minds beside the runtime's own reasons."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ..finding import Severity
from .rule import Finder, Group, Rule

FROZEN_HOST_VALUE = Rule(
    "RT141", "value of a host tensor frozen into the graph", Severity.WRONG, Group.HOST_DATA, Finder.TRIAL
)
MIXED_DEVICES = Rule(
    "RT143", "operands on the host and on the device", Severity.STOPS, Group.DEVICES, Finder.TRIAL
)
ADDRESS_READ = Rule("RT149", "address of a tensor read", Severity.WRONG, Group.MEMORY, Finder.TRIAL)
RAISES = Rule("RT161", "callable raises", Severity.STOPS, Group.LIMITS, Finder.TRIAL)
NO_FAKE = Rule(
    "RT171", "operator without a fake implementation", Severity.UNKNOWN, Group.LIBRARIES, Finder.TRIAL
)
FOREIGN_KERNEL = Rule(
    "RT172", "kernel launched past PyTorch's dispatcher", Severity.UNKNOWN, Group.LIBRARIES, Finder.TRIAL
)

TRIAL_RULES: Mapping[str, Rule] = MappingProxyType(
    {rule.code: rule for rule in list(globals().values()) if isinstance(rule, Rule)}
)
"""The rules of the trial run, by code."""
