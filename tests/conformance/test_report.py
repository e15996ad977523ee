"""The report: frozen, complete, JSON, and readable."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

import rote

WARM = rote.Options().warmup + 1


@pytest.fixture
def used(device):
    def fn(x, n):
        y = (x * n).exp()
        return y * 2 if y.sum() > 100 else y

    g = rote.graph(fn)
    for n in (1, 1, 1, 1, 1, 2, 2, 2, 2):
        g(torch.ones(3, device=device), n)
    yield g
    g.reset()


def test_numbers(used):
    report = used.report()
    assert (report.calls, report.recorded, len(report.recordings)) == (9, 2, 2)
    assert report.replayed + report.eager == 9
    assert report.replayed == 9 - WARM - 1  # the first call with the other number is recorded
    assert sum(recording.replays for recording in report.recordings) == report.replayed
    for recording, n in zip(sorted(report.recordings, key=lambda r: r.key), (1, 2), strict=True):
        assert recording.key == f"(args[0]: float32[3], args[1]: {n})"
        assert (recording.segments, recording.paths) == (2, 1) or recording.segments == 1
        assert recording.bytes_held > 0


def test_it_is_frozen(used, device):
    report = used.report()
    for value in (report, report.recordings[0], report.recordings[0].islands[0]):
        field = dataclasses.fields(value)[0].name
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, field, 1)
    used(torch.ones(3, device=device), 1)
    assert report.calls == 9 and used.report().calls == 10


def test_json(used):
    report = used.report()
    data = json.loads(report.to_json())
    assert data == json.loads(json.dumps(report.to_dict())) == json.loads(report.to_json(indent=None))
    assert set(data) == {
        "name", "calls", "replayed", "eager", "recorded", "backwards", "backwards_replayed",
        "backwards_verified", "verified", "recordings", "reasons", "budget",
        "output", "kernels", "parts", "plan",
    }  # fmt: skip
    assert set(data["recordings"][0]) == {
        "key", "segments", "operations", "paths", "islands", "bytes_held", "replays", "estimate", "evictions",
        "inputs", "replay_us", "plain_us", "with_backward", "tier",
    }  # fmt: skip
    assert set(data["recordings"][0]["inputs"][0]) == {"name", "kind", "placement", "mutated"}
    assert set(data["recordings"][0]["islands"][0]) == {"operation", "where", "code"}


def test_json_of_reasons(device):
    values = iter(range(9))
    g = rote.graph(lambda x: x * next(values))
    for _ in range(3):
        g(torch.ones(3, device=device))
    (found,) = json.loads(g.report().to_json())["reasons"]
    assert set(found) == {"code", "message", "where", "remedy", "count", "warm_up"}
    assert (found["code"], found["count"]) == ("RT201", 3)


def test_text(device, where):
    def fn(x):
        return x * 2

    g = rote.graph(fn)
    name = "test_text.<locals>.fn"
    assert g.explain() == f"{name}: 0 calls, 0 replayed, 0 eager (0 of them recorded)\nno recording yet"
    for _ in range(WARM + 2):
        g(torch.ones(4, device=device))
    head, line = g.explain().splitlines()
    assert head == f"{name}: {WARM + 2} calls, 2 replayed, {WARM} eager (1 of them recorded)"
    assert line.startswith("recording 1 for (args[0]: float32[4]): 1 operations in 1 segment, 1 path, ")
    assert line.endswith(" MB expected), 2 replays")


def test_text_of_reasons(device, where):
    count = [0]

    def fn(x):
        count[0] += 1j  # a real number would be followed
        return x * 2

    g = rote.graph(fn)
    for _ in range(3):
        g(torch.ones(4, device=device))
    first, second = g.explain().splitlines()[-2:]
    assert first == (
        f"RT201 at {where(fn, 'count[0] += 1j')}, 3 calls: "
        "test_text_of_reasons.<locals>.fn.count[0] was 2j and is 3j"
    )
    assert second == (
        "  Keep what changes in a tensor that is updated in place (a registered buffer), or move it outside."
    )


def test_names(device):
    class Policy:
        def act(self, x):
            return x

        def __call__(self, x):
            return x

    assert rote.graph(Policy().act).report().name == "Policy.act"
    assert rote.graph(torch.nn.Linear(1, 1)).report().name == "Linear"
    assert rote.graph(Policy()).report().name.endswith("Policy")
    assert rote.graph(torch.sin).report().name.endswith("sin")


def test_a_value_that_the_call_does_not_read(device):
    """What is only reached, of a class made in C as well, is no condition."""

    class Policy(dict):
        def __init__(self):
            self.net = torch.nn.Linear(4, 2, device=device)
            self.ticks, self.scale = 0, 2.0
            self.act = rote.graph(self._act)

        def _act(self, obs):
            return self.net(obs) * self.scale

        def tick(self, obs):
            self.ticks += 1
            self["last"] = obs
            return self.act(obs)

    x, policy = torch.randn(3, 4, device=device), Policy()
    for _ in range(5):
        assert torch.equal(policy.tick(x), policy.net(x) * 2)
    assert policy.act.report().replayed == 5 - WARM and not policy.act.report().reasons
    policy.scale = 3.0
    assert torch.equal(policy.tick(x), policy.net(x) * 3)
    (found,) = policy.act.report().reasons
    assert (found.code, found.message) == ("RT302", "Policy._act.scale was 2.0 and is 3.0")


def test_a_value_that_pytorch_reads(device):
    """No code of the user's names a flag of a module, or where a global is defined later."""
    usual = "Pass the value in as an argument if it changes often."
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.0)).to(device)
    names = {}
    exec("def fn(x):\n try: return x * LATE\n except NameError: return x", names)
    changes = ((model, lambda: model.eval()), (names["fn"], lambda: names.__setitem__("LATE", 2.0)))
    for fn, change in changes:
        g, x = rote.graph(fn), torch.ones(2, 4, device=device)
        for call in range(6):
            if call == 4:
                change()
            g(x)
        found = [each for each in g.report().reasons if each.code == "RT302"]
        assert found and {each.remedy for each in found} == {usual}


def test_a_recording_with_hundreds_of_arguments_is_told_in_few_lines(device):
    weights = [torch.nn.Parameter(torch.ones(2, device=device)) for _ in range(200)]
    total = rote.graph(lambda x, *weights: sum(weights, x))
    with torch.no_grad():
        for _ in range(4):
            total(torch.ones(2, device=device), *weights)
    text = total.explain()
    assert total.report().replayed == 2
    assert ", ...): 200 operations" in text
    assert "  and 188 more in place or mutated" in text
    assert max(map(len, text.splitlines())) < 1_200
    assert len(total.report().recordings[0].inputs) == 201, "the report has them all"
