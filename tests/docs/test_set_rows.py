"""The README's rows of the benchmark set: what is slower is said in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rote_docs import readme


def row(name: str, us: float | None, bitwise: bool = True) -> dict[str, Any]:
    return {"name": name, "median_us": us, "equality": {"bitwise": bitwise}}


def entry(*rows: dict[str, Any], small: bool = False) -> dict[str, Any]:
    return {"small": small, "report": {"rows": list(rows)}}


def test_rows_and_a_summary() -> None:
    entries = {
        "llama-batch1": entry(row("eager", 400.0), row("by-hand", 20.0), row("rote", 30.0)),
        "resnet50": entry(row("eager", 100.0), row("by-hand", None), row("rote", 150.0)),
        "unet": entry(row("eager", 9e3), row("reduce-overhead", 5e3, False), row("rote", 8e3, False)),
        "bert": entry(row("eager", 100.0), row("by-hand", 99.0), row("rote", 100.0)),
        "mobilenet": entry(row("eager", 1.0), row("rote", 9.0), small=True),
        "bert-compiled": {"small": False, "skipped": "not begun before the time was up"},
    }
    llama, resnet, unet, summary = readme.set_rows(entries)
    us = readme.duration
    assert llama.startswith("| decode step of a 1B Llama, batch 1 |")
    assert llama.endswith(f"| {us(400)} | captured by hand {us(20)} | {us(30)}, bitwise equal |")
    assert resnet.startswith("| ResNet-50, one image |")
    assert resnet.endswith(f"| {us(100)} | - | {us(150)}, bitwise equal, slower than eager |")
    assert f"`reduce-overhead` {us(5e3)}, results differ | {us(8e3)}, results differ |" in unet
    assert "4 programs" in summary and "slower than eager: resnet50;" in summary
    assert "slower than the graph captured by hand: llama-batch1 |" in summary
    assert readme.set_rows({}) == []


def test_the_newest_figures_of_each_program(tmp_path: Path) -> None:
    versions = {"versions": {"torch": "2.11"}}
    old = {"unet": entry(row("eager", 9.0)) | versions, "bert": entry(row("eager", 8.0)) | versions}
    new = {"unet": entry(row("eager", 7.0)) | versions, "bert": {"small": False, "skipped": "no time"}}
    for date, rows in (("2026-11-20", old), ("2026-11-21", new)):
        (tmp_path / f"{date}-set.json").write_text(json.dumps({"device": "a GPU", "rows": rows}))
    entries, sources = readme.newest_of_set(tmp_path)
    assert [entries[key]["report"]["rows"][0]["median_us"] for key in ("unet", "bert")] == [7.0, 8.0]
    assert len(sources) == 2 and set(sources.values()) == {"a GPU, torch 2.11"}
