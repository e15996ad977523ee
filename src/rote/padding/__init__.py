"""``rote.padded``: calls of many sizes share the recordings of a few."""

from .report import PaddedReport
from .wrapping import Padded, padded
