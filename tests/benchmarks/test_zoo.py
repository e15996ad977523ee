"""The zoo says of each program what became of it, and the page shows that. No time is asserted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.clock import Clock

from benchmarks import zoo_page, zoo_run, zoo_set, zoo_worker

CPU = torch.device("cpu")


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Programs are those of a file that a test writes."""

    def write(text: str) -> None:
        (tmp_path / "torch.py").write_text(f"import torch\n{text}")

    def function(program: zoo_set.Program) -> Any:
        names: dict[str, Any] = {}
        path = tmp_path / f"{program.library}.py"
        exec(compile(path.read_text(), str(path), "exec"), names)
        return names[program.name]

    monkeypatch.setattr(zoo_set, "FOLDER", tmp_path)
    monkeypatch.setattr(zoo_set.Program, "function", function)
    return write


def measured(calls: int = 70) -> dict[str, Any]:
    (program,) = zoo_set.programs()
    return zoo_worker.measure(program, CPU, calls, 60.0)


def test_each_library_has_programs_with_titles() -> None:
    found = zoo_set.programs()
    assert len(found) >= 60 and len({program.library for program in found}) >= 25
    assert all(program.title.endswith(".") for program in found)
    assert {program.key for program in zoo_set.chosen(["timm"])} >= {"timm:training_recipe"}
    assert [each.name for each in zoo_set.chosen(["torch:mamba"])] == ["mamba"]


def test_one_that_replays(library: Any) -> None:
    library('''
def mean(wrap, device):
    """A mean that follows."""
    mean, step = torch.zeros(3), wrap(lambda x: mean.lerp_(x, 0.1) * torch.rand(3))
    while True:
        yield step(torch.randn(3)), mean
''')
    row = measured()
    assert row["outcome"] == "compared" and row["equal"] and row["calls"] == 70
    assert row["graphed_calls"] == 70 and row["replayed"] >= 0.5  # the others are compared with plain calls
    assert {"first", "afterwards", "late", "plain_us"} <= row.keys()


def test_one_that_does_not(library: Any) -> None:
    library('''
def counter(wrap, device):
    """A counter."""
    seen = []

    def step(x):
        seen.insert(0, len(seen))
        return x * sum(seen)

    step = wrap(step)
    while True:
        yield step(torch.randn(3))
''')
    row = measured()
    assert row["equal"] and row["replayed"] == 0.0
    assert "RT201" in {reason["code"] for reason in row["reasons"]}


def test_one_whose_part_does(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Clock().install(monkeypatch)  # replays and plain calls of the part take as long
    library('''
def counter(wrap, device):
    """A counter beside a network."""
    network = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(32)])
    seen = []

    def step(x):
        seen.insert(0, len(seen))
        return network(x) * sum(seen)

    step = wrap(torch.no_grad()(step))
    while True:
        yield step(torch.randn(1, 256))
''')
    row = measured()
    assert row["equal"] and row["replayed"] == 0.0
    assert [part["name"] for part in row["parts"]] == ["Sequential"] and row["parts"][0]["replayed"] > 0


def test_one_that_is_not_equal(library: Any) -> None:
    library('''
def knows(wrap, device):
    """It looks at whether it is graphed."""
    graphed = wrap(abs) is not abs
    calls = 0
    while True:
        calls += 1
        yield torch.ones(2) * (1 + (graphed and calls > 23))
''')
    row = measured()
    assert not row["equal"] and row["difference"].startswith("call 23") and row["calls"] == 70
    assert row["plain_repeats"] and zoo_page.differs(row)


def test_one_whose_plain_runs_differ(library: Any) -> None:
    library('''
def counts(wrap, device):
    """What it yields late depends on the process."""
    import os

    step = wrap(lambda x: x * 2)
    for call in range(1000):
        yield step(torch.ones(2)), os.getpid() if call > 13 else 0
''')
    row = measured()
    assert not row["equal"] and row["difference"].startswith("call 14") and not row["plain_repeats"]
    assert not zoo_page.differs(row)


def test_one_that_draws_otherwise(library: Any) -> None:
    library('''
def draws(wrap, device):
    """A number is drawn that nobody sees."""
    while True:
        if wrap(abs) is not abs:
            torch.rand(1)
        yield 1
''')
    assert measured()["difference"].startswith("random generators after call 9")


def test_one_that_raises_if_graphed(library: Any) -> None:
    library('''
def raises(wrap, device):
    """It raises."""
    while True:
        yield 1 / (wrap(abs) is abs)
''')
    row = measured()
    assert not row["equal"] and "ZeroDivisionError" in row["difference"]


@pytest.mark.parametrize(
    ("body", "outcome"),
    [("import no_such_library", "cannot be imported"), ("raise ValueError('size')", "does not run plainly")],
)
def test_one_that_does_not_run(library: Any, body: str, outcome: str) -> None:
    library(f'def broken(wrap, device):\n    """Broken."""\n    {body}\n    yield\n')
    row = measured()
    assert row["outcome"] == outcome and ("no_such" in row["detail"] or "size" in row["detail"])


@pytest.mark.usefixtures("warm_python")
def test_the_small_part_in_processes(tmp_path: Path) -> None:
    """What needs no other library, by the command; a program that takes too long is a row, too."""
    out = tmp_path / "zoo.json"
    parts = ["torch:decode_with_a_position", "torch:ensemble", "torch:no_such"]
    assert zoo_run.main(["--device", "cpu", "--calls", "60", "--only", *parts, "--out", str(out)]) == 0
    assert (
        zoo_run.main(["--device", "cpu", "--timeout", "0.1", "--only", "torch:mamba", "--out", str(out)]) == 0
    )
    rows = json.loads(out.read_text())["rows"]
    assert [*rows] == ["torch:decode_with_a_position", "torch:ensemble", "torch:mamba"]
    assert rows["torch:mamba"]["outcome"] == "stopped" and rows["torch:ensemble"]["replayed"] > 0.5
    assert all(row["equal"] for row in rows.values() if row["outcome"] == "compared")
    assert zoo_run.main(["--only", "no_such_library", "--out", str(out)]) == 2


def test_the_page(tmp_path: Path) -> None:
    def row(**more: Any) -> dict[str, Any]:
        known = {"title": "Does | it.", "version": "1.0", "finished": "2026-01-02T03:04:05+00:00"}
        return known | {"outcome": "compared", "equal": True, "replayed": 1.0, "reasons": []} | more

    reasons = [
        {"code": "RT309", "where": "", "message": "tracing may take 6 %\nremedy", "count": 9},
        {"code": "RT308", "where": "", "message": "a plain call was made\nremedy", "count": 9},
    ]
    message = "x was 0x7f00aa00bb and is *new*\nremedy"
    before = [{"code": "RT201", "where": "a.py:3", "message": message, "count": 9}]
    rows = {
        "timm:good_one": row(first=2.0, afterwards=0.5, late=0.4),
        "timm:slow_one": row(
            first=9.0,
            afterwards=1.2,
            late=1.0,
            replayed=0.0,
            reasons=reasons,
            before=before,
            parts=[{"name": "Net", "calls": 10, "replayed": 9}, {"name": "Head", "calls": 10, "replayed": 1}],
        ),
        "timm:wrong_one": row(equal=False, difference="call 3 differs"),
        "timm:gone": row(outcome="cannot be imported", detail="ImportError: no"),
    }
    document = {"device": "A card", "versions": {"torch": "2.0", "python": "3.11"}, "rows": rows}
    (tmp_path / "card").mkdir()
    (tmp_path / "card" / "zoo.json").write_text(json.dumps(document))
    text = zoo_page.page(tmp_path)
    assert "- 3 of 4 programs could be compared." in text and "- Equal: 2." in text
    assert "after the first 50 calls: 1; in the last third of all calls: 0." in text and "RT201 1" in text
    lines = {line.split("**")[1]: line for line in text.splitlines() if line.startswith("| timm")}
    assert lines["good one"] == "| timm 1.0 | **good one**: Does \\| it. | yes | 100% | 2.00 | 0.50 |  |"
    assert "| 0%; Net 90% | 9.00 | 1.20 |" in lines["slow one"] and "- Replayed in parts: 1." in text
    assert "| RT201 x was 0x... and is \\*new\\* (a.py:3) |" in lines["slow one"]
    assert "| **no** | 100% |  |  | **call 3 differs** |" in lines["wrong one"]
    assert "cannot be imported: ImportError: no" in lines["gone"]


def test_the_page_without_results(tmp_path: Path) -> None:
    assert "Nothing has been run yet" in zoo_page.page(tmp_path)


def test_what_is_looked_at() -> None:
    layer = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    layer(torch.ones(2)).sum().backward()
    optimizer.step()
    before = zoo_worker.copied([layer, optimizer, None, torch.float32])
    assert before[2:] == [None, "torch.float32"] and "momentum_buffer" in str(before[1])
    optimizer.step()
    after = zoo_worker.copied([layer, optimizer, None, torch.float32])
    assert zoo_worker.different([before], [before], 0) == ""
    assert zoo_worker.different([after], [before], 5).startswith("call 5[0]['weight']")
