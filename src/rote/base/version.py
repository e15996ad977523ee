"""The version of rote."""

__version__ = "0.1.0"
