"""Methods: a graphed function in a class behaves as the function would."""

from __future__ import annotations

import copy
import functools

from tests.differential.harness import attempt, check, drive, full

import rote


def test_overridden_method_is_called_every_time():
    def scenario(wrap):
        class Base:
            def __init__(self, w):
                self.w = w

            f = wrap(lambda self, x: x * self.w)

        class Derived(Base):
            def f(self, x):
                return super().f(x) + 1

        o = Derived(2.0)
        for i in range(8):
            yield o.f(full(i))

    check(scenario)


def test_copies_have_methods_of_their_own():
    def scenario(wrap):
        class Base:
            def __init__(self, w):
                self.w = w

            f = wrap(lambda self, x: x * self.w)

        a = Base(2.0)
        yield a.f(full(1))
        b = copy.copy(a)
        b.w = 7.0
        yield b.f(full(1))
        yield sorted(vars(a))
        yield attempt(lambda: copy.deepcopy(a).f(full(1)))

    check(scenario)


def test_graphed_method_calls_the_graphed_method_it_overrides():
    def scenario(wrap):
        class Base:
            def __init__(self, w):
                self.w = w

            f = wrap(lambda self, x: x * self.w)

        class Derived(Base):
            f = wrap(lambda self, x: super().f(x) * 10)

        yield attempt(lambda: Derived(2.0).f(full(1)))

    check(scenario)


def test_method_assigned_to_a_class():
    def scenario(wrap):
        class C:
            pass

        C.f = wrap(lambda self, x: x * 2)
        yield attempt(lambda: C().f(full(1)))

    check(scenario)


def test_class_method():
    def scenario(wrap):
        class C:
            k = 2.0
            f = classmethod(wrap(lambda cls, x: x * cls.k))

        yield attempt(lambda: C.f(full(1)))

    check(scenario)


def test_partial_method():
    class Policy:
        scale = 1.0

        def act(self, x, k):
            return x * self.scale * k

        half = functools.partialmethod(act, k=0.5)

    def scenario(wrap):
        policy = Policy()
        g = wrap(policy.half)
        yield from drive(g, change=lambda: setattr(policy, "scale", 3.0))

    check(scenario)
    assert rote.graph(Policy().half).explain().startswith("partial of ")
