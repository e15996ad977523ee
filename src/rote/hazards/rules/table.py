"""The rules of ``table.toml``, each under its name; their texts are in ``texts``, one file each."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import reduce
from operator import or_
from pathlib import Path
from types import MappingProxyType
from typing import Any

from .finding import Severity
from .rule import Finder, Rule, Topic


def _rule(code: str, title: str, severity: str, topic: str, found_by: tuple[str, ...] = ("RUNTIME",)) -> Rule:
    finders = reduce(or_, [Finder[name] for name in found_by])
    return Rule(code, title, Severity[severity], Topic[topic], finders)


_ROWS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("table.toml").read_text(encoding="utf-8"))
NAMED: Mapping[str, Rule] = MappingProxyType({name: _rule(**row) for name, row in _ROWS.items()})
"""All rules by name."""

RULES: Mapping[str, Rule] = MappingProxyType({rule.code: rule for rule in NAMED.values()})
"""All rules by code."""
