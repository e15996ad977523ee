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
    text="""
    A number in a tensor of the CPU (0-dimensional) is an operand of an operation on the device.

    Why: PyTorch hands such a number to the kernel as an argument, so it is part of the graph: all replays use
    the one of the capture, whatever the tensor holds later.

    Limits: Only where operands lie on two devices; a constant that never changes is harmless.

    Bad::

        args = x, torch.tensor(2.0)

    Good::

        args = x, torch.tensor(2.0, device=x.device)
    """,
)
MIXED_DEVICES = Rule(
    "RT143",
    "operands on the host and on the device",
    "Make the host tensor on the device (device=x.device), or register it as a buffer, which .to() moves.",
    severity=Severity.STOPS,
    group=Group.DEVICES,
    found_by=Finder.TRIAL,
    text="""
    A tensor of the CPU, often a plain attribute of a module that ``.to(device)`` leaves behind, meets tensors
    of the device.

    Why: The operation raises on a GPU, or copies in every call.

    Limits: Tensors with a single number may be mixed (RT141).

    Bad::

        self.table = torch.arange(4.0)

    Good::

        self.register_buffer("table", torch.arange(4.0))
    """,
)
ADDRESS_READ = Rule(
    "RT149",
    "address of a tensor read",
    "Hand tensors to operators; an address is that of the first call for ever.",
    severity=Severity.WRONG,
    group=Group.MEMORY,
    found_by=Finder.TRIAL,
    text="""
    ``x.data_ptr()`` inside the call.

    Why: An address is a number of the first call; the next tensor lies elsewhere, and a replay does not ask.

    Limits: Kernels that get the address of a tensor of the graph's own pool are right; they are told as well.

    Bad::

        return x + x.data_ptr() % 2

    Good::

        return x + 1
    """,
)
RAISES = Rule(
    "RT161",
    "callable raises",
    "Run it once without rote, on small real tensors, and mend it; a check needs a call that returns.",
    severity=Severity.STOPS,
    group=Group.LIMITS,
    found_by=Finder.TRIAL,
    text="""
    The callable raises in the trial run.

    Why: What comes after the line is not checked.

    Limits: A callable that raises only on invented values (``--real`` uses real ones) is told as well.

    Bad::

        raise ValueError("no such mode")

    Good::

        return x * 2
    """,
)
NO_FAKE = Rule(
    "RT171",
    "operator without a fake implementation",
    "Register one, so that the operator can be checked: @torch.library.register_fake(name).",
    severity=Severity.UNKNOWN,
    group=Group.LIBRARIES,
    found_by=Finder.TRIAL,
    text="""
    A custom operator for which no fake implementation is registered.

    Why: Nobody can say what its results look like without running it, so what follows is a guess.

    Limits: Unknown, not unsafe: the operator may be captured well.

    Bad::

        library.define("twice(Tensor x) -> Tensor")

    Good::

        library.define("thrice(Tensor x) -> Tensor")
        torch.library.register_fake("rote_fixture::thrice", torch.empty_like)
    """,
)
FOREIGN_KERNEL = Rule(
    "RT172",
    "kernel launched past PyTorch's dispatcher",
    "Wrap the kernel in an operator: torch.library.triton_op or torch.library.custom_op with register_fake.",
    severity=Severity.UNKNOWN,
    group=Group.LIBRARIES,
    found_by=Finder.TRIAL,
    text="""
    A Triton kernel is launched with ``kernel[grid](...)``, not through an operator.

    Why: The trial can't run it and does not see what it writes; observation does not see it either.

    Limits: Unknown, not unsafe: such kernels are captured like others.

    Bad::

        double[(1,)](x, y, 4)
        return y

    Good::

        return x * 2
    """,
)

TRIAL_RULES: Mapping[str, Rule] = MappingProxyType(
    {rule.code: rule for rule in list(globals().values()) if isinstance(rule, Rule)}
)
"""The rules of the trial run, by code."""
