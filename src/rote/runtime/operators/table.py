"""The facts of operators that neither schemas nor tags tell: the rows of ``table.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

Row = Mapping[str, str]
"""Facts of one operator, each with its reason; the head of the file explains the words."""


@cache
def table() -> Mapping[str, Mapping[str, Row]]:
    """The rows by namespace and name."""
    return tomllib.loads(Path(__file__).with_name("table.toml").read_text(encoding="utf-8"))


def row_of(name: str) -> Row:
    """What the table says of an overload: of its namespace, of all overloads of the name, and of itself."""
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    rows, found = table().get(namespace, {}), dict[str, str]()
    for key in ("*", packet, f"{packet}.{overload or 'default'}"):
        found.update(rows.get(key, {}))
    return found


def rows_with(fact: str) -> Iterator[tuple[str, str]]:
    """PyTorch's own operators with a fact in the table, each with what stands beside the fact."""
    return ((name, row[fact]) for name, row in table()["aten"].items() if fact in row)
