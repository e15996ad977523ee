"""Calibration: ordinary forward passes, watched for every layer's input."""

from .calibration import calibrate
from .folding import Smoothed, smooth_group
from .groups import seen_together, share
from .layers import Candidate, Patterns, bytes_of, candidates
from .stats import CalibrationStats
