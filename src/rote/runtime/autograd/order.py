"""In which order a traced call goes back through what one of its own backward passes has made.

Autograd goes through a graph by numbers that each thread counts for itself. Plainly, a backward on a GPU runs
on a thread of the device, so the graph of a gradient's gradient has nodes of two threads. Which come first
decides in which order gradients are added that meet in one place, and with that the last bits of their sum.

The first traced call goes back on the threads that plain calls use, so that their numbers are those of plain
calls, and further ones that go back through what a backward has made do so, too. If two of them agree, their
order is recorded. If they do not, plain calls have no order either, and that of one thread is recorded. All
other calls go back on the thread of the call, where numbers are the same in each.

What does not work: two calls that agree by chance, where plain calls of later on would not.
"""

from __future__ import annotations

import torch

from ..program import current_pass

PATIENCE = 5
"""Calls that may differ from the one before.

At first the numbers of two threads may be close to each other, and drift apart with each call.
"""


class BackwardPasses:
    """The backward passes of a traced call, as far as their operations tell."""

    def __init__(self) -> None:
        self._graphed = dict[int, bool]()

    def meet(self) -> None:
        """An operation is about to run.

        A pass that makes a graph begins in grad mode. One that calculates a checkpoint again is in it later.
        """
        number = current_pass()
        if number is not None and number not in self._graphed:
            self._graphed[number] = torch.is_grad_enabled()

    @property
    def nested(self) -> bool:
        """Whether one came after another that had made a graph."""
        made = [number for number, graphed in self._graphed.items() if graphed]
        return bool(made) and max(self._graphed) > min(made)


class BackwardOrder:
    """On which threads the traced calls of a key go back.

    Attributes:
        as_plainly: On those that autograd chooses, and not on the thread of the call.
    """

    def __init__(self) -> None:
        self.as_plainly = True
        self._differed = 0

    def learn(self, *, nested: bool, differed: bool) -> None:
        """A traced call has ended.

        Args:
            nested: It went back through what a backward has made.
            differed: It has run other operations than those before it.
        """
        self._differed += nested and differed
        self.as_plainly = nested and self._differed <= PATIENCE
