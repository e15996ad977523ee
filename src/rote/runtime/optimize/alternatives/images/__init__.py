"""Operators on images in other ways."""

from .convolution import CONVOLUTIONS
from .group_norm import GROUP_NORMS
from .turning import TURNED

IMAGES = (*CONVOLUTIONS, *GROUP_NORMS, *TURNED)
"""What is offered of them."""
