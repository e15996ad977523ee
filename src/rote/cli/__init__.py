"""The command line: ``rote COMMAND ...``, one file for each command."""

from __future__ import annotations

from .entry import main
