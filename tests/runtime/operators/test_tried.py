"""Which operators of libraries a trial in a graph can tell of. What it tells is tested on a GPU."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses import FakeTensorMode

from rote.runtime.backends import PROCESS
from rote.runtime.operators import TRIED, GraphTrial

ADD = torch.ops.aten.add.Tensor
ALONE = PROCESS.of(torch.device("cpu")).alone
CHECK = torch.ops.aten._assert_async.default


@pytest.mark.parametrize(
    ("func", "devices", "size", "others"),
    [
        (CHECK, ["cuda:0"], 1, []),
        (ADD, ["cuda:0"], 1, [object()]),
        (ADD, ["cuda:0", "cuda:1"], 1, []),
        (ADD, ["cuda:0"], 1 << 29, [1]),
    ],
    ids=["no result", "an object", "two GPUs", "2 GiB"],
)
def test_some_are_not_tried(func, devices, size, others):
    with FakeTensorMode():
        args = (*[torch.empty(size, device=device) for device in devices], *others)
    assert TRIED.attempt(func, args, {}, ALONE) is GraphTrial.UNTRIED
    assert TRIED.find(func, args, {}) is None


def test_on_the_host_a_graph_holds_none():
    assert TRIED.attempt(ADD, (torch.ones(1), torch.ones(1)), {}, ALONE) is GraphTrial.REFUSES
