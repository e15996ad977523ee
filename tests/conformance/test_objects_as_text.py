"""Objects that write themselves as text, with numbers in it that change: meters, points, records."""

from __future__ import annotations

import io
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import pytest
import torch
from tests.conformance.numbers_programs import bits

import rote


class Text(str):
    pass


class ByStr:
    def __init__(self, value):
        self.value = value

    def __str__(self):
        return f"<{self.value:.3f}>"

    def __repr__(self):
        return f"ByStr({self.value:.2f})"


class ByRepr:
    def __init__(self, value):
        self.value = value

    def __repr__(self):
        return f"ByRepr({self.value!r})"


class Back(ByStr):
    __str__ = object.__str__


class ByFormat(ByRepr):
    def __format__(self, form):
        return f"[{form}|{self.value:.2f}]"


class ByAnother(ByRepr):
    def __str__(self):
        return self.__repr__()


class OfDerivedText(ByStr):
    def __str__(self):
        return Text(f"{self.value:.3f}")


class OfFixedText(ByStr):
    def __str__(self):
        return "fixed"


class Looks(ByStr):
    def __str__(self):
        text = f"{self.value:.1f}"
        return text if len(text) < 4 or text < "5" else text.upper() + "!"


class Within(ByStr):
    def __str__(self):
        return f"{ByStr(self.value)} of {[ByRepr(self.value)]}"


class Raises(ByStr):
    def __str__(self):
        if self.value > 3:
            raise ValueError("too much")
        return f"{self.value:.2f}"


class Meter:
    def __init__(self, value):
        self.name, self.fmt, self.kind, self.val, self.count = "loss", ":.4f", Level(1), value, 3

    def __str__(self):
        return ("{name} {val" + self.fmt + "} ({count})").format(**self.__dict__)

    __repr__ = __str__


class Level(IntEnum):
    LOW = 0
    HIGH = 1


class Number(float):
    def __str__(self):
        return "n" + float.__repr__(self * 2)


@dataclass
class Record:
    value: float
    count: int = 2


CLASSES = [
    ByStr, ByRepr, Back, ByFormat, ByAnother, OfDerivedText, OfFixedText, Looks, Within, Raises, Meter,
    Number, Record,
]  # fmt: skip
WRITE = {
    "field": lambda o: f"{o}",
    "fields": lambda o: f"a {o} b {o!s} {o!r}",
    "as text": lambda o: f"{o!s}",
    "str": str,
    "repr": repr,
    "format": format,
    "joined": lambda o: ", ".join(str(each) for each in (o, o)),
    "joined with others": lambda o: f"{1}-".join(f"{o} {n}" for n in range(2)),
    "listed": lambda o: " ".join([f"{o}", "a", str(o)]),
    "ascii": lambda o: f"{o!a}" + ascii(o),
    "percent": lambda o: "%s %r" % (o, o),  # noqa: UP031
    "percent alone": lambda o: "%s" % o,  # noqa: UP031
    "positional": lambda o: "{} {!r}".format(o, 1),  # noqa: UP032
    "in a list": lambda o: f"{[o]}" + str((o, {1: o})),
    "aligned": lambda o: f"{o!s:>12}|",
    "method": lambda o: o.__str__(),
    "of the class": lambda o: type(o).__str__(o),
    "of object": lambda o: object.__format__(o, ""),
    "mapped": lambda o: "".join(map(str, [o, o])),
    "printed": lambda o: printed(o),
    "one behind another": lambda o: f"{o}" + "%s" % o + str(o),  # noqa: UP031
    "some": lambda o: "".join(str(o) if n else "none" for n in range(2)),
    "with what is none": lambda o: "".join(each for each in (str(o), 3)),
    "of derived texts": lambda o: ", ".join(Text(str(o)) for _ in range(2)),
}
HANDED_ON = {"field", "as text", "str", "joined", "joined with others", "listed", "some"}
"""Ways to write that give what the object gives, or make a text of that."""
FOLLOWED = {ByStr, ByRepr, ByAnother, OfFixedText, Raises, Meter}
"""Classes that make a text of numbers in one way only."""
LOOKS = {
    "kept": lambda text: [text],
    "length": len,
    "part": lambda text: text[:4] + text[-2:],
    "compared": lambda text: (text > "<1.5", text == "x"),
    "key": lambda text: {text: 1, "b": 2},
    "upper": lambda text: text.upper() + "!",
}


def printed(value):
    stream = io.StringIO()
    print(value, file=stream)
    return stream.getvalue()


@pytest.mark.sampled(48)
@pytest.mark.parametrize("device", ["cpu"], indirect=True)
@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("how", WRITE)
@pytest.mark.parametrize("look", LOOKS)
def test_what_an_object_writes(device, kind, how, look):
    def fn(x):
        try:
            return x * 2, LOOKS[look](WRITE[how](kind(x.sum().item())))
        except (ValueError, TypeError) as error:
            return x, str(error)

    g = rote.graph(fn, keep=True)
    for number in range(18):
        x = torch.full((3,), 0.137 * (number % 11), device=device)
        assert bits(g(x)) == bits(fn(x)), number
    if kind in FOLLOWED and how in HANDED_ON and look in ("kept", "upper"):
        assert g.report().replayed >= 3, g.explain()


def test_a_step_that_shows_its_meters(device):
    """As the ImageNet example of PyTorch does."""

    class Average:
        def __init__(self, name, fmt):
            self.name, self.fmt, self.level = name, fmt, Level.HIGH
            self.val = self.sum = self.count = self.avg = 0

        def update(self, val, n=1):
            self.val, self.sum, self.count = val, self.sum + val * n, self.count + n
            self.avg = self.sum / self.count

        def __str__(self):
            return ("{name} {val" + self.fmt + "} ({avg" + self.fmt + "})").format(**self.__dict__)

    def make() -> Any:
        meters, shown = [Average("Loss", ":.4e"), Average("Acc@1", ":6.2f")], list[str]()

        def step(x, number):
            for meter, value in zip(meters, (x.mean(), x.amax()), strict=True):
                meter.update(value.item(), len(x))
            if number % 3 == 0:
                shown.append("\t".join([f"[{number}]", *[str(meter) for meter in meters]]))
            return x * 2

        return step, meters, shown

    (plain, *expected), (fn, *ours) = make(), make()
    g = rote.graph(fn, keep=True)
    for number in range(60):
        x = torch.rand(4, device=device)
        assert torch.equal(g(x, number), plain(x, number))
        assert ours[1] == expected[1]
        assert [vars(each) for each in ours[0]] == [vars(each) for each in expected[0]]
    assert g.report().replayed >= 30, g.explain()
