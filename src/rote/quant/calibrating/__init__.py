"""Calibration: ordinary forward passes, watched for every layer's input."""

from .calibration import calibrate, seen_together, share
from .folding import Smoothed, smooth_group
from .layers import Candidate, Patterns, bytes_of, candidates
from .stats import CalibrationStats
