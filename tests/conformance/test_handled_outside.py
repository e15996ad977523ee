"""The exception that the caller is handling: a call that comes to it depends on it."""

from __future__ import annotations

import contextlib
import operator
import sys

import pytest
import torch

import rote
from rote.testing import assert_same


def raises_what_is_handled(x):
    try:
        raise
    except RuntimeError:
        return x
    except KeyError:
        return x * 3


def raises_in_another_function(x):
    def again():
        raise

    try:
        again()
    except RuntimeError:
        return x
    except KeyError:
        return x * 3


def raises_in_a_generator(x):
    def steps():
        try:
            yield
            raise
        except RuntimeError:
            yield 2
        except KeyError:
            yield 3

    made = steps()
    next(made)
    return x * next(made)


def suppresses(x):
    with contextlib.suppress(RuntimeError):
        raise
    return x * 2


def caught(read):
    def f(x):
        try:
            raise RuntimeError
        except RuntimeError as error:
            return x * (2 if read(error) is None else 3)

    return f


def further_back(x):
    try:
        try:
            raise RuntimeError
        except RuntimeError:
            raise ValueError  # noqa: B904
    except ValueError as error:
        return x * (2 if error.__context__.__context__ is None else 3)  # pyright: ignore


def of_the_second(x):
    found = []
    for _ in range(2):
        try:
            raise RuntimeError
        except RuntimeError as error:
            found.append(2 if error.__context__ is None else 3)
    return x * found[1]


class Notes:
    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        self.found = 2 if error.__context__ is None else 3
        return True


def in_a_context(x):
    notes = Notes()
    with notes:
        raise RuntimeError
    return x * notes.found


def by_a_pattern(x):
    try:
        raise RuntimeError
    except RuntimeError as error:
        match error:
            case RuntimeError(__context__=None):
                return x * 2
            case _:
                return x * 3


def of_a_group(x):
    try:
        raise ExceptionGroup("", [ValueError()])
    except* ValueError as error:
        found = 2 if error.__context__ is None else 3
    return x * found


READS = {
    "raise": raises_what_is_handled,
    "raise in a function": raises_in_another_function,
    "raise in a generator": raises_in_a_generator,
    "suppress": suppresses,
    "attribute": caught(lambda error: error.__context__),
    "getattr": caught(lambda error: getattr(error, "__context__")),  # noqa: B009
    "attrgetter": caught(operator.attrgetter("__context__")),
    "descriptor": caught(lambda error: BaseException.__context__.__get__(error)),  # pyright: ignore
    "further back": further_back,
    "of the second": of_the_second,
    "context": in_a_context,
    "pattern": by_a_pattern,
    "group": of_a_group,
    "exc_info": lambda x: x * (2 if sys.exc_info()[1] is None else 3),
}


def of_its_own(x):
    try:
        try:
            raise KeyError
        except KeyError:
            raise
    except KeyError:
        return x * 2


def with_its_own_context(x):
    try:
        try:
            raise KeyError
        except KeyError:
            raise ValueError  # noqa: B904
    except ValueError as error:
        return x * len((*error.__context__.args, 2))  # pyright: ignore


def of_its_own_by_sys(x):
    try:
        raise KeyError
    except KeyError:
        return x * len((*sys.exc_info()[1].args, 2))  # pyright: ignore


def nothing_of_it(x):
    try:
        raise KeyError
    except KeyError:
        return x * 2


def around(call, x, error):
    """Call it, in the handler of an exception if there is one."""
    if error is None:
        return call(x)
    try:
        raise error
    except (KeyError, ValueError):
        try:
            return call(x)
        except (KeyError, ValueError):  # which it has raised again
            return x * 7


@pytest.mark.parametrize("f", READS.values(), ids=READS)
@pytest.mark.parametrize("first", [None, KeyError], ids=["outside", "inside"])
def test_what_the_caller_handles(first, f, device):
    other = KeyError if first is None else None
    g = rote.graph(f)
    x = torch.ones(3, device=device)
    for n, error in enumerate((*[first] * 5, *[other] * 3, ValueError, ValueError)):
        assert_same(around(g, x, error), around(f, x, error))
        if n == 4 and first is None:
            assert g.report().replayed >= 2, g.explain()


@pytest.mark.parametrize("f", [of_its_own, with_its_own_context, of_its_own_by_sys, nothing_of_it])
@pytest.mark.parametrize("first", [None, KeyError], ids=["outside", "inside"])
def test_what_the_call_itself_raises(first, f, device):
    other = KeyError if first is None else None
    g = rote.graph(f)
    x = torch.ones(3, device=device)
    for error in (*[first] * 5, *[other] * 3):
        assert_same(around(g, x, error), around(f, x, error))
    assert g.report().replayed >= 6, g.explain()


def test_an_exception_that_is_kept_and_raised(device):
    kept = ValueError()

    def f(x):
        try:
            raise kept
        except ValueError:
            return x * (2 if kept.__context__ is None else 3)

    x = torch.ones(3, device=device)
    results = []
    for call in (f, rote.graph(f)):
        kept.__context__ = None
        results.append([around(call, x, error) for error in (*[None] * 5, *[KeyError] * 3)])
    assert_same(*results)
