"""The reducers of ``DistributedDataParallel`` that work in a call: where what they do can be done again.

A reducer copies gradients into buckets, begins an all-reduce of each bucket, waits, and copies what has come
back. All of that are operations, and a traced call sees them. What it counts besides is as before once its
backward is over. So a call that has a whole round in it, the forward and the backward, may be replayed, and
the reducer is left alone. Other ranks do not see who sends.

Before a forward a wrapper may send the buffers of rank 0. It lists them anew each time; what it lists is a
condition where it lies, in the modules.

Not all wrappers are like that. Where parameters may be unused, a reducer looks for them in the graph; a hook
for the communication is user code that C++ calls, on any thread; buckets may be the gradients. Calls of such
wrappers are not replayed, nor is a round whose backward is not in the call.

What does not work: a reducer that waits for a backward does so until one is over or another round begins. A
replay is no round to it. Nothing tells that it waits.

A call may lie in the forward of a wrapper, too. Its backward is one node to autograd where it is a replay, so
that gradients arrive in another order. A reducer sorts its buckets by the order of the first backward that
averages, and more than two ranks add by the place in a bucket. So such a call is recorded once that is done.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parallel import DistributedDataParallel

from ...base import is_instance
from .torch_private import future_of, reducer_obstacle, sorts_buckets

if TYPE_CHECKING or torch.distributed.is_available():
    from torch.distributed import Work
else:
    Work = object

READY = ""
"""What :func:`unready` says of a wrapper whose rounds can be done again."""

_DEVICES = frozenset({"cpu", "cuda"})
"""Elsewhere what a reducer does was not looked at."""
_NEW = "buckets that are made anew behind the first backward"
_SENDING, _ROUND = "allreduce_", "prepare_for_backward"
_SENDS_BUFFERS = "_broadcast_coalesced"
BUFFERS = ("modules_buffers", "named_module_buffers")
"""Where a wrapper lists its buffers, anew in each forward, before it sends them."""
_STEPS = frozenset({_ROUND, "prepare_for_forward", "_rebuild_buckets", "set_runtime_stats_and_log"})


_PUTS_BACK = "_unsafe_set_version_counter"


def _runs(frame: FrameType, step: Callable[..., Any]) -> bool:
    """Whether a frame runs a step of a wrapper; its code may be a copy, where a traced call watches it."""
    code, known = frame.f_code, step.__code__
    return (code.co_qualname, code.co_filename) == (known.co_qualname, known.co_filename)


def _wrapper_around() -> DistributedDataParallel | None:
    """The wrapper in whose forward the caller is."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not _runs(frame, DistributedDataParallel.forward):
        frame = frame.f_back
    return None if frame is None else frame.f_locals["self"]


def unready(held: weakref.ref[DistributedDataParallel]) -> str:
    """Why rounds of a wrapper cannot be done again, in a few words."""
    wrapper = held()
    if wrapper is None:
        return "nobody who has it"
    if wrapper.device_type not in _DEVICES:
        return f"a model on {wrapper.device_type}"
    return reducer_obstacle(wrapper, _NEW)


def _keeps_buffers(held: weakref.ref[DistributedDataParallel]) -> str:
    """Why a wrapper has no buffers to send before a forward, in a few words."""
    wrapper = held()
    return READY if wrapper is not None and wrapper.modules_buffers else "buffers that are listed no more"


@dataclass(eq=False)
class Reducers:
    """The reducers of one call.

    Args:
        refuse: Called with what cannot be done again, and whether it is so for the first calls only.
        answers: Called with what is asked again before each replay, and has to be answered by ``READY``.
        buckets: Handles of the storages that they send: memory of theirs, as long as they are ready.
    """

    refuse: Callable[[str, bool], None]
    answers: Callable[[Callable[[], str]], None]
    buckets: set[int] = field(default_factory=set[int])
    _met: list[DistributedDataParallel] = field(default_factory=list[DistributedDataParallel])
    _sending: list[DistributedDataParallel] = field(default_factory=list[DistributedDataParallel])
    _waits: bool = False  # a round has begun, and nothing was sent
    _apart: bool = False  # what they send is not part of what is traced

    def meets(self, function: Any, owner: Any, frame: FrameType | None) -> bool:
        """A function in C is about to be called by a frame: whether it is a step of a wrapper's call."""
        wrapper = None if frame is None else frame.f_locals.get("self")
        if not is_instance(wrapper, DistributedDataParallel):
            return False
        name = function.__name__
        ours = name in _STEPS and (owner is wrapper.reducer or owner is wrapper.logger)
        if not (ours or name == _SENDS_BUFFERS):
            return False
        self._meet(wrapper)
        if name == _SENDS_BUFFERS and not any([each is wrapper for each in self._sending]):
            self._sending.append(wrapper)
            self.answers(partial(_keeps_buffers, weakref.ref(wrapper)))
        if name == _ROUND:
            self._end_round()
            self._waits = True
        return True

    def keeps_versions(self, function: Any, frame: FrameType | None) -> bool:
        """Whether a function in C puts back the versions of buffers that a wrapper has sent."""
        caller = frame.f_back if frame is not None and function.__name__ == _PUTS_BACK else None
        return caller is not None and _runs(caller, DistributedDataParallel._sync_buffers)

    def _meet(self, wrapper: DistributedDataParallel) -> None:
        if any([each is wrapper for each in self._met]):
            return
        self._met.append(wrapper)
        why = unready(weakref.ref(wrapper))
        if why:
            self._refuse(why)
        else:
            self.answers(partial(unready, weakref.ref(wrapper)))

    def leads(self, operator: str, tensors: list[torch.Tensor]) -> bool:
        """Whether a collective of tensors, which no Python has begun, is one of theirs."""
        if self._met and operator.partition("::")[2] == _SENDING:
            self._waits = False
            self.buckets.update(each.untyped_storage()._cdata for each in tensors)
        return bool(self._met) and not self._apart

    def end(self) -> None:
        """The call is over: no round is left that has begun in it."""
        self._end_round()
        several = torch.distributed.is_available() and torch.distributed.is_initialized()
        if several and torch.is_grad_enabled() and sorts_buckets(_wrapper_around()):
            self._refuse(_NEW)
        for wrapper in self._met:
            why = unready(weakref.ref(wrapper))
            if why:
                self._refuse(why)
        self._met.clear()
        self._sending.clear()

    def _refuse(self, why: str) -> None:
        self._apart = self._apart or why != _NEW
        self.refuse(f"DistributedDataParallel ({why})", why == _NEW)

    def _end_round(self) -> None:
        if self._waits:
            self._refuse("a forward whose backward is not in the call")
        self._waits = False


class DoneWork(Work):
    """A handle of work that is over, for a reducer: the traced call waits where it meets the bucket next."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        super().__init__()
        self._tensors = tensors

    @property
    def handed(self) -> Any:
        """The handle as operators return it."""
        return self.boxed()

    def wait(self, timeout: Any = None) -> bool:
        """Nothing is left to wait for."""
        return True

    def get_future(self) -> Any:
        """A future of the type that C++ takes apart; one that Python makes holds Python objects."""
        return future_of(self._tensors)
