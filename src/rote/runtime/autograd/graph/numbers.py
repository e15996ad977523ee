"""Numbers that change from call to call, where a recorded graph keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...numbers import Computed


@dataclass(frozen=True)
class SavedNumber:
    """A number that changes from call to call, where the graph keeps it: autograd makes a tensor of it.

    Attributes:
        node: The node of the graph, by its name and its place in the order in which nodes were made.
        operand: The number, as the operation of the node calls it.
        memory: That tensor, of no dimensions, on the host, as an array over its memory.
    """

    node: tuple[str, int]
    operand: str
    memory: Any
    number: Computed

    def write(self) -> None:
        """Have the graph keep that of this replay. Autograd is not told, as of nothing that replays write."""
        self.memory[...] = self.number.value
