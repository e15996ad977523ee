"""A word is one thing: class names are used once, and the glossary says what the words are."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

from .source import ROOT, SOURCE, nodes


def classes(source: Path) -> Counter[str]:
    found = [node for path in source.rglob("*.py") for node in nodes(path)]
    return Counter(node.name for node in found if isinstance(node, ast.ClassDef))


def rows() -> list[tuple[str, str]]:
    """The words of the glossary, with their rooms."""
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    return re.findall(r"^\| ([a-z][\w -]*) \| .* \| `([\w/]+)` \|$", text, re.MULTILINE)


def test_class_names_are_used_once():
    assert {name: count for name, count in classes(SOURCE).items() if count > 1} == {}


def test_words_stand_in_order_and_once():
    words = [word for word, _ in rows()]
    assert len(words) > 50 and words == sorted(set(words))


def test_rooms_of_the_glossary_exist():
    assert {room for _, room in rows() if not (SOURCE / room / "__init__.py").exists()} == set()


def test_files_say_what_they_adapt_to():
    assert [path for path in SOURCE.rglob("compat*.py")] == []


def test_a_name_used_twice_is_seen(tmp_path):
    (tmp_path / "a.py").write_text("class One:\n    class Inner: ...\n")
    (tmp_path / "b.py").write_text("class One: ...\n")
    assert classes(tmp_path) == {"One": 2, "Inner": 1}
