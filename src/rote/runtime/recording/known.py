"""What is known of a call that finds all that it reads as an earlier call did."""

from __future__ import annotations

from dataclasses import dataclass

from ..reads.trace import Noted
from .tree import Node


@dataclass(frozen=True)
class Known:
    """What a call did, for another call that finds everything it read unchanged.

    Attributes:
        noted: What it read and wrote.
        end: Where its way through the tree ended; another value read by the host leads elsewhere.
    """

    noted: Noted
    end: Node
