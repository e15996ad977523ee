"""What is shown of a call on a GPU: segments are measured, and their nodes share the time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import rote

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False"),
]


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 8)).cuda()


def test_segments_are_measured_and_nodes_share_their_time(tmp_path: Path) -> None:
    net, x = model(), torch.randn(4, 256, device="cuda")

    def act(given: torch.Tensor) -> torch.Tensor:
        y = net(given)
        return y[y[:, 0] > -100].sum()

    g = rote.graph(act, keep=True)
    with torch.no_grad():
        for _ in range(4):
            g(x)
        value = g.trace(tmp_path / "call.json", (x,))
        assert torch.equal(value, act(x))
        g.save_report(tmp_path / "report.html", (x,))
    trace = json.loads((tmp_path / "call.json").read_text())
    spans = [each for each in trace["traceEvents"] if each["ph"] == "X"]
    nodes = [each for each in spans if each["tid"] == 3]
    steps = [each for each in spans if each["tid"] == 2]
    assert "measured on the device" in trace["otherData"]["durations"]
    assert {each["args"]["share"] for each in nodes if each["cat"] == "rote segment"} == {True}
    assert all(each["dur"] > 0 for each in (*nodes, *steps))
    for number, step in enumerate(steps):
        inside = sum(each["dur"] for each in nodes if each["args"]["step"] == number)
        assert inside == pytest.approx(step["dur"], abs=0.01)
    assert "net.0" in {each["args"]["module"] for each in nodes}
    assert torch.cuda.get_device_name() in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("ranges", ["profiler", "nvtx"])
def test_ranges_change_nothing(ranges: str) -> None:
    net, x = model(), torch.randn(4, 256, device="cuda")
    g = rote.graph(net, ranges=ranges, keep=True)
    with torch.no_grad():
        for _ in range(6):
            assert torch.equal(g(x), net(x))
    assert g.report().replayed == 4
