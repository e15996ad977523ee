"""Where the ``rote`` script begins: the command line is an extra, and says so where it is missing."""

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
    """Run the command line. What nobody expected has a traceback, and not the status of a finding.

    Raises:
        SystemExit: Always, with the status: 0, 1 for what a command found, 2 where it could not do its work.
    """
    if run is None:
        print(f"rote: the command line needs {missing}: pip install 'rote[cli]'", file=sys.stderr)
        raise SystemExit(2)
    try:
        run()
    except Exception as error:
        traceback.print_exc()
        raise SystemExit(2) from error
