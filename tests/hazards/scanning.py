"""The source scan of files, as one list."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rote.hazards.rules import Finding
from rote.hazards.scan import scanned


def scan(paths: Iterable[Path]) -> list[Finding]:
    return [found for each in scanned(paths) for found in each.findings]
