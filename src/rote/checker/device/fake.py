"""The stage of a trial: fake tensors on a device that is called ``cuda`` but does not exist."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch

from ...runtime.state import Snapshot
from ..fake import PRETENDED, Inventor, StandIns, fake_device, refuse_lazy
from ..fake import torch_private as compat
from ..trial import CodePlace, Trial
from . import stage
from .draws import Draws
from .mask import Mask


class FakeStage:
    """Where a callable runs on fake tensors. It can be made once in a process."""

    def __init__(self) -> None:
        compat.register_device()
        self.inventor = Inventor()
        self._standins = StandIns(compat.make_fake_mode())
        self.trial = Trial(self._standins, self.inventor)
        self._mask = Mask(self.trial)
        self._draws = Draws()
        stage.install(self.trial, self._around)
        compat.show_devices(lambda: self.trial.inside == 0)
        compat.run_compiled_code_eagerly()

    def begin(self, snapshot: Snapshot, wanted: frozenset[int]) -> None:
        """A run begins in this state; it keeps the places of the wanted operations."""
        self._draws.drawn.clear()
        self.trial.begin(wanted)
        self._standins.meet(snapshot, [])

    @property
    def drawn(self) -> dict[str, list[CodePlace]]:
        """Where host random numbers were drawn in the current run, by module."""
        return {module: list(places.values()) for module, places in self._draws.drawn.items()}

    @contextmanager
    def building(self) -> Generator[None]:
        """Build a callable and its arguments here, without memory for large tensors."""
        self.trial.building = True
        try:
            with self.modes():
                yield
        finally:
            self.trial.building = False
            self.trial.begin()

    @contextmanager
    def modes(self) -> Generator[None]:
        """Tensors are fake here, and operations are noted."""
        with self._around():
            self.trial.inside = 0
            try:
                yield
            finally:
                self.trial.inside = 1

    @contextmanager
    def _around(self) -> Generator[None]:
        """The modes that each thread has to enter."""
        # On the calling thread a backward has the Python frames that led to it, and needs no device threads.
        with torch.autograd.set_multithreading_enabled(False), self._mask, self.trial:
            yield

    def prepare(self, snapshot: Snapshot, leaves: list[Any], names: list[str]) -> list[Any]:
        """Replace the tensors of a callable by fake ones; returns its argument leaves.

        If none of them lies on a GPU, all are taken to have been moved there. Otherwise the tensors on the
        GPU are replaced, and host tensors stay on the host.
        """
        held = [tensor for entries in snapshot.tensors.values() for _, tensor in entries]
        given = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        standins = self._standins
        standins.adopting = not any(
            fake_device(tensor) == PRETENDED or tensor.device.type == "cuda" for tensor in (*held, *given)
        )
        refuse_lazy(snapshot)
        standins.replace_state(snapshot)
        standins.meet(snapshot, leaves)
        found: list[Any] = []
        for leaf, name in zip(leaves, names, strict=True):
            if isinstance(leaf, torch.Tensor):
                leaf = standins.of(leaf) if standins.moves(leaf) else leaf
                standins.name_argument(leaf, name)
            found.append(leaf)
        return found
