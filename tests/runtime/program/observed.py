"""The operations of one observed call, and the tensors of its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from rote.base import NOWHERE
from rote.runtime.arguments import bind
from rote.runtime.backends.select import PROCESS
from rote.runtime.capture import Plan, TracedCall
from rote.runtime.program import Operation, Token
from rote.runtime.recording import Node


class Observed(NamedTuple):
    """What a call did up to its end or the first read of the host, and the tensors that came out."""

    operations: list[Operation]
    results: list[Token]


def observe(function: Callable[..., Any], *args: torch.Tensor) -> Observed:
    torch.manual_seed(0)
    root, backend = Node(), PROCESS.of(torch.device("cpu"))
    with backend.lock:
        backend.enter_call()
        outcome = TracedCall(function, bind(args, {}), Plan(root, 1, backend), NOWHERE).run()
    assert not outcome.blockers and outcome.difference is None, (outcome.blockers, outcome.difference)
    leaves = [leaf.token for leaf in outcome.template.bare().leaves if not leaf.hidden]
    return Observed(root.operations, [each for each in leaves if isinstance(each, Token)])
