"""The entry point of the ``rote`` script. The command line is an extra, and says so where it is missing."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable

run: Callable[[], None] | None = None
missing: str | None = None
try:
    from .app import app as run
except ModuleNotFoundError as error:
    if error.name not in ("typer", "rich", "click"):
        raise
    missing = error.name


def main() -> None:
    """Run the command line, and exit with 0, with 1 for what a command found, with 2 where it could not work.

    An unexpected error has a traceback, and not the status of a finding.
    """
    if run is None:
        print(f"rote: the command line needs {missing}: pip install 'rote[cli]'", file=sys.stderr)
        raise SystemExit(2)
    try:
        run()
    except Exception as error:
        traceback.print_exc()
        raise SystemExit(2) from error
