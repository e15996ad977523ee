"""The bits of floats, by which they are compared: 0.0 is not -0.0, and a NaN has a sign and a payload."""

from __future__ import annotations

from struct import Struct

_PAIR = Struct("dd")

float_bits = Struct("d").pack
"""The bits of a float."""


def float_of(bits: bytes) -> float:
    """The float of these bits."""
    return Struct("d").unpack(bits)[0]


def complex_of(bits: bytes) -> complex:
    """The complex number of these bits."""
    return complex(*_PAIR.unpack(bits))


def bits_of(number: complex) -> bytes:
    """The bits of a float or a complex number."""
    return float_bits(number) if isinstance(number, float) else _PAIR.pack(number.real, number.imag)
