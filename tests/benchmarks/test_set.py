"""The driver of the benchmark set, and the page made from its results."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from benchmarks.set import ROWS, Row
from benchmarks.set_page import PAGE, RESULTS, page

from benchmarks import set_run, stream

VERSIONS = {"torch": "2.11.0", "cuda": "13.0", "transformers": "5.17.0", "python": "3.12.3"}


def row(name: str, us: float | None, largest: float | None = 0.0, **more: Any) -> dict[str, Any]:
    bitwise = largest == 0.0
    equality = None if us is None else {"calls": 8, "bitwise": bitwise, "largest": largest}
    return {"name": name, "status": "measured", "why": "", "median_us": us, "equality": equality, **more}


def entry(*rows: dict[str, Any], differs: bool = False, small: bool = False, **more: Any) -> dict[str, Any]:
    machine = {"before": {"clocks.sm": "1980 MHz"}, "after": {"clocks.sm": "345 MHz"}}
    made = {"finished": "2026-11-21T12:00:00+00:00", "small": small, "versions": VERSIONS, "machine": machine}
    return {**made, "report": {"device": "cuda", "rows": list(rows), "rote_differs": differs}, **more}


def write(folder: Path, device: str, rows: dict[str, Any], date: str = "2026-11-21") -> Path:
    path = folder / device / f"{date}-set.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"date": date, "device": device, "rows": rows}))
    return folder


def skipped(why: str) -> dict[str, Any]:
    found = entry()
    del found["report"]
    return {**found, "skipped": why}


# ---------------------------------------------------------------------- the page


def test_the_page_in_the_docs_is_what_the_results_give() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(RESULTS), "python -m benchmarks.set_page"


def test_without_results_the_page_says_so(tmp_path: Path) -> None:
    assert "Nothing has been measured yet" in page(tmp_path)
    write(tmp_path, "host", {"chain-10": entry(row("eager", 10), row("rote", 5), small=True)})
    assert "Nothing has been measured yet" in page(tmp_path)


def test_times_ratios_and_losses(tmp_path: Path) -> None:
    rows = {
        "chain-10": entry(
            row("eager", 100.0),
            row("by-hand", 20.0),
            row("rote", 30.0, host_us=6.0, launches={"total": 3.0}, copied_bytes=4096),
            profile={"idle_share": 0.82, "gain": 5.6},
        ),
        "pi0-2views transformers 5.17.0": entry(
            row("eager", 120e3),
            row("by-hand", None, status="failed", why="RuntimeError: a | b"),
            row("reduce-overhead", 30e3, 0.03),
            row("rote", 40e3, first_fast_call_s=0.42),
        ),
        "unet": entry(row("eager", 9000.0), row("rote", 8000.0)),
    }
    text = page(write(tmp_path, "nvidia-h200", rows))
    assert "Nothing has been measured" not in text
    assert (
        "## nvidia-h200" in text
        and "torch 2.11.0, cuda 13.0" in text
        and "clocks 345 MHz to 1980 MHz" in text
    )
    assert "| chain of 10 tiny kernels | 100.0 us | 20.0 us |  | 30.0 us | 0.30 | 1.50, slower |" in text
    cells = ("120.00 ms", "fails", "30.00 ms, differs by 0.03", "40.00 ms", "0.33", "")
    assert f"| PI0, 2 views (transformers 5.17.0) | {' | '.join(cells)} |" in text
    losses = text[text.index("Where rote loses;") : text.index("| program |")]
    assert "chain of 10 tiny kernels: `torch.cuda.graph` by hand (1.50)" in losses
    assert (
        "PI0, 2 views (transformers 5.17.0): `torch.compile` reduce-overhead (1.33, results differ)" in losses
    )
    assert "U-Net" not in losses and "eager" not in losses
    assert "- PI0, 2 views (transformers 5.17.0), `torch.cuda.graph` by hand: `RuntimeError: a / b`" in text
    assert "| chain of 10 tiny kernels | 82% | 5.60x |  | 6.0 us | 3 | 4 KiB | yes |" in text
    assert "| first fast call | host time | launches | copied | equal |" in text
    assert "0.42 s" in text and text.index("chain of 10") < text.index("U-Net")


def test_no_losses_and_wrong_results(tmp_path: Path) -> None:
    rows = {"unet": entry(row("eager", 9000.0), row("by-hand", 8000.0), row("rote", 8100.0))}
    assert "In no program is another way faster" in page(write(tmp_path, "a", rows))
    counted = {"host_us": 9.0, "launches": {"total": 3.0}}
    rows["unet"] = entry(
        *(row(name, 9000.0, **counted) for name in ("eager", "by-hand")), row("rote", 8100.0)
    )
    assert "| host time, by hand | launches, eager |" in page(
        write(tmp_path, "a", rows)
    )  # rote's are not known
    rows = {"unet": entry(row("eager", 9000.0), row("by-hand", 8000.0), row("rote", 8100.0))}
    rows = {"unet": entry(row("eager", 9000.0), row("rote", 8000.0, 0.5), differs=True)}
    text = page(write(tmp_path, "a", rows))
    assert "**rote's results differ from eager's**" in text and "8.00 ms, differs by 0.5" in text


def test_slower_than_eager_is_a_loss(tmp_path: Path) -> None:
    notes = ["0 of 20 calls replayed", "islands: 143, one is b", "RT304 17 ways were seen (a.py:1). Keep it."]
    rows = {"detector": entry(row("eager", 100.0), row("rote", 150.0, notes=notes))}
    text = page(write(tmp_path, "a", rows))
    assert "- Mask R-CNN, one image: eager (1.50)" in text and "1.50, slower" in text
    assert "- Mask R-CNN, one image: 0 of 20 calls replayed. RT304 17 ways were seen" in text
    notes[2:] = []
    assert "hardly replays" not in page(write(tmp_path, "a", rows))


def test_the_newest_figures_of_each_program(tmp_path: Path) -> None:
    write(tmp_path, "a", {"unet": entry(row("eager", 1.0)), "bert": entry(row("eager", 2.0))}, "2026-11-20")
    write(
        tmp_path, "a", {"unet": entry(row("eager", 3.0)), "rnnt": skipped("exit status 2: no")}, "2026-11-21"
    )
    text = page(tmp_path)
    assert "| 3.0 us |" in text and "| 2.0 us |" in text and "| 1.0 us |" not in text
    assert "- RNN-T greedy decode: not measured: exit status 2: no" in text


def test_a_cpu_has_ratios_only(tmp_path: Path) -> None:
    found = entry(row("eager", 200.0), row("rote", 100.0))
    found["report"]["device"] = "cpu"
    text = page(write(tmp_path, "host", {"chain-10": found}))
    assert "| chain of 10 tiny kernels | 1.00 | 0.50 | 0.50 |" in text


# ---------------------------------------------------------------------- the driver


def test_programs_are_chosen_by_name_or_beginning() -> None:
    def names(only: str | None) -> list[str]:
        return [each.name for each in set_run.chosen(only)]

    assert names(None) == [each.name for each in ROWS]
    assert names("chain-10") == ["chain-10"]
    assert names("pi0, llama-batch1") == ["llama-batch1", "pi0-2views", "pi0-1view", "pi0-3views"]
    assert names("nothing") == []


def test_results_are_merged(tmp_path: Path) -> None:
    out = tmp_path / "set.json"
    header = {"date": "2026-11-21", "device": "a"}
    first, second = Row("one", "One", "x:y"), Row("two", "Two", "x:y", package="transformers")
    for each in (first, second):
        set_run.merge(out, header, each, {"versions": VERSIONS, "small": False})
    set_run.merge(out, header, first, {"versions": VERSIONS, "small": True})
    rows = json.loads(out.read_text())["rows"]
    assert list(rows) == ["one", "two transformers 5.17.0"] and rows["one"]["small"]
    late = {"versions": VERSIONS, "skipped": "not done in 60 s"}
    set_run.merge(out, header, second, {"versions": VERSIONS, "report": {}})
    set_run.merge(out, header, second, late)
    set_run.merge(out, header, first, late)
    rows = json.loads(out.read_text())["rows"]
    assert "report" in rows["two transformers 5.17.0"] and "skipped" in rows["one"]
    set_run.merge(out, header | {"date": "2026-11-22"}, first, {"versions": VERSIONS})
    assert list(json.loads(out.read_text())["rows"]) == ["one"]


@pytest.mark.long
def test_a_command_that_fails_or_hangs_is_told() -> None:
    assert set_run.run([sys.executable, "-c", "print('a'); raise SystemExit('no GPU')"], 60) == (1, "no GPU")
    told = "print('a'); print('rote: x raised E: no\\nmore of it'); print('the end'); raise SystemExit(2)"
    assert set_run.run([sys.executable, "-c", told], 60) == (2, "x raised E: no")
    # Where tests are started in the background, interrupts are ignored, unless a program says otherwise.
    listens = "import signal, time\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    hangs = f"{listens}try: time.sleep(60)\nexcept KeyboardInterrupt: print('stopped')"
    bare = "-ISc"  # no site, so that it hangs before its time is up, however busy the machine is
    assert set_run.run([sys.executable, bare, hangs], 4) == (None, "stopped")


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.usefixtures("warm_python")
def test_what_fails_is_skipped_with_its_reason() -> None:
    options = argparse.Namespace(small=True, seconds=1.0, ways="eager", profile=False, patience=60.0)
    broken = Row("broken", "Broken", "chains:no_such_function", runner=("benchmarks.stream",))
    found = set_run.measure(broken, options, 120, "eager")["report"]
    whys = {each["name"]: each["why"] for each in found["rows"] if each["status"] == "failed"}
    assert "has no function 'no_such_function'" in whys["eager"] and not found["rote_differs"]
    gone = Row("gone", "Gone", "gone:build", runner=("benchmarks.no_such_runner",))
    assert "No module named benchmarks.no_such_runner" in set_run.measure(gone, options, 60)["skipped"]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.usefixtures("warm_python")
def test_batches_of_many_sizes_side_by_side(tmp_path: Path) -> None:
    out = tmp_path / "set.json"
    arguments = ["--only", "batch-sizes", "--small", "--ways", "rote", "--seconds", "0.2", "--out", str(out)]
    assert set_run.main(arguments) == 0
    (found,) = json.loads(out.read_text())["rows"].values()
    eager, ours = found["report"]["rows"]
    assert (eager["name"], ours["name"]) == ("eager", "rote") and found["small"]
    assert ours["equality"] == {"calls": 8 * stream.FIRST, "bitwise": True, "largest": 0.0}
    assert ours["samples"] >= 8 and len(ours["first_calls_s"]) == stream.FIRST


@pytest.mark.slow
@pytest.mark.usefixtures("warm_python")
def test_a_program_through_the_command_line(tmp_path: Path) -> None:
    out = tmp_path / "set.json"
    arguments = ["--only", "chain-10", "--small", "--ways", "rote", "--seconds", "0.2", "--profile"]
    assert set_run.main([*arguments, "--out", str(out)]) == 0
    (found,) = json.loads(out.read_text())["rows"].values()
    eager, ours = found["report"]["rows"]
    assert (eager["name"], ours["name"]) == ("eager", "rote")
    assert ours["equality"]["bitwise"] and ours["median_us"] > 0
    assert found["profile"]["operations"] == 10 and found["versions"]["torch"]
    write(tmp_path / "results", "host", {"chain-10": found | {"small": False}})
    first = "1.00" if found["report"]["device"] == "cpu" else f"{eager['median_us']:.1f} us"
    assert f"| chain of 10 tiny kernels | {first} |" in page(tmp_path / "results")


def test_compilers_come_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, asked = tmp_path / "set.json", list[tuple[str, str | None]]()

    def measured(each: Row, _: Any, left: float, ways: str | None) -> dict[str, Any]:
        asked.append((each.name, ways))
        return {**entry(row("eager", 2.0), row("rote", 1.0)), "took_s": left}

    monkeypatch.setattr(set_run, "measure", measured)
    arguments = ["--only", "chain", "--out", str(out), "--compilers-last", "--patience", "50"]
    set_run.main([*arguments, "--limit", "100"])
    names = ["chain-10", "chain-100", "chain-1000"]
    assert asked == [(name, set_run.QUICK) for name in names]  # no time for two compilers
    asked.clear()
    set_run.main([*arguments, "--limit", "1000"])
    assert asked == [(name, ways) for ways in (set_run.QUICK, None) for name in names]


def test_what_was_not_begun_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the run is killed in its first program: the names are written before it."""
    out = tmp_path / "set.json"

    def killed(*_: Any) -> dict[str, Any]:
        written = json.loads(out.read_text())["rows"]
        assert {found["skipped"] for found in written.values()} == {set_run.NOT_BEGUN}
        raise SystemExit(143)

    arguments = ["--only", "chain", "--out", str(out)]
    monkeypatch.setattr(set_run, "measure", killed)
    with pytest.raises(SystemExit):
        set_run.main(arguments)
    assert list(json.loads(out.read_text())["rows"]) == ["chain-10", "chain-100", "chain-1000"]

    rows = iter([entry(row("eager", 2.0), row("rote", 1.0), took_s=1.0)])
    monkeypatch.setattr(set_run, "measure", lambda *_: {**next(rows), "took_s": 1.0})
    monkeypatch.setattr(set_run, "LEAST_S", 0.0)
    with pytest.raises(StopIteration):
        set_run.main(arguments)
    found = json.loads(out.read_text())["rows"]
    assert "report" in found["chain-10"] and found["chain-100"]["skipped"] == set_run.NOT_BEGUN
    text = page(write(tmp_path / "pages", "a", found))
    assert "- chain of 100 tiny kernels: not measured: not begun before the time was up" in text


@pytest.mark.long
@pytest.mark.slow
def test_a_run_that_is_terminated_leaves_no_processes(tmp_path: Path) -> None:
    out = tmp_path / "set.json"
    arguments = ["--only", "chain-10", "--small", "--out", str(out), "--seconds", "60"]
    paths = os.pathsep.join([str(set_run.ROOT), str(set_run.ROOT / "src")])
    command = [sys.executable, "-m", "benchmarks.set_run", *arguments]
    process = subprocess.Popen(command, cwd=set_run.ROOT, env={**os.environ, "PYTHONPATH": paths})
    while not out.exists():
        time.sleep(0.1)
    time.sleep(2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            assert str(out) not in (each / "cmdline").read_text()


@pytest.mark.parametrize("only", ["nothing"])
def test_nothing_to_do(only: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert set_run.main(["--only", only]) == 2
    assert "--only nothing names nothing of: chain-10" in capsys.readouterr().out
