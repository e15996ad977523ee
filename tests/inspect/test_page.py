"""The page: whole, escaped, without script or network; in a browser where there is one."""

import base64
import dataclasses
import hashlib
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rote
from rote.inspect import (
    CallReport,
    FusedReport,
    IslandReport,
    LeftAloneReport,
    LineReport,
    NearReport,
    NodeReport,
    OfferedReport,
    OutputReport,
    PartReport,
    ReasonReport,
    RecordingReport,
    Report,
    StepReport,
    TierReport,
    TrialReport,
    page_of,
)

LOST = re.compile(r"[\x00-\x1f\ufffd]")
"""Control characters, and what stands for them."""

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Parsed(HTMLParser):
    """Tags, attributes and texts of a page; tags have to be closed in order."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.texts, self.open = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *each) for each in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *each) for each in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def report_of(text):
    """A report with a text wherever there may be one."""
    island = IslandReport(text, f"{text}:3", text)
    tier = TierReport(
        True, 4, 2, {text: 1}, 0, 0, (LeftAloneReport(text, 1),), FusedReport(1, 1, 3, {text: 1}, 1),
        (NearReport(text, text, 1, 0.5, 0.6), NearReport(text, text, 1, how="probed")), {text: 2},
        (OfferedReport(text, 1, (text,)),),
        (TrialReport("near", text, 3.0, 4.0, True), TrialReport("exact", "", None, None, False)),
        (LineReport(f"{text}:4", text, 4, 2, {"fused": 2}, {text: 1}), LineReport("", "", 1, 1, {}, {})),
    )  # fmt: skip
    recording = RecordingReport(text, 1, 2, 1, (island,), 10, 3, replay_us=1.0, plain_us=2.0, tier=tier)
    empty = Report(text, 0, 0, 0, 0, 0, 0, 0, 0, (), ())
    return Report(
        name=text, calls=4, replayed=3, eager=1, recorded=1, backwards=1, backwards_replayed=1,
        backwards_verified=0, verified=1, recordings=(recording,), budget=100, kernels=text,
        reasons=(ReasonReport(text, text, f"{text}:1", text, 2), ReasonReport("RT1", "", "", "", 1, True)),
        output=(OutputReport(text, text),), parts=(PartReport(text, text, 1, 1, 1.0, text, empty),),
    )  # fmt: skip


def call_of(text, us=None):
    one = NodeReport(text, text, f"{text}:2", text, "plain", 8, us)
    steps = (StepReport("segment", (one, one), us and 2 * us), StepReport("island", (one,), us))
    return CallReport(text, text, text, steps, us and 3 * us)


HOSTILE = [
    "<script>alert(1)</script>",
    "</style><script>",
    "\"><img src=x onerror=alert(1)>",
    "'><svg/onload=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    "<!--", "]]>", "&lt;b&gt;", "\u202e\x00",
]  # fmt: skip


def check(text):
    """The text is on the page as text, and only so; the structure is that of a harmless one."""
    for us in (None, 1.5):
        found, plain = (Parsed(page_of(report_of(each), call_of(each, us))) for each in (text, "name"))
        assert found.tags == plain.tags
        assert [each[:2] for each in found.attributes] == [each[:2] for each in plain.attributes]
        shown = "".join(found.texts)
        assert LOST.sub("", text).strip() in LOST.sub("", shown)
        assert "script" not in found.tags and not any(
            name.startswith("on") for _, name, _ in found.attributes
        )


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_are_text(text):
    check(text)


@settings(max_examples=12, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30))
def test_any_name_is_text(text):
    check(text)


def test_a_class_named_as_a_script(tmp_path):
    kind = type("<script>alert(1)</script>", (torch.nn.Linear,), {})
    g, x = rote.graph(kind(2, 2), keep=True), torch.ones(1, 2)
    for _ in range(4):
        g(x)
    g.save_report(tmp_path / "r.html", (x,))
    text = (tmp_path / "r.html").read_text()
    assert "script" not in Parsed(text).tags and "&lt;script&gt;alert(1)" in text


def test_nothing_is_fetched_and_nothing_runs(policy, tmp_path):
    g, x = policy
    g.save_report(tmp_path / "r.html", (x,))
    text = (tmp_path / "r.html").read_text()
    found = Parsed(text)
    (content,) = [
        value
        for tag, name, value in found.attributes
        if (tag, name) == ("meta", "content") and "src" in value
    ]
    assert content.startswith("default-src 'none'; style-src 'sha256-") and "unsafe" not in content
    style = text.partition("<style>")[2].partition("</style>")[0]
    assert base64.b64encode(hashlib.sha256(style.encode()).digest()).decode() in content
    assert not {"src", "href", "style"} & {name for _, name, _ in found.attributes}
    assert "url(" not in style and "@import" not in style
    assert "prefers-color-scheme: dark" in style and ("meta", "name", "viewport") in found.attributes


def test_what_a_page_shows(policy, tmp_path):
    g, _ = policy
    with torch.no_grad():
        g(torch.randn(5, 8))
    g.save_report(tmp_path / "r.html")
    shown = " ".join("".join(Parsed((tmp_path / "r.html").read_text()).texts).split())
    for text in (
        "Policy", "Cost by module", "Policy.blocks.1.up", "y = self.up(self.norm(x))", "RT111", "RT306",
        "the host reads", "Nothing was measured", "g(torch.randn(5, 8))", "Call with these arguments during",
    ):  # fmt: skip
        assert text in shown, text


def test_values_of_the_environment_are_digests(tmp_path, monkeypatch):
    import os

    monkeypatch.setenv("ROTE_TEST_SECRET", "hunter2")

    def reads(x, mode):
        return x + 1 if os.environ.get("ROTE_TEST_SECRET") == "hunter" + "2" else x + 2

    g, x = rote.graph(reads, keep=True), torch.ones(2)
    long = "the key " * 8
    for _ in range(4):
        g(x, long)
    monkeypatch.setenv("ROTE_TEST_SECRET", "hunter3")
    g(x, long)
    g.save_report(tmp_path / "r.html", (x, long))
    g.trace(tmp_path / "call.json", (x, long))
    text = (tmp_path / "r.html").read_text()
    assert "RT302" in text and "characters, sha256" in text
    for secret in ("hunter2", "hunter3", "the key the"):
        assert secret not in text and secret not in (tmp_path / "call.json").read_text()


def test_a_report_without_anything():
    nothing = dataclasses.replace(
        report_of("f"), calls=0, recordings=(), reasons=(), parts=(), output=(), budget=None, kernels=""
    )
    shown = "".join(Parsed(page_of(nothing)).texts)
    assert "Nothing was called yet." in shown and "There is none yet." in shown


def test_without_jinja(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(rote.EnvironmentError_, match=r"rote\[report\]"):
        page_of(report_of("f"))


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
def test_in_a_browser(tmp_path):
    """What a browser makes of it: nothing runs, and the policy has to block nothing."""
    text = page_of(report_of(HOSTILE[0]), call_of(HOSTILE[2], 1.5))
    (tmp_path / "r.html").write_text(text)
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile",
        "--window-size=412,900", "--enable-logging=stderr", "--dump-dom", f"file://{tmp_path}/r.html",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    found = Parsed(re.sub(r"<!doctype[^>]*>", "", done.stdout, flags=re.IGNORECASE))
    assert "script" not in found.tags and found.tags.count("rect") == Parsed(text).tags.count("rect")
    assert "CONSOLE" not in done.stderr, done.stderr
