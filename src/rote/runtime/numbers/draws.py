"""Numbers that a call draws from random generators of Python and numpy (``docs/call.md``).

All are drawn when a call begins. Nobody can tell, since a recording has no other code that draws from these
generators: the state behind a traced call has to be that behind its draws alone. If the recording does not
answer the call, the generators are put back.

What does not work: draws behind a read of a tensor's value, since other ways from there may draw otherwise;
generators of classes of one's own, which may draw as they like.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import BuiltinFunctionType, MethodType
from typing import Any

import numpy
import torch

from ...base import identity, is_instance
from ..objects import mark
from .arrays import is_array
from .expressions import KINDS, STRICT, Expression, value_of
from .iterators import can_go_back, has_next, set_back, standing

_OF_PYTHON: Any = getattr(random, "_inst", None)
_OF_NUMPY: Any = getattr(numpy.random.mtrand, "_rand", None)
GLOBAL_GENERATORS: tuple[Any, ...] = (_OF_PYTHON, _OF_NUMPY)
"""What the functions of ``random`` and ``numpy.random`` draw from."""
_DRAWING: Mapping[type, tuple[str, ...]] = {
    random.Random: (
        "random", "uniform", "randint", "randrange", "normalvariate", "lognormvariate", "expovariate",
        "betavariate", "gammavariate", "triangular", "vonmisesvariate", "paretovariate", "weibullvariate",
        "getrandbits", "gauss", "choice", "sample", "choices", "shuffle",
    ),
    numpy.random.RandomState: (
        "random", "random_sample", "rand", "randn", "randint", "uniform", "normal", "standard_normal", "beta",
        "exponential", "standard_exponential", "gamma", "poisson", "binomial", "geometric", "laplace",
        "lognormal", "choice", "permutation", "shuffle",
    ),
    numpy.random.Generator: (
        "random", "integers", "uniform", "normal", "standard_normal", "beta", "exponential",
        "standard_exponential", "gamma", "poisson", "binomial", "geometric", "laplace", "lognormal", "choice",
        "permutation", "shuffle",
    ),
}  # fmt: skip
"""Methods that draw numbers, where they are given numbers; by the very class of the generator."""
_FUNCTIONS: Mapping[type, Mapping[str, Any]] = {
    kind: {name: getattr(kind, name) for name in names if hasattr(kind, name)}
    for kind, names in _DRAWING.items()
}
_PLAIN = frozenset({int, float, bool, type(None), range, str})
_SEQUENCES = frozenset({list, tuple})
_MOST = 512
"""Numbers in what a draw gives."""
_LARGEST = 1 << 16
"""Numbers in an array that a draw is given, such as how likely each is."""
_NEXT, _SHUFFLE, _ORDER = "next", "shuffle", "order"


@dataclass(frozen=True, eq=False)
class Draw:
    """A call of a function that draws numbers, or takes an item from an iterator.

    Attributes:
        computed: How what it is given was computed, if numbers that change are among it.
    """

    generator: Any
    name: str
    args: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict[str, Any])
    computed: tuple[Expression, ...] = ()

    @classmethod
    def of(cls, function: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Draw | None:
        """What a call draws; None if it is not known to draw numbers."""
        if function is next:
            return cls(args[0], _NEXT) if len(args) in (1, 2) and can_go_back(args[0]) else None
        if type(function) not in (MethodType, BuiltinFunctionType):
            return None
        owner, name = function.__self__, function.__name__
        known = _FUNCTIONS.get(type(owner), {}).get(name)
        if known is None or known.__get__(owner) != function or getattr(owner, name) != function:
            return None
        if name == _SHUFFLE:
            return cls._of_shuffle(owner, args) if can_shuffle(owner, args) and not named else None
        if not all(map(_is_plain, (*args, *named.values()))):
            return None
        return cls(owner, name, tuple(map(_fixed, args)), {key: _fixed(each) for key, each in named.items()})

    @classmethod
    def _of_shuffle(cls, owner: Any, args: tuple[Any, ...]) -> Draw:
        if type(args[0]) is list:
            return cls(owner, _SHUFFLE, (_fixed(args[0]),))
        return cls(owner, _ORDER, (len(args[0]),))

    def of_call(self, given: Callable[[int], Any]) -> Draw:
        """The same in a call that is given other numbers."""
        with STRICT():
            values = [value_of(each, given) for each in self.computed]
        count = len(self.args)
        return replace(
            self, args=tuple(values[:count]), named=dict(zip(self.named, values[count:], strict=True))
        )

    def now(self) -> Any:
        """The next number, or the next ones; None behind the last item."""
        return self.by(self.generator)

    def ahead(self) -> Any:
        """The same, and the generator stays where it is."""
        state = state_of(self.generator)
        try:
            return self.now()
        finally:
            put_state(self.generator, state)

    def by(self, generator: Any) -> Any:
        """The same, drawn from another generator."""
        if self.name == _NEXT:
            return next(generator) if has_next(generator) else None
        if not self.fills:
            return getattr(generator, self.name)(*self.args, **self.named)
        members = numpy.arange(self.args[0]) if self.name == _ORDER else list(self.args[0])
        generator.shuffle(members)
        return members

    @property
    def fills(self) -> bool:
        """Whether the numbers are in the list or array that it is given, not in what it returns."""
        return self.name in (_SHUFFLE, _ORDER)

    @property
    def orders(self) -> bool:
        """Whether what is drawn is the order in which an array then has its members."""
        return self.name == _ORDER


class DrawnValues:
    """What a draw has given in the present call: a number, or a list or a tuple of some."""

    def __init__(self, draw: Draw, value: Any) -> None:
        self.draw = draw
        self._form = type(value) if type(value) in _SEQUENCES else None
        self._count = len(value) if self._form is not None else 1
        self._numbers: Sequence[Any] = ()

    def begin(self, given: Callable[[int], Any]) -> None:
        """A call begins that is given these numbers."""
        if self.draw.computed:
            self.draw = self.draw.of_call(given)

    def number(self, index: int) -> Any:
        """One of the numbers, of which the first is asked first; None if it has given something else."""
        if not index:
            value = self.draw.now()
            found = value if self._form is not None else (value,)
            known = self._form is None or (type(value) is self._form and len(value) == self._count)
            self._numbers = found if known else (None,) * self._count
        return self._numbers[index] if index < len(self._numbers) else None


@dataclass(frozen=True, eq=False)
class DrawnNumber:
    """One of the numbers that a draw gives."""

    drawn: DrawnValues
    index: int

    def now(self) -> Any:
        """The number of the present call."""
        return self.drawn.number(self.index)


def numbers_in(value: Any) -> Sequence[Any]:
    """The numbers in what a draw has given, or the array of them; none if that is something else."""
    if is_array(value):
        return (value,)
    several = type(value) in _SEQUENCES and len(value) <= _MOST
    found = value if several else (value,)
    return found if KINDS.issuperset(map(type, found)) else ()


def _is_plain(value: Any) -> bool:
    """Whether a replay may give a value again: a number, or a few of them."""
    if type(value) in _SEQUENCES:
        return all([type(each) in _PLAIN for each in value])
    of_numbers = is_array(value) and value.size <= _LARGEST
    return of_numbers or type(value) in _PLAIN or is_instance(value, (numpy.dtype, type))


def _fixed(value: Any) -> Any:
    return value.copy() if type(value) is list or is_array(value) else value


def can_draw(generator: Any) -> bool:
    """Whether replays may draw from it."""
    return type(generator) in _FUNCTIONS or can_go_back(generator)


def is_drawing(
    generator: Any, name: str, given: Sequence[Any] = (), is_outside: Callable[[Any], bool] = bool
) -> bool:
    """Whether a method of C draws a number, and tells nothing else of the generator.

    What it shuffles is written, and is the call's own.
    """
    known = name in _FUNCTIONS.get(type(generator), {})
    if name == _SHUFFLE:
        return known and can_shuffle(generator, given) and not is_outside(given[0])
    return known and not any([is_outside(each) and not is_array(each) for each in given])


def can_shuffle(generator: Any, given: Sequence[Any]) -> bool:
    """Whether what is shuffled is a list of numbers, or an array in a row with memory of its own."""
    if len(given) != 1 or type(given[0]) is list:
        return len(given) == 1 and _is_plain(given[0])
    array = given[0]
    own = is_array(array) and array.ndim == 1 and array.base is None
    return own and type(generator) is not random.Random


def state_of(generator: Any) -> Any:
    """What sets it back to where it is."""
    if type(generator) not in _FUNCTIONS:
        return standing(generator)
    if type(generator) is random.Random:
        return generator.getstate()
    if type(generator) is numpy.random.RandomState:
        return generator.get_state(legacy=False)
    return generator.bit_generator.state


def put_state(generator: Any, state: Any) -> None:
    """Set it back to where it was."""
    if type(generator) not in _FUNCTIONS:
        set_back(generator, state)
    elif type(generator) is random.Random:
        generator.setstate(state)
    elif type(generator) is numpy.random.RandomState:
        generator.set_state(state)
    else:
        generator.bit_generator.state = state


def drawn_from(draws: Iterable[Draw]) -> list[Any]:
    """The generators that are drawn from."""
    return list({identity(each.generator): each.generator for each in draws}.values())


@dataclass(frozen=True)
class DrawnFrom:
    """A generator that a call draws from, and where it was before."""

    generator: Any
    before: Any

    @classmethod
    def of(cls, generator: Any) -> DrawnFrom:
        """A generator as it is now."""
        return cls(generator, state_of(generator))

    def put_back(self) -> None:
        """The call begins again."""
        put_state(self.generator, self.before)

    def is_behind(self, draws: Iterable[Draw]) -> bool:
        """Whether it is behind some draws from where it was."""
        generator, left = self.generator, state_of(self.generator)
        now = _form(generator)
        self.put_back()
        for each in draws:
            if each.generator is generator:
                each.now()
        behind = _form(generator)
        put_state(generator, left)
        return behind == now


def _form(generator: Any) -> Any:
    """Where a generator is, so that it can be compared."""
    return mark(generator) if type(generator) in _FUNCTIONS else standing(generator)


@dataclass(frozen=True)
class HostRandom:
    """The state of the random generators on the host, which shows whether a call used them."""

    python: Any
    array: Any
    torch: tuple[bytes, ...]

    @classmethod
    def read(cls, *, of_devices: bool = True) -> HostRandom:
        """Read the global generators; those of devices can't be read in a forked process."""
        devices = torch.cuda.default_generators if of_devices and torch.cuda.is_initialized() else ()
        states = [each.get_state().numpy().tobytes() for each in (torch.default_generator, *devices)]
        return cls(random.getstate(), _told(numpy.random.get_state(legacy=True)), tuple(states))

    def behind(self, draws: Iterable[Draw]) -> HostRandom:
        """The state behind some draws from here."""
        python, array = random.Random(), numpy.random.RandomState()
        python.setstate(self.python)
        array.set_state(_as_numpy_has_it(self.array))
        stand = {identity(_OF_PYTHON): python, identity(_OF_NUMPY): array}
        for each in draws:
            if (generator := stand.get(identity(each.generator))) is not None:
                each.by(generator)
        return HostRandom(python.getstate(), _told(array.get_state(legacy=True)), self.torch)


def _told(state: Any) -> Any:
    """The state of a generator of numpy's, so that states can be compared."""
    return state[0], state[1].tobytes(), *state[2:]


def _as_numpy_has_it(told: Any) -> Any:
    return told[0], numpy.frombuffer(told[1], numpy.uint32), *told[2:]
