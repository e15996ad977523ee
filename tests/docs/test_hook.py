"""The hook between Markdown and HTML."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("typer")  # one of the generators shows the command line
pytest.importorskip("markdown")

import hook  # beside the pages
from rote_docs.rules import all_rules

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_every_insertion_on_a_page_has_a_generator() -> None:
    used = {
        name for path in DOCS.rglob("*.md") for name in hook._INSERT.findall(path.read_text(encoding="utf-8"))
    }
    assert used <= set(hook.INSERTS)
    assert all(hook.inserted(name).strip() for name in used)


def test_an_unknown_insertion_is_an_error() -> None:
    with pytest.raises(KeyError, match="nothing"):
        hook.inserted("nothing")


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("See RT101.", "See [RT101](rules/index.md#rt101)."),
        ("`RT101` and [RT101](x.md)", "`RT101` and [RT101](x.md)"),
        ("```text\nRT101\n```\n", "```text\nRT101\n```\n"),
        ("## RT101\n\nRT102", "## RT101\n\n[RT102](rules/index.md#rt102)"),
        ("PORT101", "PORT101"),
    ],
)
def test_codes_become_links(markdown: str, expected: str) -> None:
    rules = {code: f"rules/index.md#{code.lower()}" for code in ("RT101", "RT102")}
    assert hook.linked(markdown, "report.md", rules) == expected


def test_links_go_up_and_to_the_heading_of_a_rule() -> None:
    pages = {
        "rules/index.md": "# Reasons\n\n## RT101: host read {#rt101}\n\n## RT102 is a list\n",
        "rules/host-reads.md": "### RT101: host read {#RT101}\n\nRT103 is mentioned\n",
    }
    rules = hook.targets(pages)
    assert hook.linked("RT101 RT102 RT103", "reference/errors.md", rules) == (
        "[RT101](../rules/host-reads.md#RT101) [RT102](../rules/index.md#rt102-is-a-list) RT103"
    )


def test_every_rule_has_a_heading() -> None:
    pages = {f"rules/{path.name}": path.read_text(encoding="utf-8") for path in (DOCS / "rules").glob("*.md")}
    assert set(hook.targets(pages)) >= {rule.code for rule in all_rules()}


@pytest.mark.parametrize(
    ("target", "path", "expected"),
    [
        ("../examples/graph.py", "footguns.md", "`examples/graph.py`"),
        ("../../tests/x.py", "rules/index.md", "graph (`tests/x.py`)"),
        ("../options.md", "reference/rote.md", "[graph](../options.md)"),
    ],
)
def test_files_that_are_no_pages_are_named(target: str, path: str, expected: str) -> None:
    assert hook.named("graph", target, path) == expected


def test_roles_of_docstrings_become_references() -> None:
    html = hook.on_page_content(
        "raises :class:<code>~rote.NotReplayedError</code>, see :mod:<code>.shapes</code>", None, None, None
    )
    assert html == (
        'raises <autoref identifier="rote.NotReplayedError" optional><code>NotReplayedError</code></autoref>'
        ", see <code>shapes</code>"
    )


@pytest.mark.parametrize(
    ("html", "found"),
    [
        ('<script src="https://cdn.example/x.js">', ["https://cdn.example/x.js"]),
        ('<link rel="stylesheet" href="//fonts.example/css">', ["//fonts.example/css"]),
        ("<img src=https://example/x.png>", ["https://example/x.png"]),
        ('<a href="https://example/">there</a> <script src="assets/x.js">', []),
    ],
)
def test_what_a_browser_would_fetch_is_found(html: str, found: list[str]) -> None:
    assert hook.fetched(html) == found
