"""The copy of openpi's model is made of parts of transformers."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers")
