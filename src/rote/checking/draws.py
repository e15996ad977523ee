"""Where the host's random generators are used, through the functions of their modules."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy

from .places import Place, here

_PYTHON = ("random", "uniform", "randint", "randrange", "choice", "choices", "sample", "shuffle", "gauss")
_NUMPY = ("rand", "randn", "random", "randint", "uniform", "normal", "choice", "permutation", "shuffle")


class Draws:
    """Notes where Python's and numpy's generators are used through the functions of their modules.

    Attributes:
        drawn: The first place for each module.
    """

    def __init__(self) -> None:
        self.drawn: dict[str, Place] = {}
        for module, names in ((random, _PYTHON), (numpy.random, _NUMPY)):
            for name in names:
                setattr(module, name, self._noting(module.__name__, getattr(module, name)))

    def _noting(self, module: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def draw(*args: Any, **kwargs: Any) -> Any:
            self.drawn.setdefault(module, here())
            return function(*args, **kwargs)

        return draw
