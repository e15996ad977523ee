"""``g.trace``: a file that Perfetto opens, with what the program and the clock say."""

import gzip
import json

import pytest
import torch

import rote
from rote.inspect.steps import CallReport, NodeReport, StepReport
from rote.inspect.trace import CALLS, NODES, STEPS, durations, trace_events


def spans(trace, row):
    return [each for each in trace["traceEvents"] if each["ph"] == "X" and each["tid"] == row]


def test_the_trace_of_a_call(policy, tmp_path):
    g, x = policy
    value = g.trace(tmp_path / "call.json", (x,))
    assert torch.equal(value, g.__wrapped__(x))
    trace = json.loads((tmp_path / "call.json").read_text())
    nodes, steps, (call,) = (spans(trace, row) for row in (NODES, STEPS, CALLS))
    assert nodes[0]["name"] == "aten::native_layer_norm" and nodes[0]["args"] == {
        "module": "Policy.blocks.0.norm",
        "line": nodes[0]["args"]["line"],
        "code": "y = self.up(self.norm(x))",
        "tier": "plain",
        "bytes": nodes[0]["args"]["bytes"],
        "step": 0,
        "share": False,
    }
    assert nodes[0]["args"]["line"].endswith("tests/inspect/conftest.py:18")
    assert [each["cat"] for each in steps] == ["rote segment", "rote host read", "rote segment"]
    assert "host's clock" in trace["otherData"]["durations"]
    for outer, inner in ((steps, nodes), ([call], steps)):  # nested, and one behind the other
        ends = [each["ts"] + each["dur"] for each in inner]
        assert all(end <= after["ts"] + 0.002 for end, after in zip(ends, inner[1:], strict=False))
        assert all(
            any(o["ts"] - 0.01 <= each["ts"] and end <= o["ts"] + o["dur"] + 0.01 for o in outer)
            for each, end in zip(inner, ends, strict=True)
        )
    assert {each["pid"] for each in trace["traceEvents"]} == {call["pid"]}


def test_without_a_call_it_says_that_nothing_was_measured(policy, tmp_path):
    g, _ = policy
    calls = g.report().calls
    assert g.trace(tmp_path / "call.json.gz") is None
    trace = json.loads(gzip.decompress((tmp_path / "call.json.gz").read_bytes()))
    assert {each["dur"] for each in spans(trace, NODES)} == {1.0}
    assert "nothing was measured" in trace["otherData"]["durations"] and g.report().calls == calls


def test_nothing_recorded(tmp_path):
    g = rote.graph(torch.neg)
    with pytest.raises(rote.MisuseError, match="nothing is recorded yet"):
        g.trace(tmp_path / "call.json")
    assert torch.equal(g.trace(tmp_path / "call.json", (torch.ones(2),)), -torch.ones(2))
    trace = json.loads((tmp_path / "call.json").read_text())
    assert len(spans(trace, CALLS)) == 1 and not spans(trace, NODES)
    assert trace["otherData"]["durations"] == "one call, which was not replayed"


def test_a_disabled_wrapper_calls_plainly(tmp_path):
    g = rote.graph(torch.neg, enabled=False)
    assert torch.equal(g.trace(tmp_path / "call.json", (torch.ones(2),)), -torch.ones(2))


def node(nbytes, us=None, shared=False):
    return NodeReport("aten::add", "", "", "", "plain", nbytes, us, shared)


def test_what_the_durations_are():
    bare = CallReport("f", "", "cpu", (StepReport("segment", (node(7), node(23))),))
    lengths = [each["dur"] for each in spans(trace_events(bare, 64.0), NODES)]
    assert lengths == [16.0, 48.0]  # by bytes, and one for the launch
    assert "a median replay" in durations(bare, 64.0)
    shared = CallReport("f", "", "cuda", (StepReport("segment", (node(1, 2.0, True),), 2.0),), 2.0)
    assert "measured on the device" in durations(shared)
