"""Every opcode of this Python is in one row, so that a Python with new ones fails here."""

from __future__ import annotations

import dis
import sys

from rote.runtime.reads.bytecode import opcodes
from rote.runtime.reads.handlers.notes import Notes

VERSIONS = ((3, 11), (3, 12), (3, 13))
"""Versions of Python that were tried."""


def unlisted():
    names = {name for name in dis.opmap if not name.startswith("INSTRUMENTED_")}
    return names - opcodes.NOTED.keys() - opcodes.SILENT - opcodes.OPAQUE


def test_this_python_was_tried():
    assert sys.version_info[:2] in VERSIONS, f"try it, and add {sys.version_info[:2]} to VERSIONS"


def test_every_opcode_is_in_one_row():
    assert not unlisted()
    rows = (frozenset(opcodes.NOTED), opcodes.SILENT, opcodes.OPAQUE)
    names = [name for name in dis.opmap if not name.startswith("INSTRUMENTED_")]
    assert names
    for name in names:
        assert sum(name in row for row in rows) == 1, name


def test_an_opcode_that_is_in_no_row_is_named(monkeypatch):
    monkeypatch.setitem(dis.opmap, "LOAD_TELEPATHY", 254)
    assert unlisted() == {"LOAD_TELEPATHY"}


def test_every_note_exists():
    notes = Notes()
    for name, row in opcodes.NOTED.items():
        assert callable(getattr(notes, row.note)), name
