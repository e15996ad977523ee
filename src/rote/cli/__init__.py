"""The command line: ``rote COMMAND ...``, one file for each command."""

from .entry import main
