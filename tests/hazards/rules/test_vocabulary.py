"""The runtime's reasons and the check's findings are one vocabulary, and a rule says truly who finds it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import rote
from rote.hazards import rules
from rote.hazards.rules import RULES, Finder, Rule

from ..fixture import ALL

ROOMS = Path(rote.__file__).parent
RUNTIME = ("api", "padding", "runtime")
NAMES = dict(vars(rules))
CHECKED = Finder.SCAN | Finder.TRIAL


def named_in(*rooms):
    """The codes of the rules that the sources of some rooms name, and the tables beside them."""
    files = [file for room in rooms for file in (ROOMS / room).rglob("*.py")]
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    words = {node.attr if isinstance(node, ast.Attribute) else node.id
             for node in nodes if isinstance(node, (ast.Attribute, ast.Name))}  # fmt: skip
    tables = [file.read_text() for room in rooms for file in (ROOMS / room).rglob("*.toml")]
    written = {code for table in tables for code in re.findall(r'^rule = "(RT\d{3})"$', table, re.M)}
    return written | {NAMES[word].code for word in words & NAMES.keys() if isinstance(NAMES[word], Rule)}


@pytest.mark.parametrize(
    "finder, rooms",
    [
        (Finder.SCAN, ("hazards/scan",)),
        (Finder.TRIAL, ("checker",)),
        (Finder.RUNTIME, RUNTIME),
    ],
)
def test_found_by_is_who_finds_it(finder, rooms):
    declared = {code for code, rule in RULES.items() if finder in rule.found_by}
    assert named_in(*rooms) == declared


@pytest.mark.parametrize("rule", ALL)
def test_what_the_runtime_says_the_check_says_or_its_rule_says_why_not(rule):
    about = rule.documentation
    if Finder.RUNTIME in rule.found_by and not rule.found_by & CHECKED:
        assert len(about.unchecked) > 30 and about.unchecked.endswith("."), rule.code
    else:
        assert not about.unchecked, rule.code
