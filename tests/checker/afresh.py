"""Checks in a process whose past is unknown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rote.base.errors import EnvironmentError_
from rote.checker.entry import check_work
from rote.hazards.findings import Findings


def check_or_skip(build: Callable[[], Any], **options: Any) -> Findings:
    """Check what a function builds.

    On a machine with a GPU any backward starts autograd's threads for good, and a test that ran before in
    this process may have: then a check whose callable runs a backward refuses.
    """
    try:
        return check_work(build, **options)
    except EnvironmentError_ as error:
        if "autograd's threads" not in str(error):
            raise
        pytest.skip("an earlier backward in this process has started autograd's threads")
