"""Rows that libraries ship by entry points: read late, checked, and never an error in somebody's call."""

from __future__ import annotations

import logging
import os
import resource
import subprocess
import sys
import textwrap

import pytest

from rote.runtime.reads.handlers.calls import called
from rote.runtime.reads.table import table
from rote.runtime.reads.table.shipped import GROUP, checked

WORDS = ("pure", "none", "reads", "clock")


@pytest.fixture
def ship(tmp_path, monkeypatch):
    """Installs a distribution with one module that ships rows; the folder is on the path."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(name, source, value=None):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(source))
        info = tmp_path / f"{name}-1.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {value or f'{name}:ROWS'}\n")
        monkeypatch.delitem(sys.modules, name, raising=False)
        return tmp_path

    return install


def rows():
    made = table.Rows({}, called)
    assert made.of(resource.getpagesize).row == made.of(resource.getrusage).row == "unknown"
    made.read_shipped()
    return made


def test_what_a_library_ships_counts(ship):
    ship("made_up_a", 'ROWS = {"pure": ["resource.getpagesize"], "clock": ("resource.*",)}')
    found = rows()
    assert found.of(resource.getpagesize).row == "pure"  # the full name goes before the pattern
    assert found.of(resource.getrusage).row == "clock"
    assert found.row_of("some_extension.read") == "unknown"


def test_rows_of_several_libraries(ship):
    ship("made_up_b", 'ROWS = {"pure": ["resource.getpagesize"]}')
    ship("made_up_c", 'ROWS = {"pure": ["resource.getrusage"], "none": ["other.fn"]}')
    found = rows()
    names = ("resource.getpagesize", "resource.getrusage", "other.fn")
    assert [found.row_of(name) for name in names] == ["pure", "pure", "none"]


def test_what_rote_knows_is_not_replaced(ship):
    ship("made_up_d", 'ROWS = {"pure": ["time.time", "builtins.open", "posix.*"]}')
    found = rows()
    assert [found.row_of(name) for name in ("time.time", "builtins.open", "posix.read")] == [
        "clock",
        "io",
        "io",
    ]


BROKEN = [
    ("raise ImportError('no such thing')", None, "ImportError: no such thing"),
    ("raise SystemExit(3)", None, "SystemExit: 3"),
    ("1 / 0", None, "ZeroDivisionError: division by zero"),
    ("OTHER = {}", None, "has no attribute 'ROWS'"),
    ("ROWS = {}", "made_up_missing:ROWS", "ModuleNotFoundError: No module named 'made_up_missing'"),
    ('ROWS = ["resource.*"]', None, 'it is a list, and has to be a mapping: {"pure": ["mylib._C.*"]}'),
    ('ROWS = {"pur": ["resource.*"]}', None, "'pur' is no row; the rows are pure, fixed, none, members, reads, "),
    ('ROWS = {"pure": "resource.*"}', None, "the names of the row 'pure' have to be a list, not 'resource.*'"),
    ('ROWS = {"pure": ["getpagesize"]}', None, "'getpagesize' in the row 'pure' is no full name; write it as Python"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "value", "text"), BROKEN)
def test_a_broken_one_is_a_warning_that_names_the_distribution(ship, caplog, source, value, text):
    ship("made_up_e", source, value)
    ship("made_up_f", 'ROWS = {"pure": ["resource.getpagesize"]}')
    with caplog.at_level(logging.WARNING, "rote"):
        found = rows()
        found.read_shipped()
    assert found.row_of("resource.getpagesize") == "pure"
    (record,) = caplog.records
    said = record.getMessage()
    assert record.levelname == "WARNING" and text in said, said
    point = f"made_up_e = {value or 'made_up_e:ROWS'}"
    assert (
        f"that made_up_e 1.5 ships for its C callables are left out (entry point {point} of {GROUP})" in said
    )


@pytest.mark.parametrize(
    "name", [3, None, "", "fn", ".fn", "lib.", "lib..fn", "*", "*.fn", "lib.*.fn", "a b.c", "lib.f-n"]
)
def test_what_is_no_name(name):
    with pytest.raises(ValueError, match="in the row 'pure' is no full name"):
        checked({"pure": [name]}, WORDS)


@pytest.mark.parametrize("name", ["lib.fn", "lib._C.*", "lib.Class.method", "lib._C.fast_*", "lib.Class.*"])
def test_what_is_a_name(name):
    assert checked({"pure": {name}}, WORDS) == {"pure": (name,)}


PROGRAM = """
import resource, sys
import torch, rote

assert "made_up_g" not in sys.modules, "at import"
x = torch.ones(3)
known = rote.graph(lambda x: x * abs(-2))
for _ in range(4):
    known(x)
assert known.report().replayed == 2 and "made_up_g" not in sys.modules, "without need"
g = rote.graph(lambda x: x * resource.getpagesize())
for _ in range(8):
    assert torch.equal(g(x), x * resource.getpagesize())
assert "made_up_g" in sys.modules and g.report().replayed == 5, g.explain()
print("right")
"""


@pytest.mark.usefixtures("warm_python")
def test_they_are_read_when_somebody_needs_them(ship):
    folder = ship("made_up_g", 'ROWS = {"pure": ["resource.getpagesize"]}')
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([*sys.path, str(folder)]))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "right\n", done.stderr
