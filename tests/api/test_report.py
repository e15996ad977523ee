"""Reports as values: counting, JSON, text."""

from __future__ import annotations

import json
from dataclasses import replace

from rote.api.reasons import ReasonCounts
from rote.base.location import NOWHERE, Site
from rote.hazards import rules
from rote.hazards.rules import reason
from rote.inspect import (
    FusedReport,
    InputReport,
    IslandReport,
    LeftAloneReport,
    LineReport,
    NearReport,
    OfferedReport,
    OutputReport,
    ReasonReport,
    RecordingReport,
    Report,
    TierReport,
    TrialReport,
    explain,
)

HERE, THERE = Site("a.py", 1, "f"), Site("b.py", 2, "g")


def report(**changes):
    values = dict(
        name="act",
        calls=5,
        replayed=2,
        eager=3,
        recorded=1,
        backwards=0,
        backwards_replayed=0,
        backwards_verified=0,
        verified=0,
        recordings=(),
        reasons=(),
    )
    return Report(**{**values, **changes})


RECORDING = RecordingReport(
    key="(args[0]: float32[3])",
    segments=2,
    operations=7,
    paths=1,
    islands=(IslandReport("aten::item", "a.py:1", "RT101"),),
    bytes_held=2_500_000,
    replays=2,
    estimate=3_000_000,
    evictions=1,
    inputs=(
        InputReport("args[0]", "not mutated", "copied", ""),
        InputReport("args[1]", "another tensor", "in place", "a.py:3"),
        InputReport("args[2]", "another tensor", "copied", "a.py:4"),
        InputReport("args[3]", "parameter or buffer", "in place", ""),
    ),
    replay_us=8.25,
    plain_us=40.0,
    with_backward=True,
    tier=TierReport(
        used=True,
        before=9,
        after=5,
        removed={"dead": 3, "recomputed": 0, "constants": 2},
        shown=1,
        outside=2,
        left=(LeftAloneReport("rand at a.py:2 draws random numbers", 4),),
        fused=FusedReport(launches=3, distinct=2, operations=5, refused={"gelu: it gives other bits": 2}),
        near=(NearReport("bmm", "a faster one", 3, 0.1, 0.25),),
        kept={"another one: its error is larger": 2},
        offered=(OfferedReport("bmm", 5, ("a faster one", "another one")),),
        trials=(
            TrialReport("exact", "", None, None, True),
            TrialReport("near", "3 bmm as a faster one", 6.0, 8.0, True),
        ),
        lines=(
            LineReport("a.py:5", "y = x + 1", 6, 3, {"exact": 1, "fused": 2}, {}),
            LineReport("a.py:6", "y.gelu()", 3, 3, {"exact": 3}, {"gelu: it gives other bits": 2}),
        ),
        compiling=1,
        exact_us=6.0,
        plain_us=8.0,
    ),
)


def test_a_tally_counts_calls_by_code_and_line():
    tally = ReasonCounts()
    for number in range(3):
        tally.add([
            reason(rules.STATE_CHANGES, f"text {number}", HERE),
            reason(rules.STATE_CHANGES, "another slot on the line", HERE),
            reason(rules.STATE_CHANGES, "elsewhere", THERE),
        ])  # fmt: skip
    tally.add([reason(rules.HOST_READ, "once"), reason(rules.NOT_YET, "nowhere", NOWHERE)])
    found = [(item.code, item.message, item.where, item.count) for item in tally.reports()]
    assert sorted(found[:2]) == [("RT201", "elsewhere", "b.py:2", 3), ("RT201", "text 2", "a.py:1", 3)]
    assert sorted(found[2:]) == [("RT101", "once", "", 1), ("RT307", "nowhere", "", 1)]
    tally.clear()
    assert tally.reports() == ()


def test_what_is_still_observed_comes_last_of_equally_many():
    tally = ReasonCounts()
    tally.add([reason(rules.NOT_YET, "unseen", HERE), reason(rules.TOO_MANY_PATHS, "too many", HERE)])
    assert [item.code for item in tally.reports()] == ["RT304", "RT307"]
    tally.add([reason(rules.NOT_YET, "unseen", HERE)])
    assert [item.code for item in tally.reports()] == ["RT307", "RT304"]


def test_what_came_before_the_first_recording_of_its_key_is_warm_up():
    tally = ReasonCounts()
    lazy, lasting = reason(rules.STATE_CHANGES, "lazy", HERE), reason(rules.VALUE_CHANGED, "moved", THERE)
    for _ in range(3):
        tally.add([lazy], early="one")
    tally.add([lasting])
    assert [(item.code, item.warm_up) for item in tally.reports()] == [("RT201", False), ("RT302", False)]
    tally.settle("one")
    assert [(item.code, item.warm_up) for item in tally.reports()] == [("RT302", False), ("RT201", True)]
    assert "RT201 at a.py:1, 3 calls in the warm-up: lazy" in explain(report(reasons=tally.reports()))
    tally.add([lazy], early="two")  # of which nobody knows yet
    assert [(item.code, item.warm_up) for item in tally.reports()] == [("RT201", False), ("RT302", False)]
    tally.settle("two")
    tally.settle("two")
    assert tally.reports()[-1].warm_up
    tally.add([lazy])
    assert not any(item.warm_up for item in tally.reports())


def test_json():
    value = report(recordings=(RECORDING,), reasons=(ReasonReport("RT1", "m", "a.py:1", "r.", 2),))
    value = replace(value, output=(OutputReport("print", "a.py:7"),))
    assert "output at a.py:7, not repeated by replays: print" in explain(value).splitlines()
    assert json.loads(value.to_json()) == {
        "name": "act", "calls": 5, "replayed": 2, "eager": 3, "recorded": 1, "backwards": 0,
            "backwards_replayed": 0, "backwards_verified": 0, "verified": 0,
        "recordings": [{
            "key": "(args[0]: float32[3])", "segments": 2, "operations": 7, "paths": 1,
            "islands": [{"operation": "aten::item", "where": "a.py:1", "code": "RT101"}],
            "bytes_held": 2_500_000, "replays": 2, "estimate": 3_000_000, "evictions": 1,
            "inputs": [
                {"name": "args[0]", "kind": "not mutated", "placement": "copied", "mutated": ""},
                {"name": "args[1]", "kind": "another tensor", "placement": "in place", "mutated": "a.py:3"},
                {"name": "args[2]", "kind": "another tensor", "placement": "copied", "mutated": "a.py:4"},
                {"name": "args[3]", "kind": "parameter or buffer", "placement": "in place", "mutated": ""},
            ],
            "replay_us": 8.25, "plain_us": 40.0, "with_backward": True,
            "tier": {
                "used": True, "before": 9, "after": 5, "shown": 1, "outside": 2,
                "removed": {"dead": 3, "recomputed": 0, "constants": 2},
                "left": [{"reason": "rand at a.py:2 draws random numbers", "operations": 4}],
                "fused": {"launches": 3, "distinct": 2, "operations": 5,
                          "refused": {"gelu: it gives other bits": 2}, "probed": 0},
                "near": [{"operator": "bmm", "alternative": "a faster one", "operations": 3,
                          "error": 0.1, "own": 0.25, "how": "near"}],
                "kept": {"another one: its error is larger": 2},
                "offered": [{"operator": "bmm", "operations": 5,
                             "alternatives": ["a faster one", "another one"]}],
                "trials": [
                    {"tier": "exact", "what": "", "us": None, "before_us": None, "kept": True},
                    {"tier": "near", "what": "3 bmm as a faster one", "us": 6.0, "before_us": 8.0,
                     "kept": True},
                ],
                "lines": [
                    {"where": "a.py:5", "text": "y = x + 1", "before": 6, "after": 3,
                     "tiers": {"exact": 1, "fused": 2}, "refused": {}},
                    {"where": "a.py:6", "text": "y.gelu()", "before": 3, "after": 3,
                     "tiers": {"exact": 3}, "refused": {"gelu: it gives other bits": 2}},
                ],
                "compiling": 1,
                "exact_us": 6.0, "plain_us": 8.0,
            },
        }],
        "reasons": [{"code": "RT1", "message": "m", "where": "a.py:1", "remedy": "r.", "count": 2,
                     "warm_up": False}],
        "budget": None, "output": [{"what": "print", "where": "a.py:7"}], "kernels": "", "parts": [],
        "plan": None,
    }  # fmt: skip


def test_text():
    value = report(recordings=(RECORDING,), reasons=(ReasonReport("RT1", "m", "", "r.", 2),))
    assert explain(value).splitlines() == [
        "act: 5 calls, 2 replayed, 3 eager (1 of them recorded)",
        "recording 1 for (args[0]: float32[3]): 7 operations in 2 segments, 1 path, 2.5 MB "
        "(3.0 MB expected), 2 replays, 8.2 us each, 40.0 us plainly, walks back included",
        "  near tier: 5 operations instead of 9 (3 dead, 2 constants); 6.0 us each, 8.0 us before",
        "  fused: 5 operations into 3 launches of 2 kernels",
        "  not fused: 2 gelu: it gives other bits",
        "  near: 3 bmm as a faster one; error 0.1, its own 0.25",
        "  refused: 2 another one: its error is larger",
        "  timed, near: 3 bmm as a faster one: 6.0 us each, 8.0 us before, kept",
        "  kernels are being compiled, and proved in the next replays",
        "  left as captured: 4 operations, rand at a.py:2 draws random numbers",
        "  at a.py:6: 3 of 3 operations; not gelu: it gives other bits",
        "  at a.py:5: 3 of 6 operations",
        "  island: aten::item at a.py:1 (RT101)",
        "  args[1]: another tensor, in place, mutated at a.py:3",
        "  args[2]: another tensor, copied, mutated at a.py:4",
        "  args[3]: parameter or buffer, in place",
        "RT1, 2 calls: m",
        "  r.",
    ]
    assert explain(report()).splitlines()[1] == "no recording yet"
    exact = replace(RECORDING.tier, near=(), kept={}, trials=())
    told = explain(report(recordings=(replace(RECORDING, tier=exact),)))
    assert '  numerics="near" would try 2 alternatives for 5 bmm' in told and "  exact tier: 5 " in told
    probed = replace(exact, near=(NearReport("bmm", "a faster one", 3, how="probed"),))
    told = explain(report(recordings=(replace(RECORDING, tier=probed),)))
    assert "  probed: 3 bmm as a faster one; the same bits" in told and "  probed tier: 5 " in told
    twice = replace(RECORDING, islands=RECORDING.islands * 2, tier=None)
    assert (
        explain(report(recordings=(twice,))).splitlines()[2]
        == "  island: aten::item at a.py:1 (RT101), 2 times"
    )
    many = explain(report(recordings=(replace(RECORDING, islands=(), inputs=()),) * 20)).splitlines()
    assert many[-1] == "and 4 more recordings with 8 replays" and len(many) == 178
    limited = report(recordings=(RECORDING,), budget=5_000_000)
    assert explain(limited).splitlines()[1] == "budget: 2.5 of 5.0 MB held"
