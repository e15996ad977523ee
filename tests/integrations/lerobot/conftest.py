"""lerobot has an environment of its own: ``make test-lerobot``."""

from __future__ import annotations

import pytest
from tests import packages

pytest.importorskip("lerobot")
if packages.missing():
    pytest.skip(f"there is no {packages.missing()}", allow_module_level=True)
