"""What the docstrings of frozen values say of their fields: the options, and the parts of a report."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields

from rote import Options, PaddedReport, Report
from rote.inspect import (
    FusedReport,
    InputReport,
    IslandReport,
    LineReport,
    NearReport,
    OfferedReport,
    OutputReport,
    ReasonReport,
    RecordingReport,
    TierReport,
    TrialReport,
)

_ATTRIBUTES = "Attributes:\n"

REPORTS = {
    "report": Report,
    "report.recordings[...]": RecordingReport,
    "report.recordings[...].inputs[...]": InputReport,
    "report.recordings[...].islands[...]": IslandReport,
    "report.recordings[...].tier": TierReport,
    "report.recordings[...].tier.fused": FusedReport,
    "report.recordings[...].tier.near[...]": NearReport,
    "report.recordings[...].tier.offered[...]": OfferedReport,
    "report.recordings[...].tier.trials[...]": TrialReport,
    "report.recordings[...].tier.lines[...]": LineReport,
    "report.output[...]": OutputReport,
    "report.reasons[...]": ReasonReport,
    "rote.padded(...).report()": PaddedReport,
}
"""The parts of a report, by how a program gets at them."""


def described(kind: type) -> dict[str, str]:
    """What the docstring of a class says of each attribute, as Markdown with Sphinx roles taken out."""
    text = inspect.getdoc(kind) or ""
    found: dict[str, str] = {}
    for item in re.split(r"\n    (?=\w+: )", "\n" + text.partition(_ATTRIBUTES)[2])[1:]:
        name, _, words = item.partition(": ")
        words = re.sub(r":\w+:`~?\.*(?:\w+\.)*?((?:rote\.)?\w+)`", r"`\1`", words)
        found[name] = " ".join(words.replace("``", "`").split())
    return found


def sections() -> str:
    """A section for each option: its default, and what it does."""
    told = described(Options)
    parts = [
        f"### {field.name}\n\n`{field.name}: {_kind(field.type)} = {field.default!r}`\n\n{told[field.name]}"
        for field in fields(Options)
    ]
    return "\n\n".join(parts)


def reports() -> str:
    """A list of fields for each part of a report."""
    parts: list[str] = []
    for place, kind in REPORTS.items():
        told = described(kind)
        parts.append(f"**`{place}`**")
        parts.append("\n".join(f"- `{field.name}`: {told[field.name]}" for field in fields(kind)))
    return "\n\n".join(parts)


def _kind(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
