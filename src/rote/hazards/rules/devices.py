"""Devices: tensors that one recording can't hold."""

from __future__ import annotations

from ..finding import Severity
from .rule import Finder, Group, Rule

UNSUPPORTED_TENSOR = Rule(
    "RT601",
    "tensor without plain memory",
    "Use a dense tensor of torch.Tensor's own class.",
    Severity.STOPS,
    Group.DEVICES,
    Finder.TRIAL | Finder.RUNTIME,
    """
    A sparse, nested, quantized or otherwise wrapped tensor.

    Why: A recording names memory by storage, size and stride; such tensors have several storages or none.

    Limits: Tensor subclasses that are made of dense ones are not supported either.

    Bad::

        return torch.sparse.mm(x.to_sparse(), x)

    Good::

        return x @ x
    """,
)
SEVERAL_DEVICES = Rule(
    "RT602",
    "several devices in one call",
    "Wrap one callable per device.",
    Severity.ISLAND,
    Group.DEVICES,
    Finder.RUNTIME,
    """
    The call uses tensors on more than one GPU.

    Why: A recording belongs to one device and its stream.

    Limits: None known.

    Unchecked: The trial has one pretended device, which every cuda:N means.

    Bad::

        return x.to("cuda:0") + y.to("cuda:1").to("cuda:0")

    Good::

        return x + y
    """,
)
WRONG_BACKEND = Rule(
    "RT603",
    "tensors on a device of another backend",
    'Use backend="auto".',
    Severity.SPEED,
    Group.DEVICES,
    Finder.RUNTIME,
    """
    ``backend="host"`` was asked for, and the call uses a GPU; or the arguments are on the CPU and the call
    moves them.

    Why: The host backend records operations on CPU tensors only.

    Limits: With ``backend="auto"`` rote finds the device among the arguments and the state.

    Unchecked: It is about an option of rote.graph, which a check is not given.

    Bad::

        g = rote.graph(fn, backend="host")

    Good::

        g = rote.graph(fn, backend="auto")
    """,
)
