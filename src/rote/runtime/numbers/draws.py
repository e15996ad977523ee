"""Numbers that a call draws from the generators of Python's ``random`` and of ``numpy.random``.

Such a number changes from call to call, and a replay has to draw it as the call would: by the same
function, in the same order. All are drawn when a call begins. Nobody can tell, since a recording has no other
code that draws from these generators: the state behind a traced call has to be that behind its draws alone.
If the recording does not answer the call, the generators are put back.

What does not work: draws behind a read of a tensor's value, since other ways from there may draw otherwise.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import BuiltinFunctionType, MethodType
from typing import Any

import numpy

_OF_PYTHON: Any = getattr(random, "_inst", None)
_OF_NUMPY: Any = getattr(numpy.random.mtrand, "_rand", None)
GLOBAL_GENERATORS: tuple[Any, ...] = (_OF_PYTHON, _OF_NUMPY)
"""What the functions of ``random`` and ``numpy.random`` draw from."""
_PYTHONS = frozenset({
    "random", "uniform", "randint", "randrange", "normalvariate", "lognormvariate", "expovariate",
    "betavariate", "gammavariate", "triangular", "vonmisesvariate", "paretovariate", "weibullvariate",
    "getrandbits",
})  # fmt: skip
"""Of them ``gauss`` is none: it keeps a second number in an attribute, which is a slot like any other."""
_NUMPYS = frozenset({
    "random", "random_sample", "rand", "randn", "randint", "uniform", "normal", "standard_normal", "beta",
    "exponential", "standard_exponential", "gamma", "poisson", "binomial", "geometric", "laplace",
    "lognormal",
})  # fmt: skip
_KEPT: Mapping[bool, tuple[Callable[[], Any], Callable[[Any], None]]] = {
    False: (random.getstate, random.setstate),
    True: (numpy.random.get_state, numpy.random.set_state),
}
"""What reads and sets the state of a generator, by whether it is numpy's."""
_PLAIN = frozenset({int, float, bool, type(None)})


@dataclass(frozen=True)
class Draw:
    """A call of a function that draws a number.

    Attributes:
        of_numpy: From numpy's generator, not from Python's.
        name: The function.
        args: What it is given.
    """

    of_numpy: bool
    name: str
    args: tuple[Any, ...]

    @classmethod
    def of(cls, function: Any, args: tuple[Any, ...]) -> Draw | None:
        """What a call draws; None if it is not known to draw a number from one of these generators."""
        if type(function) not in (MethodType, BuiltinFunctionType):
            return None
        owner, name = function.__self__, function.__name__
        of_numpy = owner is _OF_NUMPY
        known = _NUMPYS if of_numpy else _PYTHONS if owner is _OF_PYTHON else ()
        if (
            name not in known
            or getattr(owner, name) != function
            or not all([type(each) in _PLAIN for each in args])
        ):
            return None
        return cls(of_numpy, name, args)

    def now(self) -> Any:
        """The next number."""
        return getattr(_OF_NUMPY if self.of_numpy else _OF_PYTHON, self.name)(*self.args)


def kept_by(draws: Iterable[Draw]) -> list[tuple[Callable[[], Any], Callable[[Any], None]]]:
    """What reads and sets the state of each generator that is drawn from."""
    return [_KEPT[of_numpy] for of_numpy in sorted({each.of_numpy for each in draws})]


@dataclass(frozen=True)
class HostRandom:
    """The state of the host's random generators, which shows whether a call used them."""

    python: Any
    array: Any

    @classmethod
    def read(cls) -> HostRandom:
        """Read Python's and numpy's global generators."""
        return cls(random.getstate(), _told(numpy.random.get_state(legacy=True)))

    def behind(self, draws: Iterable[Draw]) -> HostRandom:
        """The state behind some draws from here."""
        python, array = random.Random(), numpy.random.RandomState()
        python.setstate(self.python)
        array.set_state(_as_numpy_has_it(self.array))
        for each in draws:
            getattr(array if each.of_numpy else python, each.name)(*each.args)
        return HostRandom(python.getstate(), _told(array.get_state(legacy=True)))


def _told(state: Any) -> Any:
    """The state of a generator of numpy's, so that states can be compared."""
    return state[0], state[1].tobytes(), *state[2:]


def _as_numpy_has_it(told: Any) -> Any:
    return told[0], numpy.frombuffer(told[1], numpy.uint32), *told[2:]
