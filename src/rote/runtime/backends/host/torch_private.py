# pyright: reportPrivateUsage=false
"""The only place that touches private parts of PyTorch.

Each function probes for what it needs, says on which versions it was seen, and falls back to something
public that is slower or keeps more memory but never gives other numbers. Nothing is probed at import.

Things that don't work as fallbacks: ``torch.no_grad()`` for :func:`below_tracking` (some CPU kernels,
oneDNN's LSTM for one, choose their arithmetic by grad mode, so it has to stay as it was at capture), and
calling the overload *packet* instead of the overload (overload resolution by exceptions costs
milliseconds).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from operator import attrgetter
from typing import Any, cast

import torch
from torch._ops import OpOverload as OpOverload

from ....base import CaptureError

Call = Callable[..., Any]
Guard = Callable[[], AbstractContextManager[Any]]


def below_tracking() -> Guard:
    """A context below autograd and below version counting that leaves grad mode alone.

    Without it no autograd graph is built either, as the recording's own tensors never require grad;
    only version counters then move at replay. Seen on 2.11 and 2.13.
    """
    return cast("Guard", getattr(torch._C, "_AutoDispatchBelowADInplaceOrView", nullcontext))


def inference_guard() -> Callable[[bool], AbstractContextManager[Any]]:
    """Inference mode on or off; restores inference and grad mode. Seen on 2.11 and 2.13."""
    found = getattr(torch._C, "_InferenceMode", None)
    if found is None:
        return torch.inference_mode
    return cast("Callable[[bool], AbstractContextManager[Any]]", found)


def grad_setter() -> Callable[[bool], object]:
    """Sets grad mode and leaves it set. Seen on 2.11 and 2.13."""
    return cast("Callable[[bool], object]", getattr(torch._C, "_set_grad_enabled", torch.set_grad_enabled))


def mode_counters() -> tuple[Callable[[], int], Callable[[], int]]:
    """How many function modes and how many dispatch modes are active, in 0.1 us. Seen on 2.11 and 2.13.

    Without the probes every replay counts as watched, which costs it 2 us.
    """
    names = ("_len_torch_function_stack", "_len_torch_dispatch_stack")
    functions, dispatches = (getattr(torch._C, name, _one) for name in names)
    return cast("Callable[[], int]", functions), cast("Callable[[], int]", dispatches)


def is_replaced(name: str) -> bool:
    """Whether somebody registered another CPU kernel for an overload.

    Without the probe all count as replaced: every result is then computed and copied.
    Seen on 2.11 and 2.13.
    """
    probe = getattr(torch._C, "_dispatch_dump", None)
    return probe is None or "CPU (inactive)" in probe(name)


def storage_keys() -> Callable[[torch.UntypedStorage], int]:
    """Tells what identifies a storage while it lives: its C++ address. Seen on 2.11 and 2.13.

    ``data_ptr`` will not do, it is 0 for every empty storage. ``id`` of the wrapper will: PyTorch keeps one
    wrapper per storage for as long as somebody refers to it weakly or strongly.
    """
    return attrgetter("_cdata") if hasattr(torch.UntypedStorage, "_cdata") else id


def negative_view(tensor: torch.Tensor) -> torch.Tensor:
    """The view of ``tensor`` with its negative bit set, as ``x.conj().imag`` makes. Seen on 2.11 and 2.13.

    Raises:
        CaptureError: This PyTorch build has no such function; no public one shares memory with ``tensor``.
    """
    found = getattr(torch, "_neg_view", None)
    if found is None:
        raise CaptureError(
            "host: this PyTorch build cannot rebuild a lazily negated view (torch._neg_view is gone)"
        )
    return cast("torch.Tensor", found(tensor))


def fills_memory() -> bool:
    """Whether ``empty`` returns defined values, as in deterministic mode. Seen on 2.11 and 2.13."""
    settings: Any = torch.utils.deterministic
    return torch.are_deterministic_algorithms_enabled() and bool(
        getattr(settings, "fill_uninitialized_memory", False)
    )


def _one() -> int:
    return 1
