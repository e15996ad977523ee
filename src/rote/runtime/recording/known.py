"""What is known of a call that finds all that it reads as an earlier call did."""

from __future__ import annotations

from dataclasses import dataclass

from ..reads.trace import Noted
from .tree import Node


@dataclass(frozen=True)
class Known:
    """What a call did, and what another one does that finds all that it read as it was.

    Attributes:
        noted: What it read and wrote.
        end: Where its way through the tree ended: a value that the host reads may lead elsewhere.
    """

    noted: Noted
    end: Node
