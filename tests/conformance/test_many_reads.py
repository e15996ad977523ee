"""Calls that read the host many times, one after the other, as solvers with a step size of their own do."""

import torch

import rote
from rote.testing import assert_same

READS = 1100
"""More than Python allows functions in each other."""


def test_a_call_with_more_reads_than_python_has_frames(device, tmp_path):
    def fn(x):
        total = x.sum()
        for _ in range(READS):
            if (total < 1e9).item():
                total = total + 1
        return total

    g = rote.graph(fn, plans=tmp_path)
    for n in range(5):
        x = torch.full((3,), float(n), device=device)
        assert_same(g(x), fn(x))
    assert g.report().replayed > 0 and f"{READS} times" in g.explain()
    g.save_report(tmp_path / "report.html")
    g.reset()
