"""What does not fit any more is said, and is not used."""

from __future__ import annotations

import json

import pytest
import torch

import rote
from rote.plans.folder import FACTS, seal, unseal
from rote.runtime.engine.facts import earlier

STATE = {"by": 2.0}


def times(x):
    return x * STATE["by"]


def other(x):
    return x * STATE["by"] + 1


def run(path, function=times, calls=4, **options):
    graphed = rote.graph(function, plans=path, **options)
    for _ in range(calls):
        x = torch.randn(3)
        assert torch.equal(graphed(x), function(x))
    report = graphed.report()
    assert report.plan is not None
    return report.replayed, "\n".join(report.plan.notes)


def change(path, **changed):
    """Change what one file says, as it stands in its JSON."""
    (file,) = path.glob("*.facts")
    told = json.loads(unseal(FACTS, file.read_bytes()))
    for name, value in changed.items():
        part = told
        *outer, last = name.split("__")
        for each in outer:
            part = part[int(each) if each.isdigit() else each]
        part[last] = value
    file.write_bytes(seal(FACTS, json.dumps(told).encode()))


def test_it_fits(tmp_path):
    assert run(tmp_path) == (2, "")
    assert run(tmp_path) == (2, "(args[0]: float32[3]): the call is as it was when the plan was made")


def test_a_condition(tmp_path, monkeypatch):
    run(tmp_path)
    monkeypatch.setitem(STATE, "by", 3.0)
    assert "stale, STATE['by'] was 2.0 and is 3.0" in run(tmp_path)[1]
    assert "as it was" in run(tmp_path)[1]  # both states are known by now
    monkeypatch.setitem(STATE, "by", 2.0)
    assert "as it was" in run(tmp_path)[1]


def test_operations(tmp_path, monkeypatch):
    run(tmp_path)
    monkeypatch.setattr(times, "__code__", other.__code__)
    said = run(tmp_path)[1]
    assert "stale, the call has other operations than the 1 that were recorded" in said


@pytest.mark.parametrize(
    ("name", "was"), [("torch", "1.0"), ("rote", "0.0.1"), ("Python", "2.7"), ("the device", "a GPU")]
)
def test_versions_and_devices(tmp_path, name, was):
    run(tmp_path)
    change(tmp_path, **{f"around__{name}": was})
    assert f"stale, {name} was {was} and is " in run(tmp_path)[1]
    assert "as it was" in run(tmp_path)[1]  # it is overwritten


def test_options(tmp_path):
    run(tmp_path)
    assert "stale, the options was none and is numerics='plain'" in run(tmp_path, numerics="plain")[1]
    assert "stale" not in run(tmp_path, numerics="plain", strict=True)[1]


def test_the_verdict_of_other_code(tmp_path):
    run(tmp_path)
    verdict = {"reason": {"code": "RT201", "message": "m", "where": "", "remedy": "r"}, "price": 1e300}
    change(tmp_path, facts__verdict=verdict)
    assert run(tmp_path)[0] == 0
    change(tmp_path, code={__file__: "0" * 32}, facts__verdict=verdict)
    replayed, said = run(tmp_path)
    assert replayed == 2 and f"{__file__} has changed" in said
    change(tmp_path, code={"<stdin>": ""}, facts__verdict=verdict)
    replayed, said = run(tmp_path)
    assert replayed == 2 and "is no file" in said


def test_a_verdict_does_not_last_for_ever(tmp_path, monkeypatch):
    """The price that it says is not believed beyond a bound, and plain calls pay it."""
    monkeypatch.setattr(earlier, "MOST_PRICE", 9.0)
    run(tmp_path)
    verdict = {"reason": {"code": "RT201", "message": "m", "where": "", "remedy": "r"}, "price": 1e300}
    change(tmp_path, facts__verdict=verdict)
    graphed = rote.graph(times, plans=tmp_path)
    x, calls = torch.randn(3), 0
    while not graphed.report().recorded:
        graphed(x)
        calls += 1
    assert 9 / 0.03 < calls < 2 * 9 / 0.03
    assert run(tmp_path)[0] == 2  # it is no verdict any more


def test_where_nothing_is_bounded_no_call_is_spared(tmp_path):
    run(tmp_path)
    verdict = {"reason": {"code": "RT201", "message": "m", "where": "", "remedy": "r"}, "price": 5.0}
    change(tmp_path, facts__verdict=verdict)
    assert run(tmp_path, keep=True)[0] == 2


def test_numbers_that_do_not_change(tmp_path):
    """False facts about them: calls are recorded all the same."""
    run(tmp_path)
    change(
        tmp_path, facts__slots=["STATE['by']"], facts__lines=[[__file__, 20, "times"]], facts__leaves=[0, 7]
    )
    replayed, _ = run(tmp_path, calls=12)
    assert replayed >= 4
    assert 'slots": []' in next(iter(tmp_path.glob("*.facts"))).read_text()  # and are not kept any longer
