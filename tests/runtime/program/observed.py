"""What one observed call did, as data."""

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
    """The operations of a call that reads nothing of its tensors, and the tensors in its result."""

    operations: list[Operation]
    results: list[Token]


def observe(function: Callable[..., Any], *args: torch.Tensor) -> Observed:
    root, backend = Node(), PROCESS.of(torch.device("cpu"))
    with backend.lock:
        backend.enter_call()
        outcome = TracedCall(function, bind(args, {}), Plan(root, 1, backend), NOWHERE).run()
    assert not outcome.blockers and outcome.difference is None, (outcome.blockers, outcome.difference)
    assert outcome.node is root and outcome.template is not None
    tokens = [leaf.token for leaf in outcome.template.leaves]
    return Observed(root.operations, [each for each in tokens if isinstance(each, Token)])
