"""The stage of a trial: fake tensors on a device that is called ``cuda`` but does not exist."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import numpy
import torch

from ...base import Site
from ...runtime.conditions import reached, tensors_by_memory
from ..fake import PRETENDED, FakeTensorMode, Inventor, StandIns, fake_device, refuse_lazy
from ..fake import torch_private as compat
from ..trial import CodePlace, Trial, here
from . import stage
from .mask import Mask

_ENDS = frozenset({FakeTensorMode})
"""Types of objects of the check that tensors lead to."""


class FakeStage:
    """Where a callable runs on fake tensors. It can be made once in a process."""

    def __init__(self) -> None:
        compat.register_device()
        self.inventor = Inventor()
        self.storages: set[int] = set()  # those of the callable's tensors, before any call
        self._standins = StandIns(compat.make_fake_mode())
        self.trial = Trial(self._standins, self.inventor)
        self._mask = Mask(self.trial)
        self._draws: dict[str, dict[Site, CodePlace]] = {}  # the places for each module, by line
        for module in (random, numpy.random):
            for name, function in list(vars(module).items()):
                owned = isinstance(
                    getattr(function, "__self__", None), (random.Random, numpy.random.RandomState)
                )
                if owned and not name.endswith(("seed", "state")):
                    setattr(module, name, self._noting(module.__name__, function))
        stage.install(self.trial, self._around)
        compat.show_devices(lambda: self.trial.inside == 0)
        compat.run_compiled_code_eagerly()

    def begin(self, wanted: frozenset[int]) -> None:
        """A run begins; it keeps the places of the wanted operations."""
        self._draws.clear()
        self.trial.begin(wanted)

    @property
    def drawn(self) -> dict[str, list[CodePlace]]:
        """Where host random numbers were drawn in the current run, by module."""
        return {module: list(places.values()) for module, places in self._draws.items()}

    def _noting(self, module: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of ``random`` or ``numpy.random`` that notes where it is called."""

        def draw(*args: Any, **kwargs: Any) -> Any:
            place = here()
            self._draws.setdefault(module, {}).setdefault(place.site, place)
            return function(*args, **kwargs)

        return draw

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

    def prepare(self, function: Any, leaves: list[Any], names: list[str]) -> list[Any]:
        """Replace the tensors of a callable by fake ones; returns its argument leaves.

        If none of them lies on a GPU, all are taken to have been moved there. Otherwise the tensors on the
        GPU are replaced, and host tensors stay on the host.
        """
        given = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        state = list(
            reached([function, *[leaf for leaf in leaves if not isinstance(leaf, torch.Tensor)]], _ENDS)
        )
        refuse_lazy(state)
        held = [value for value in state if issubclass(type(value), torch.Tensor)]
        standins = self._standins
        standins.adopting = not any(
            fake_device(tensor) == PRETENDED or tensor.device.type == "cuda" for tensor in (*held, *given)
        )
        standins.replace_state(state)
        standins.meet([*gc.get_referents(*state), *leaves])
        found: list[Any] = []
        for leaf, name in zip(leaves, names, strict=True):
            if isinstance(leaf, torch.Tensor):
                leaf = standins.of(leaf) if standins.moves(leaf) else leaf
                standins.name_argument(leaf, name)
            found.append(leaf)
        self.storages = set(tensors_by_memory([*reached([function], _ENDS), *leaves, *found]))
        return found
