"""The files of the package; each text is parsed once."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "rote"


def parse(path: Path) -> ast.Module:
    return _parsed(path.read_text(encoding="utf-8"))


def nodes(path: Path) -> list[ast.AST]:
    """All that is in a file."""
    return _nodes(path.read_text(encoding="utf-8"))


@functools.cache
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


@functools.cache
def _nodes(text: str) -> list[ast.AST]:
    return [*ast.walk(_parsed(text))]
