"""Reports of several ranks as one text."""

from __future__ import annotations

import torch

import rote
from rote.inspect import explain_ranks


def report(calls, *, counts=False):
    seen = []

    def step(x):
        if counts:
            seen.insert(0, len(seen))
        return x * 2 + sum(seen)

    g = rote.graph(step)
    for _ in range(calls):
        g(torch.ones(3))
    return g.report()


def test_one_rank_has_its_own_report():
    found = report(4)
    assert (
        explain_ranks([found]).splitlines()[0]
        == f"{found.name}: 4 calls, 2 replayed, 2 eager (1 of them recorded)"
    )


def test_what_some_ranks_have_comes_first():
    alike, other = report(12), report(10, counts=True)
    lines = explain_ranks([alike, alike, other, other]).splitlines()
    assert lines[0] == f"{alike.name} on 4 ranks: 10 to 12 calls, 0 to 10 replayed"
    assert lines[1].startswith("recordings: 0 to 1, ")
    assert lines[2].startswith("RT201") and " on ranks 2, 3, " in lines[2] and lines[3].startswith("  ")


def test_what_all_ranks_have():
    found = report(10, counts=True)
    lines = explain_ranks([found, found]).splitlines()
    assert lines[0].endswith("on 2 ranks: 10 calls, 0 replayed") and " on rank" not in "".join(lines[1:])
