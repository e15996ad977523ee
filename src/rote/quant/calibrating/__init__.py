"""Calibration: what ordinary forward passes show of every layer's input."""

from __future__ import annotations

from .calibration import calibrate
from .folding import Smoothed, smooth_group
from .groups import seen_together, share, share_by_name
from .layer_stats import LayerStats
from .layers import Candidate, Patterns, candidates
from .stats import CalibrationStats
