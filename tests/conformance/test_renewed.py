"""What C keeps to itself: fields of exceptions, methods that renew objects, how weak references compare."""

from __future__ import annotations

import ctypes
import functools
import random
import struct
import threading
import weakref
from types import ModuleType, SimpleNamespace

import numpy
import pytest
import torch

import rote
from rote.testing import assert_same

CALLS = 9


def played(make, device, wrap):
    """What each call gives and leaves behind; ``change`` runs between the later ones."""
    call, change, left = make()
    graphed, found = wrap(call), []
    for number in range(CALLS):
        if number > 4:
            change(number)
        try:
            result = graphed(torch.full((3,), float(number), device=device))
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
        found.append((result, left()))
    return found, graphed


def is_the_same(make, device):
    wanted, _ = played(make, device, lambda call: call)
    found, graphed = played(make, device, rote.graph)
    assert_same(found, wanted)
    return graphed.report()


ERRORS = {
    "OSError": (lambda: OSError(2, "no file", "a"), "filename", ["b", "c"]),
    "its number": (lambda: OSError(2, "no file", "a"), "errno", [5, 7]),
    "SyntaxError": (lambda: SyntaxError("no", ("a", 1, 2, "text")), "lineno", [5, 7]),
    "UnicodeError": (lambda: UnicodeDecodeError("utf8", b"abcd", 0, 1, "no"), "start", [1, 2]),
    "ImportError": (lambda: ImportError("no", name="a"), "msg", ["b", "c"]),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_an_exception_holds_besides_its_arguments(name, device):
    new, attribute, values = ERRORS[name]

    def make():
        error = new()

        def change(number):
            setattr(error, attribute, values[number % 2])

        return lambda x: (x * 2, str(error)), change, lambda: ""

    assert is_the_same(make, device).replayed


def struct_of():
    packer = struct.Struct("i")
    return lambda: packer.__init__("h"), lambda: packer.__init__("q"), lambda: packer.size


def descriptor():
    class Box:
        value = property(lambda self: 1)

    found, other = Box.__dict__["value"], lambda self: 2
    return lambda: found.__init__(other), lambda: found.__init__(lambda self: 3), lambda: Box().value


def module():
    made = ModuleType("a")
    return lambda: made.__init__("b"), lambda: made.__init__("c"), lambda: made.__name__


def error():
    made = ValueError(1)
    return lambda: made.__init__(2), lambda: made.__init__(3), lambda: made.args


def part():
    made, state = functools.partial(max, 1), (max, (2,), {}, None)
    return (
        lambda: made.__setstate__(state),
        lambda: made.__setstate__((max, (3,), {}, None)),
        lambda: made.args,
    )


def namespace():
    made = SimpleNamespace(value=1)
    return lambda: made.__init__(value=2), lambda: made.__init__(value=3), lambda: made.value


def lock_given_up():
    lock = threading.Lock()
    return lambda: lock._at_fork_reinit(), lambda: lock.acquire(blocking=False), lock.locked


def lock_given_back():
    lock = threading.Lock()
    lock.acquire()

    def give_back():
        if lock.locked():
            lock.release_lock()

    return give_back, lambda: lock.acquire(blocking=False), lock.locked


@pytest.mark.parametrize(
    "way", [struct_of, descriptor, module, error, part, namespace, lock_given_up, lock_given_back]
)
def test_an_object_that_a_call_makes_anew(way, device):
    def make():
        renew, change, left = way()

        def call(x):
            renew()
            return x * 2

        return call, lambda number: change(), left

    is_the_same(make, device)


class Named:
    """Equal to all that have its name."""

    def __init__(self, name):
        self.name = name

    def __eq__(self, other):
        return self.name == other.name

    def __hash__(self):
        return 3


COMPARED = {
    "compared": lambda one, other: weakref.ref(one) == other,
    "looked for": lambda one, other: weakref.ref(one) in [other],
    "a key": lambda one, other: {weakref.ref(one): 1}.get(other, 2),
    "a key of a library's": lambda one, other: weakref.WeakKeyDictionary({other(): 1}).get(one, 2),
    "in a set": lambda one, other: one in weakref.WeakSet([other()]),
}


@pytest.mark.parametrize("how", COMPARED)
def test_weak_references_that_are_compared(how, device):
    def make():
        one, kept = Named("a"), Named("b")
        other, ask = weakref.ref(kept), COMPARED[how]

        def change(number):
            kept.name = "a" if number % 2 else "b"

        return lambda x: x * ask(one, other), change, lambda: kept.name

    assert is_the_same(make, device).replayed


class Halves(random.Random):
    def random(self):
        return 0.5


def full(kind=None):
    made = numpy.full((2, 2), 2.0)
    return made if kind is None else made.view(kind)


ALIKE = {
    "matrix": (full, lambda: full(numpy.matrix), lambda a: float((a * a)[0, 0])),
    "class of an array": (full, lambda: full(numpy.matrix), lambda a: type(a).__name__),
    "random numbers": (lambda: random.Random(3), lambda: Halves(3), lambda a: type(a).__name__),
    "array's random numbers": (
        lambda: numpy.random.RandomState(3),
        lambda: type("Own", (numpy.random.RandomState,), {})(3),
        lambda a: type(a).__name__,
    ),
    "numbers of C": (
        lambda: ctypes.c_int(1), lambda: ctypes.c_float.from_buffer_copy(b"\1\0\0\0"), lambda a: a.value,
    ),
    "read only": (
        lambda: memoryview(bytearray(b"ab")), lambda: memoryview(b"ab"), lambda a: a.readonly,
    ),
    "every second": (
        lambda: memoryview(b"aabb")[::2], lambda: memoryview(b"ab"), lambda a: a.strides[0],
    ),
    "words": (lambda: memoryview(b"abcd"), lambda: memoryview(b"abcd").cast("H"), lambda a: a[0]),
}  # fmt: skip


@pytest.mark.parametrize("name", ALIKE)
def test_another_class_or_form_with_equal_content(name, device):
    one, other, ask = ALIKE[name]

    def make():
        state = {"it": one()}

        def change(number):
            state["it"] = (other if number % 2 else one)()

        return lambda x: (x * 2, ask(state["it"])), change, lambda: ""

    assert is_the_same(make, device).replayed
