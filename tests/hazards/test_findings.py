"""Findings as a list, as text, JSON and SARIF; comments and baselines that silence them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import rote
from rote.base.errors import MisuseError
from rote.base.location import Site
from rote.hazards import baseline
from rote.hazards.findings import Findings, HazardError
from rote.hazards.ignores import ignored_codes, remarks_of_scan, told_apart
from rote.hazards.rules.finding import Finding, Severity
from rote.hazards.scan import scan_text
from rote.inspect import IslandReport, ReasonReport, RecordingReport, Report


def finding(code="RT101", line=3, severity=Severity.STOPS, file="a.py", **changes):
    values = dict(column=5, source="x.item()", path=(Site("b.py", 1, "g"), Site(file, line, "f")))
    return Finding(code, severity, Site(file, line, "f"), "it reads", "Do not.", **{**values, **changes})


def test_order_and_text():
    found = Findings([finding(line=9), finding(line=2, severity=Severity.SPEED)])
    assert str(found).splitlines() == [
        "a.py:2:5: RT101 it reads (costs speed)",
        "a.py:9:5: RT101 it reads (stops capture)",
    ]
    assert str(Findings()) == "nothing found"


def test_levels():
    speed = Findings([finding(severity=Severity.SPEED)], target="act")
    speed.raise_if("error")
    speed.raise_if("island")
    assert speed.ok
    with pytest.raises(HazardError, match=r"act cannot be captured as it is:\na.py:3:5: RT101") as caught:
        speed.raise_if("speed")
    assert caught.value.findings == speed and speed.ok and caught.value.findings.ok
    with pytest.raises(ValueError, match="level is 'fatal'; it can be 'error', 'island'"):
        speed.raise_if("fatal")
    early = Findings(incomplete="it hung")
    assert not early.ok
    with pytest.raises(HazardError, match="ended early: it hung"):
        early.raise_if()


def test_json():
    content = json.loads(Findings([finding(evidence="float32[]")], target="act", operations=7).to_json())
    assert content["target"] == "act" and not content["ok"] and content["operations"] == 7
    (one,) = content["findings"]
    assert one["code"] == "RT101" and one["line"] == 3 and one["column"] == 5
    assert one["severity"] == "stops capture" and one["through"] == ["b.py:1", "a.py:3"]
    assert one["source"] == "x.item()" and one["evidence"] == "float32[]" and one["remedy"] == "Do not."


def test_sarif(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inside = str(tmp_path / "pkg" / "m.py")
    found = Findings(
        [finding(file=inside), finding("RT212", severity=Severity.SPEED, file="/elsewhere/n.py")]
    )
    log = found.to_sarif()
    assert log["version"] == "2.1.0" and json.loads(found.to_sarif_json()) == log
    (run,) = log["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["RT101", "RT212"]
    assert all(rule["shortDescription"]["text"] for rule in run["tool"]["driver"]["rules"])
    other, ours = run["results"]
    place = ours["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "pkg/m.py" and place["region"]["startLine"] == 3
    assert place["region"]["startColumn"] == 5 and ours["level"] == "error" and other["level"] == "note"
    assert other["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "file:///elsewhere/n.py"
    assert len(ours["codeFlows"][0]["threadFlows"][0]["locations"]) == 2


@pytest.mark.parametrize(
    "line, codes",
    [
        ("x.item()  # rote: ignore[RT101]", {"RT101"}),
        ("x.item()  #rote:ignore[RT101, RT111]", {"RT101", "RT111"}),
        ("x.item()  # noqa  # rote: ignore[RT101]", {"RT101"}),
        ("x.item()  # rote: ignore", set()),
        ("x.item()  # ignore[RT101]", set()),
    ],
)
def test_comments(line, codes):
    assert ignored_codes(line) == codes


def test_a_comment_silences_its_codes_only(tmp_path):
    file = tmp_path / "silenced.py"
    file.write_text("a = 1\nb = 2  # rote: ignore[RT101]\n")
    found = [
        finding(file=str(file), line=2),
        finding("RT111", file=str(file), line=2),
        finding(file=str(file), line=1),
    ]
    assert told_apart(found) == (found[1:], found[:1])


COMMENTS = """\
# rote: ignore[RT101]
import torch

def fn(x, deep=False):
    y = x * x.sum().item()  # rote: ignore[RT101, rt111]
    if deep:
        y = y * 2  # rote: ignore[RT101]
    y = y + 1  # rote: ignore[RT205]
    y = y + 1  # rote: ignore[RT999]
    y = y + 1  # rote: ignore
    y = y + 1  # rote: ignore[RT306]
    y = y + 1  # rote: ignore[RT214, RT104]
    return y, "# rote: ignore[RT101]"
"""
MISTAKES = {
    (9, "ignore[RT999] silences nothing: there is no rule RT999"),
    (10, "this comment names no rule, as ignore[RT101] does, and silences nothing"),
    (11, "ignore[RT306] silences nothing: only the runtime gives this reason, to g.explain()"),
}
ALONE = (1, "ignore[RT101] silences nothing: it has to stand in the line that it is for")
NOT_SEEN = "silences nothing that the source scan sees; rote check TARGET may need it, --static does not"


def test_comments_that_the_source_scan_makes_no_use_of():
    told = remarks_of_scan(COMMENTS, "a.py", scan_text(COMMENTS, "a.py"))
    found = {(each.where.line, each.message) for each in told}
    assert found == MISTAKES | {
        ALONE,
        (5, f"ignore[RT111] {NOT_SEEN}"),
        (7, f"ignore[RT101] {NOT_SEEN}"),
        (12, f"ignore[RT104] {NOT_SEEN}"),
        (12, "ignore[RT214] silences nothing that the source scan sees"),
    }, found  # RT205 is the trial's alone
    assert str(told[0]) == f"a.py:1:1: note: {ALONE[1]}"
    assert remarks_of_scan(COMMENTS + "    (", "a.py", [])  # as far as it is Python


def test_comments_that_a_trial_makes_no_use_of(tmp_path):
    path = tmp_path / "commented.py"
    path.write_text(COMMENTS)
    space = {}
    exec(compile(COMMENTS, str(path), "exec"), space)
    findings = rote.check(space["fn"], torch.ones(3))
    found = {(each.where.line, each.message) for each in findings.remarks}
    here = "silences nothing, in this call at least"
    assert found == MISTAKES | {
        (5, f"ignore[RT111] {here}"),
        (8, f"ignore[RT205] {here}"),
        (12, f"ignore[RT104] {here}"),
    }, found  # line 7 did not run, RT214 is the scan's alone
    assert findings.ok and [each.code for each in findings.silenced] == ["RT101"]
    content = json.loads(findings.to_json())
    assert content["remarks"][0]["line"] == 5 and content["remarks"][0]["code"] == "RT111"
    assert [each["line"] for each in content["silenced"]] == [5] and not content["findings"]
    (said,) = findings.to_sarif()["runs"][0]["invocations"]
    assert said["toolConfigurationNotifications"][0]["level"] == "note"
    assert str(findings).startswith("nothing found\n") and ": note: ignore[RT111]" in str(findings)


def test_a_check_without_comments_runs_the_callable_no_more_than_before(tmp_path):
    count = tmp_path / "count"

    def fn(x):
        with count.open("a") as file:
            file.write(".")
        return x + 1

    assert rote.check(fn, torch.ones(3)).ok and len(count.read_text()) == 2


def test_a_checked_line_with_a_comment():
    def fn(x):
        y = x.sum().item()  # rote: ignore[RT101]
        return x * y * x.mean().item()

    assert len(rote.check(fn, torch.ones(3))) == 1


def test_baseline(tmp_path):
    path = tmp_path / "baseline.json"
    file = str(tmp_path / "m.py")
    known = [finding(file=file, line=3), finding(file=file, line=8), finding("RT111", file=file)]
    baseline.write(path, known)
    assert not baseline.unknown(path, known)
    moved = [finding(file=file, line=30), finding(file=file, line=80), finding("RT111", file=file)]
    assert not baseline.unknown(path, moved)  # lines move
    more = [*moved, finding(file=file, line=99)]
    assert baseline.unknown(path, more) == more[-1:]
    other = finding(file=file, source="y.item()")
    assert baseline.unknown(path, [other]) == [other]
    assert str(tmp_path) not in path.read_text()


def test_entries_of_a_baseline_that_silence_nothing(tmp_path):
    path, file = tmp_path / "known.json", tmp_path / "m.py"
    file.write_text("x.item()\ny.item()\n")
    gone, elsewhere = str(tmp_path / "gone.py"), "/somewhere/lib.py"
    known = [
        finding(file=str(file)),
        finding(file=str(file), source="y.item()"),
        finding("RT205", file=str(file), source="y.item()"),
        finding(file=str(file), source="z.item()"),
        finding(file=gone),
        finding(file=elsewhere),
    ]
    baseline.write(path, known)
    assert [each.message for each in baseline.stale(path, known)] == []
    (left, lost) = baseline.stale(path, known[:1])
    assert left.message == "the entry for RT101 in gone.py silences nothing: there is no such file"
    assert lost.message == "the entry for RT101 in m.py silences nothing: its source line is gone"
    assert path.read_text().splitlines()[lost.where.line - 1].strip() == '"source": "z.item()",'
    assert str(lost) == f"{path}:{lost.where.line}:1: note: {lost.message}"
    read = baseline.stale(path, known[:1], [str(file)])
    assert {each.message for each in read} - {left.message, lost.message} == {
        "the entry for RT101 in m.py silences nothing: the source scan does not find it any more"
    }  # RT205 is the trial's


@pytest.mark.parametrize(
    "text, message",
    [
        ("nothing", "is no baseline"),
        ('{"version": 7}', "is a baseline of version 7, not 1"),
        ("{}", "is no baseline"),
        ("[]", "is no baseline"),
    ],
)
def test_what_is_no_baseline(tmp_path, text, message):
    path = tmp_path / "b.json"
    with pytest.raises(MisuseError, match="there is no baseline"):
        baseline.unknown(path, [])
    path.write_text(text)
    with pytest.raises(MisuseError, match=message):
        baseline.unknown(path, [])


def test_the_runtime_speaks_of_findings():
    island = IslandReport("aten::item", f"{__file__}:12", "RT101")
    recording = RecordingReport("()", 2, 3, 1, (island, island), 0, 4)
    reasons = (
        ReasonReport("RT101", "aten::item runs between two segments", f"{__file__}:12", "r", 2),
        ReasonReport("RT201", "o.n was 1 and is 2", f"{__file__}:5", "Keep it in a tensor.", 3),
        ReasonReport("RT306", "arguments not seen before", "", "Call with them.", 1),
    )
    report = Report("act", 5, 2, 3, 1, 0, 0, 0, 0, (recording,), reasons)
    found = {each.code: each for each in report.findings()}
    assert len(report.findings()) == 3 and report.findings().target == "act"
    assert found["RT101"].severity is Severity.ISLAND and found["RT101"].where.line == 12
    assert found["RT201"].severity is Severity.WRONG and found["RT201"].remedy == "Keep it in a tensor."
    assert found["RT201"].source == Path(__file__).read_text().splitlines()[4].strip()
    assert found["RT306"].where.line == 0


def test_a_graphed_callable_has_findings(device):
    def fn(x):
        return x * x.sum().item()

    g = rote.graph(fn)
    for _ in range(6):
        g(torch.ones(3, device=device))
    (found,) = [each for each in g.findings() if each.code == "RT101"]
    assert found.where.file.endswith("test_findings.py") and found.source == "return x * x.sum().item()"
    g.reset()


def test_sarif_says_that_a_check_ended_early_and_escapes_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    places = [str(tmp_path / "my nets" / "é#1.py"), "<string>"]
    found = Findings([finding(file=place) for place in places], incomplete="the time limit was reached")
    (run,) = found.to_sarif()["runs"]
    uris = {each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for each in run["results"]}
    assert uris == {"my%20nets/%C3%A9%231.py", "%3Cstring%3E"}
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is False
    assert "time limit" in invocation["toolExecutionNotifications"][0]["message"]["text"]
    assert "invocations" not in Findings([finding()]).to_sarif()["runs"][0]
