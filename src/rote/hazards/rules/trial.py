"""Rules of the trial run: what a capture minds beside the runtime's own reasons."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ..finding import Severity
from .rule import Finder, Group, Rule

SHOWN = Rule(
    "RT140",
    "tensor printed or formatted",
    "Print after the call, or return the tensor and print it outside.",
    severity=Severity.STOPS,
    group=Group.HOST_READS,
    found_by=Finder.TRIAL,
)
FROZEN_HOST_VALUE = Rule(
    "RT141",
    "value of a host tensor frozen into the graph",
    "Keep the tensor on the device and change it in place, or pass the value in as an argument.",
    severity=Severity.WRONG,
    group=Group.HOST_DATA,
    found_by=Finder.TRIAL,
)
PAGEABLE_COPY = Rule(
    "RT142",
    "non-blocking copy from pageable memory",
    "Copy from a pinned buffer that lives as long as the graph: buffer = x.pin_memory() outside, "
    "y.copy_(buffer, non_blocking=True) inside.",
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
SYNCHRONIZES = Rule(
    "RT144",
    "synchronisation inside the call",
    "Synchronise outside of the callable; inside, order streams by events (stream.wait_event).",
    severity=Severity.STOPS,
    group=Group.STREAMS,
    found_by=Finder.TRIAL,
)
STREAM_MADE = Rule(
    "RT145",
    "stream made inside the call",
    "Make the stream once, outside; inside, fork from and join the current stream by events.",
    severity=Severity.SPEED,
    group=Group.STREAMS,
    found_by=Finder.TRIAL,
)
PINNED_INSIDE = Rule(
    "RT146",
    "pinned memory allocated inside the call",
    "Allocate the pinned buffer once, outside.",
    severity=Severity.STOPS,
    group=Group.MEMORY,
    found_by=Finder.TRIAL,
)
CACHE_EMPTIED = Rule(
    "RT147",
    "allocator cache emptied inside the call",
    "Empty the cache outside of the callable, or not at all.",
    severity=Severity.STOPS,
    group=Group.MEMORY,
    found_by=Finder.TRIAL,
)
CAPTURE_INSIDE = Rule(
    "RT148",
    "graph captured inside the call",
    "Graph either the inner or the outer callable.",
    severity=Severity.STOPS,
    group=Group.STREAMS,
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
STATE_TENSOR = Rule(
    "RT151",
    "tensor computed in the call stored as state",
    'Register a buffer and update it in place: self.register_buffer("scale", torch.ones(())) outside, '
    "self.scale.copy_(value) inside; or calibrate before the capture and only read it; or keep it a local "
    "variable, computed anew at every call.",
    severity=Severity.WRONG,
    group=Group.STATE,
    found_by=Finder.TRIAL,
)
ARGUMENT_WRITTEN = Rule(
    "RT152",
    "argument changed in place",
    "Return a new tensor; or pass the same tensor at every call and mean it as state.",
    severity=Severity.SPEED,
    group=Group.ALIASING,
    found_by=Finder.TRIAL,
)
GRADIENT_MADE = Rule(
    "RT153",
    "gradient made and accumulated across calls",
    "Put optimizer.zero_grad() inside the callable, before backward(); or call backward() outside.",
    severity=Severity.WRONG,
    group=Group.AUTOGRAD,
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
