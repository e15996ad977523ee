"""The order of a benchmark, with workers that only pretend: what fails costs its own row."""

import sys
from pathlib import Path

import pytest

from rote.base.errors import EnvironmentError_, MisuseError
from rote.bench.compare import FIRST_CALLS, Bench
from rote.bench.crew import BenchPlan
from rote.bench.table import remarks
from rote.bench.worker.contenders import EAGER, PEERS, Contender

STUB = Path(__file__).with_name("stub_worker.py")
ROTE = Contender("rote", "rote", lambda function: function)
COMPILE = next(peer for peer in PEERS if peer.name == "compile")
BY_HAND = next(peer for peer in PEERS if peer.name == "by-hand")


@pytest.fixture
def bench():
    """Runs a scenario of the stub."""
    said = []

    def run(scenario="", contenders=(EAGER, COMPILE, ROTE), limit_s=20.0, python=sys.executable):
        def command(name, folder):
            return [python, "-S", str(STUB), name, str(folder), scenario]

        plan = BenchPlan("policy.py:build", ("n=1",), contenders, command, seconds=0.1, limit_s=limit_s)
        return Bench(plan, said.append).run()

    run.said = said
    return run


def test_everything_goes_well(bench):
    report = bench()
    assert [row.status for row in report.rows] == ["measured"] * 3 and not report.rote_differs
    assert report.device == "cpu" and report.first_calls == FIRST_CALLS and report.rounds >= 1
    rote = report.row("rote")
    assert (rote.median_us, rote.p99_us, rote.samples) == (120.0, 140.0, 3 * report.rounds)
    assert rote.first_fast_call_s == pytest.approx(0.5111) and rote.notes == ["rote was asked"]
    assert report.to_eager(rote) == 1.0 and len(rote.round_medians_us) == report.rounds
    assert (rote.settled, rote.settled_after_s, rote.held_bytes) == (True, pytest.approx(2.5115), 30)
    compiled = report.row("compile")
    assert (compiled.settled, compiled.settled_after_s, compiled.held_bytes) == (True, None, 10)
    assert "rote: work" in bench.said and f"round 1 of {report.rounds}" in bench.said


@pytest.mark.parametrize(
    "scenario, why",
    [
        ("compile dies at warm", "the process died: SIGKILL, after 'a last word' (work)"),
        ("compile fails at build", "RuntimeError: no"),
        ("compile fails at again", "RuntimeError: no"),
        ("compile dies at turn", "the process died: SIGKILL, after 'a last word' (work)"),
    ],
)
def test_a_failure_costs_its_own_row(bench, scenario, why):
    report = bench(scenario)
    assert (report.row("compile").status, report.row("compile").why) == ("failed", why)
    assert report.row("compile").median_us is None and report.row("rote").median_us == 120.0
    assert not report.rote_differs


def test_what_has_not_settled_is_timed_and_says_so(bench):
    report = bench("nothing settles")
    assert report.row("rote").median_us == 120.0 and not report.row("rote").settled
    assert "rote: its calls may become faster than they were when they were timed" in remarks(report)


def test_a_hang(bench):
    report = bench("compile hangs at turn", limit_s=3.0)
    assert report.row("compile").why == "no answer in 3 s (work)"
    assert report.row("rote").samples == 3 * report.rounds


def test_a_trace_that_fails_costs_the_counts(bench):
    report = bench("compile fails at count")
    assert report.row("compile").median_us == 120.0
    assert report.row("compile").notes == [
        "compile was asked",
        "launches could not be counted: RuntimeError: no",
    ]


def test_who_lacks_memory_is_measured_alone(bench):
    report = bench("compile lacks memory")
    row = report.row("compile")
    assert row.status == "measured" and row.samples == 3 and row.why == ""
    assert row.notes[-1] == "measured alone, after the others: beside them memory ran out"


def test_eager_that_lacks_memory_makes_the_others_wait(bench):
    report = bench("eager lacks memory")
    assert [row.status for row in report.rows] == ["measured"] * 3 and not report.rote_differs
    notes = [row.notes[-1].startswith("measured alone") for row in report.rows]
    assert notes == [False, True, True]
    with pytest.raises(MisuseError, match="does not run in eager: OutOfMemoryError: none"):
        bench("eager lacks memory", contenders=(EAGER,))


def test_who_is_killed_is_tried_alone(bench):
    """A system that has no memory left says nothing: it kills."""
    row = bench("compile is killed beside the others").row("compile")
    assert row.status == "measured" and row.notes[-1].startswith("measured alone")


def test_rote_differs(bench):
    report = bench("rote differs")
    assert report.rote_differs and report.repeats["bitwise"]
    assert report.to_dict()["rote_differs"] is True


def test_rote_differs_no_more_than_eager_from_itself(bench):
    report = bench("rote differs as eager does")
    assert report.row("rote").differs and not report.repeats["bitwise"] and not report.rote_differs


def test_rote_that_differs_late(bench):
    report = bench("rote differs at last")
    assert report.rote_differs and report.compared_again
    equal = {"calls": 16, "bitwise": True, "largest": None, "what": "", "unseen": ""}
    assert report.row("compile").equality == equal
    late = {"calls": 16, "bitwise": False, "largest": 0.5, "unseen": ""}
    assert report.row("rote").equality == late | {"what": "after the timed calls, call 3: result differs"}


def test_what_keeps_state_is_compared_at_first_only(bench):
    report = bench("eager has state")
    assert not report.compared_again and not report.rote_differs
    assert {row.equality["calls"] for row in report.rows} == {8}


def test_first_calls_that_cannot_be_made_again(bench):
    report = bench("eager fails at again")
    assert not report.compared_again and report.row("rote").median_us == 120.0
    assert report.row("eager").notes[0] == "its first calls could not be made again: RuntimeError: no"


def test_rote_that_fails_differs(bench):
    assert bench("rote dies at warm").rote_differs


def test_without_eager_there_is_nothing(bench):
    with pytest.raises(MisuseError, match=r"policy\.py:build does not run in eager: RuntimeError: no"):
        bench("eager fails at warm")
    with pytest.raises(MisuseError, match=r"does not run in eager: no answer in 3 s"):
        bench("eager hangs at warm", limit_s=3.0)


def test_a_target_on_the_cpu_has_no_graphs(bench, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    row = bench(contenders=(EAGER, BY_HAND)).row("by-hand")
    assert (row.status, row.why) == ("needs a GPU", "the target is on the CPU")


def test_a_machine_without_a_gpu(bench, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    row = bench(contenders=(EAGER, BY_HAND)).row("by-hand")
    assert (row.status, row.why) == ("needs a GPU", "there is no GPU")


def test_a_target_that_needs_a_gpu(bench, monkeypatch, tmp_path):
    stub = tmp_path / "stub.py"
    stub.write_text(STUB.read_text().replace("RuntimeError: no", "AssertionError: no CUDA"))
    monkeypatch.setattr(sys.modules[__name__], "STUB", stub)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(EnvironmentError_, match=r"policy\.py:build needs a GPU, and torch\.cuda\.is_avail"):
        bench("eager fails at build")
