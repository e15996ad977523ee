"""``rote.padded``: calls of many sizes share the recordings of a few."""

from .wrapping import Padded, PaddedReport, padded
