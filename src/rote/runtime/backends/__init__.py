"""The devices that segments are captured on, behind one protocol."""

from __future__ import annotations

from .select import PROCESS
