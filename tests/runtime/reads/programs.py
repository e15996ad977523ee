"""Functions with each construct of the language, to be run plainly and while they tell what they read."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any


class Base:
    def __init__(self, scale: int) -> None:
        self.scale = scale

    def times(self, x: int) -> int:
        return x * self.scale


class Derived(Base):
    __slots__ = ()

    def __init__(self, scale: int) -> None:
        super().__init__(scale)

    def times(self, x: int) -> int:
        return super().times(x) + super(Derived, self).times(1)


class Pair:
    __match_args__ = ("left", "right")

    def __init__(self, left: Any, right: Any) -> None:
        self.left, self.right = left, right


def closures(n: int) -> list[int]:
    total = n

    def add(x: int) -> int:
        nonlocal total
        total += x
        return total

    return [add(each) for each in range(3)] + [total]


def generators(n: int) -> list[Any]:
    def count(to: int):
        sent = None
        for at in range(to):
            sent = yield at if sent is None else sent
        return "over"

    def outer():
        got = yield from count(n)
        yield got

    made = outer()
    return [next(made), made.send(7), *made, *(each * 2 for each in count(2))]


def managers(n: int) -> list[Any]:
    seen: list[Any] = []

    @contextmanager
    def manager(name: str):
        seen.append(f"enter {name}")
        try:
            yield name
        except KeyError as error:
            seen.append(repr(error))
        finally:
            seen.append(f"exit {name}")

    with manager("a") as a, manager("b"):
        seen.append(a)
        if n:
            raise KeyError(n)
    return seen


def tries(n: int) -> list[Any]:
    seen: list[Any] = []
    for each in range(n):
        try:
            try:
                if each == 1:
                    continue
                if each == 2:
                    raise ValueError(each)
                seen.append(1 // each)
            finally:
                seen.append(("finally", each))
        except ZeroDivisionError as error:
            seen.append(str(error))
        except ValueError as error:
            seen.append(error.args)
        else:
            seen.append("else")
    try:
        raise ExceptionGroup("both", [TypeError("t"), OSError("o")])
    except* TypeError as group:
        seen.append(len(group.exceptions))
    except* OSError as group:
        seen.append(str(group.exceptions[0]))
    return seen


def matches(n: int) -> list[Any]:
    def one(value: Any) -> Any:
        match value:
            case {"key": found, **rest}:
                return found, rest
            case [first, *_, last]:
                return first, last
            case Pair(1, right=right):
                return "pair", right
            case str() | None:
                return "text"
            case int(x) if x > 2:
                return x
            case _:
                return "other"

    values = [{"key": n, "b": 2}, [1, 2, n], Pair(1, n), Pair(2, n), "s", None, n + 3, 1.5]
    return [one(each) for each in values]


def comprehensions(n: int) -> Any:
    rows = [[x * y for x in range(n) if x != 1] for y in range(n)]
    return rows, {x: y for x, y in enumerate(rows[0])}, {x % 2 for x in range(n)}, sum(x for x in range(n))


def supers(n: int) -> int:
    return Derived(n).times(4)


def stars(n: int) -> Any:
    def take(a: int, /, b: int = 2, *rest: int, c: int, d: int = 4, **more: int) -> Any:
        return a, b, rest, c, d, more

    given, named = (n, n + 1, n + 2), {"c": 3, "e": 5}
    first, *others = given
    return (
        take(*given, **named),
        take(1, c=3),
        take(1, *others, c=n, **{"z": 1}),
        [*given, *others],
        {**named},
    )


def texts(n: int) -> str:
    width = 6
    return f"{n!r:>{width}}|{n / 3:.2f}|{n=}|{'x' * n}" + "%d" % n + "{0}".format(n)  # noqa: UP030, UP031, UP032


def nested(n: int) -> Any:
    def outer(a: int):
        def middle(b: int):
            class Local:
                value = b

                def inner(self, c: int = a) -> int:
                    return self.value + a + b + c

            return Local().inner()

        return middle(a + 1)

    return outer(n), (lambda x, y=n: x + y)(1)


def slices(n: int) -> Any:
    items = list(range(10))
    items[1:3] = [n, n]
    del items[-1], items[::4]
    items[0] += 5
    a, (b, *c) = items[0], items[1:4]
    return items, a, b, c, items[n:], not items, n in items, -n, ~n, n is None, 1 < n < 5


def loops(n: int) -> Any:
    seen: list[int] = []
    while True:
        n -= 1
        if n < -3:
            break
        seen.append(n and 7 or n)
    else:
        seen.append(99)
    for seen_last in seen:
        if seen_last == 0:
            break
    else:
        return None
    assert seen, "never"
    return seen, seen_last


def imports(n: int) -> Any:
    import collections.abc as abc
    from math import floor

    return abc.Mapping.__name__, floor(n + 0.5)


PROGRAMS = (
    closures, generators, managers, tries, matches, comprehensions, supers, stars, texts, nested, slices, loops,
    imports,
)  # fmt: skip


def raises_deep(n: int) -> int:
    def inner(x: int) -> int:
        values = [
            x,
            1 // (x - x),
        ]
        return sum(values)

    try:
        return inner(n)
    finally:
        n += 1


def raises_in_a_comprehension(n: int) -> list[int]:
    return [
        {}[each]
        for each in range(n)
    ]  # fmt: skip


def raises_from(n: int) -> None:
    try:
        None.missing  # type: ignore[attr-defined]  # noqa: B018
    except AttributeError as error:
        raise RuntimeError("behind") from error


RAISING = (raises_deep, raises_in_a_comprehension, raises_from)
