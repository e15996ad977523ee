"""Draws from the host's random generators."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy

from ...base import Site
from ..trial import CodePlace, here

_PYTHON = (
    "random", "uniform", "randint", "randrange", "choice", "choices", "sample", "shuffle", "gauss",
    "normalvariate", "lognormvariate", "betavariate", "expovariate", "gammavariate", "triangular",
    "getrandbits",
)  # fmt: skip
_NUMPY = (
    "rand", "randn", "random", "random_sample", "randint", "uniform", "normal", "standard_normal", "choice",
    "permutation", "shuffle", "beta", "binomial", "exponential", "gamma", "poisson", "dirichlet",
    "multinomial",
)  # fmt: skip


class Draws:
    """Notes where the functions of ``random`` and ``numpy.random`` are called."""

    def __init__(self) -> None:
        self.drawn: dict[str, dict[Site, CodePlace]] = {}  # the places for each module, by line
        for module, names in ((random, _PYTHON), (numpy.random, _NUMPY)):
            for name in names:
                setattr(module, name, self._noting(module.__name__, getattr(module, name)))

    def _noting(self, module: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def draw(*args: Any, **kwargs: Any) -> Any:
            place = here()
            self.drawn.setdefault(module, {}).setdefault(place.site, place)
            return function(*args, **kwargs)

        return draw
