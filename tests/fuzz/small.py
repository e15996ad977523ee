"""Small random programs about one piece of Python state: ``python -m tests.fuzz.small --count 5000``.

A program of :mod:`.state` is large, and a run of them slow. Here a callable does nothing but read a piece of
state, in up to three ways, and write it now and then; between calls the piece is changed. There are more
homes, and hundreds of programs a minute. Plain and graphed are compared after every call, with what they
raise.
"""

from __future__ import annotations

import argparse
import logging
import random
import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from string import Template
from textwrap import indent
from typing import Any

import torch

import rote

from .piece import Piece
from .pieces import PIECES
from .world import SURROUNDINGS, seed_everything

CALLS = 12
HOMES = {
    "closure": ("", "s0"),
    "global": ("", "s0"),
    "default": ("", "s0"),
    "argument": ("", "s0"),
    "instance": ("class Home: pass\nhome = Home()", "home.s"),
    "class": ("class Home: pass\nhome = Home()", "Home.s"),
    "base": ("class Base: pass\nclass Home(Base): pass\nhome = Home()", "Base.s"),
    "metaclass": ("class Meta(type): pass\nclass Home(metaclass=Meta): pass", "Meta.s"),
    "slot": ("class Home:\n    __slots__ = ('s',)\nhome = Home()", "home.s"),
    "module": ("home = types.ModuleType('home')", "home.s"),
    "layer": ("home = nn.Module()", "home.s"),
    "namespace": ("home = types.SimpleNamespace()", "home.s"),
    "dict": ("home = {}", "home['s']"),
    "ordered": ("home = collections.OrderedDict(a=1)", "home['s']"),
    "default dict": ("home = collections.defaultdict(list)", "home['s']"),
    "list": ("home = [None, 0]", "home[0]"),
    "deque": ("home = collections.deque([None, 0])", "home[0]"),
    "user dict": ("home = collections.UserDict()", "home['s']"),
    "chain": ("home = collections.ChainMap({}, {'a': 1})", "home['s']"),
    "nested": ("home = [{'a': types.SimpleNamespace()}]", "home[0]['a'].s"),
    "function": ("def home(): pass", "home.s"),
    "property": (
        "class Home:\n    @property\n    def got(self): return self.s\nhome = Home()", "home.s",
    ),
    "descriptor": (
        "class Field:\n    def __get__(self, owner, kind): return owner.s\n"
        "class Home:\n    got = Field()\nhome = Home()", "home.s",
    ),
    "getattr": ("class Home:\n    def __getattr__(self, name): return self.s\nhome = Home()", "home.s"),
    "dataclass": ("@dataclasses.dataclass\nclass Home:\n    s: object = None\nhome = Home()", "home.s"),
    "proxy": ("home = {}\nproxy = types.MappingProxyType(home)", "home['s']"),
    "weak": ("class Home: pass\nhome = Home()\nweak = weakref.ref(home)", "home.s"),
    "partial": ("class Home: pass\nhome = Home()\npart = functools.partial(getattr, home)", "home.s"),
    "enum": ("class Home(enum.Enum):\n    ONE = 1\nhome = Home.ONE", "home.s"),
    "thread's local": ("home = threading.local()", "home.s"),
    "self": ("", "owner.s"),
    "class of self": ("", "Owner.s"),
}  # fmt: skip
"""Where a piece lives: what makes that, and how the caller writes it."""
INSIDE = {
    "property": "home.got", "descriptor": "home.got", "getattr": "home.other", "proxy": "proxy['s']",
    "weak": "weak().s", "partial": "part('s')", "base": "home.s", "class": "home.s", "metaclass": "Home.s",
    "self": "self.s", "class of self": "self.s",
}  # fmt: skip
"""How the callable writes it, where that is another way."""
_OF_SELF = ("self", "class of self")
WAYS = {
    "function": "def f(x$given):\n$body\ng = wrap(f)",
    "partial": "def f(x$given):\n$body\ng = wrap(functools.partial(f))",
    "decorated": "class Owner:\n    @wrap\n    def f(self, x$given):\n$inner\nowner = Owner()\ng = owner.f",
    "found anew": "class Owner:\n    @wrap\n    def f(self, x$given):\n$inner\n"
    "owner = Owner()\ndef g(*args): return owner.f(*args)",
    "called": "class Owner:\n    @wrap\n    def __call__(self, x$given):\n$inner\ng = owner = Owner()",
    "layer": "class Owner(nn.Module):\n    @wrap\n    def forward(self, x$given):\n$inner\n"
    "g = owner = Owner()",
    "inherited": "class Base:\n    @wrap\n    def f(self, x$given):\n$inner\n"
    "class Owner(Base): pass\nowner = Owner()\ng = owner.f",
    "bound": "class Owner:\n    def f(self, x$given):\n$inner\nowner = Owner()\ng = wrap(owner.f)",
    "object": "class Owner:\n    def __call__(self, x$given):\n$inner\nowner = Owner()\ng = wrap(owner)",
    "module": "class Owner(nn.Module):\n    def forward(self, x$given):\n$inner\n"
    "owner = Owner()\ng = wrap(owner)",
    "static": "class Owner:\n    @staticmethod\n    @wrap\n    def f(x$given):\n$inner\ng = Owner.f",
}
"""How what reads the piece is graphed."""
OF_AN_INSTANCE = [way for way, text in WAYS.items() if "self" in text]
USES = (
    "v = v * ($r)",
    "v = v + ($r)",
    "v = v * 2 if $r else v + 1",
    "v = v * (($r) > 2)",
    "for _ in range(int($r) % 4):\n    v = v + 1",
    "v = v * len(format($r))",
    "v = v + torch.tensor(float($r))",
    "v = v + (lambda: $r)()",
    "v = v * [1, 2, 3][int($r) % 3]",
    "v = v * {0: 1.0, 1: 2.0}.get($r, 3.0)",
    "v = v + sum([$r for _ in range(2)])",
    "v = v * max($r, 1)",
    "v = v * sum(r for r in [$r] if r is not None)",
    "v = v + len([1 for r in ($r, $r) if r])",
    "match $r:\n    case 0 | 1:\n        v = v + 1\n    case int(r) if r > 3:\n        v = v * r\n"
    "    case float(r):\n        v = v - r\n    case _:\n        v = v * 3",
    "if (r := $r) and r > 1:\n    v = v * r",
    "r = $r\nv = v * float(f'{r:.3f}')",
    "def twice(r=$r):\n    return r + r\nv = v * twice()",
    "class Inner:\n    r = $r\nv = v * Inner.r + Inner().r",
    "def steps():\n    yield $r\n    yield 2 * ($r)\nfor r in steps():\n    v = v + r",
    "first, *rest = ($r, 2, 3)\nv = v * first + len(rest)",
    "v = v * functools.reduce(lambda a, b: a + b, [$r, 1])",
    "v = v * sorted([$r, 2], key=lambda r: -r)[0]",
    "assert isinstance($r, (int, float)), 'no number'\nv = v * 2",
    "v = v * eval('r + 1', {'r': $r})",
    "v = v * dict(r=$r)['r']",
    "v = v * (lambda *a, **k: a[0] + k['r'])($r, r=$r)",
    "v = v * {**{'r': $r}}['r'] + [*[$r]][0]",
    "while v.shape[0] < int($r) % 3 + 4:\n    v = torch.cat([v, v[:1]])\nv = v[:4]",
    "v = v * operator.attrgetter('r')(types.SimpleNamespace(r=$r))",
    "v = v * next(iter([$r]))",
    "try:\n    raise ValueError($r)\nexcept ValueError as e:\n    v = v * e.args[0]",
    "v = v * torch.nn.functional.pad(v, (0, int($r) % 3)).shape[0]",
    "v = v * dataclasses.make_dataclass('D', ['r'])($r).r",
    "v = v * min(map(abs, (r for r in ($r, 9))))",
    "v = v + int(str(int($r)))",
    "v = v * next((i for i, r in enumerate([5, $r]) if r == $r), 7)",
    "v = v.clamp(max=float($r) + 2)",
    "v = v * (not $r) + ($r == $r)",
    "v = v * hash($r) % 7",
    "v = v * divmod($r, 2)[1] + ($r) // 2 + ($r) ** 2",
    "try:\n    v = v * ($r)\nexcept (LookupError, AttributeError, TypeError, StopIteration):\n    v = v - 1",
)


def program(dice: random.Random, pieces: list[Piece]) -> str:
    """The text of a random program; ``wrap``, ``w`` and ``show`` are given."""
    piece, home = dice.choice(pieces), dice.choice(list(HOMES))
    made, outside = HOMES[home]
    inside = INSIDE.get(home, outside)

    def fill(text: str, path: str) -> str:
        number = str(dice.randrange(5))
        return Template(Template(text).safe_substitute(s=path, kind="Kind", a="v", n=number)).safe_substitute(
            n=number
        )

    body = [
        _used(dice, fill(dice.choice(piece.reads), inside), piece) for _ in range(dice.choice([1, 1, 2, 3]))
    ]
    if (
        piece.writes
        and home in ("instance", "dict", "list", "closure", "layer", "self")
        and dice.random() < 0.3
    ):
        body.insert(dice.randrange(len(body) + 1), fill(dice.choice(piece.writes), inside))
    binds = any(
        line.startswith((f"{outside} =", f"{outside} +=")) for each in body for line in each.split("\n")
    )
    way = dice.choice(OF_AN_INSTANCE if home in _OF_SELF else list(WAYS))
    given = {"default": ", s0=s0", "argument": ", s0"}.get(home, "")
    lines = ["global s0, Kind", "v = None"] if home == "global" else []
    lines += [fill(piece.setup, outside)] if piece.setup else []
    declared = ["nonlocal s0"] if binds and home == "closure" else []
    text = "\n".join([*declared, "v = x * 1", *body, "return v"])
    graphed = Template(WAYS[way]).substitute(
        given=given, body=indent(text, " " * 4), inner=indent(text, " " * 8)
    )
    bound = f"{outside} = {fill(piece.value, outside)}"
    lines += [graphed, bound] if home in _OF_SELF else [made, bound, graphed]
    more, watch = ", s0" if home == "argument" else "", fill(piece.watch, outside)
    call = f"show(lambda: g(torch.arange(4.0) + 1{more}), lambda: {watch})"
    at = sorted(dice.sample(range(3, CALLS), dice.randrange(1, 4)))
    for number in range(CALLS):
        if number in at:
            move = indent(fill(dice.choice(piece.moves), outside), "    ")
            lines.append(f"try:\n{move}\nexcept Exception as e:\n    note(e)")
        lines.append(call)
    return "def scene(wrap, w, show, note, g=None, x=None, y=None):\n" + indent("\n".join(lines), "    ")


def _used(dice: random.Random, read: str, piece: Piece) -> str:
    plain = piece.tensor or ":=" in read  # which stands in no comprehension
    uses = ("v = v * ($r)", "v = v + ($r)") if plain else USES
    return Template(dice.choice(uses)).safe_substitute(r=f"({read})")


class World:
    """What a program may ask of the world of a scene."""

    device = "cpu"

    def row(self, number: float) -> torch.Tensor:
        """Four numbers."""
        return torch.arange(4.0) + number


def play(text: str, wrap: Callable[[Any], Any]) -> list[Any]:
    """What one run of a program shows."""
    seen: list[Any] = []
    names: dict[str, Any] = {**SURROUNDINGS, "__name__": "scene"}
    exec(compile(text, "<scene>", "exec", dont_inherit=True), names)

    def show(call: Callable[[], Any], watch: Callable[[], Any]) -> None:
        try:
            found = call()
            seen.append(found.tolist() if isinstance(found, torch.Tensor) else repr(found))
        except Exception as error:
            seen.append(f"{type(error).__name__}: {error}")
        with suppress(Exception):
            seen.append(repr(watch()))

    seed_everything()
    names["scene"](wrap, World(), show, lambda error: seen.append(repr(error)))
    return [re.sub("0x[0-9a-f]+", "0x", str(each)) for each in seen]


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A callable under ``torch.compile``, which runs the operations as they are."""
    return torch.compile(function, backend="eager")


def compare(text: str, plain: Callable[[Any], Any] = lambda function: function) -> tuple[str, int]:
    """Play a program plainly and graphed: the first difference, or nothing, and the number of replays."""
    graphed: list[Any] = []

    def wrap(function: Any) -> Any:
        graphed.append(rote.graph(plain(function), keep=True))
        return graphed[-1]

    wanted = play(text, plain)
    if plain is compiled:
        torch.compiler.reset()
    try:
        found = play(text, wrap)
        replays = sum(each.report().replayed for each in graphed)
    finally:
        for each in graphed:
            each.reset()
    for number, (ours, theirs) in enumerate(zip(found, wanted, strict=False)):
        if ours != theirs and ours.replace("nan", "") != theirs:
            return f"item {number} is {ours[:300]}\n  and should be {theirs[:300]}", replays
    return "" if len(found) == len(wanted) else "another number of items", replays


def main(argv: list[str] | None = None) -> int:
    """Play programs; 0 if none differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.small", description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--piece", action="append", help="only these pieces of state")
    parser.add_argument("--compiled", action="store_true", help="with the callables under torch.compile")
    options = parser.parse_args(argv)
    logging.getLogger("rote").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    pieces = [piece for piece in PIECES if not options.piece or piece.name in options.piece]
    failed, replayed, started = 0, 0, time.perf_counter()
    for number in range(options.count):
        text = program(random.Random(options.seed * 1_000_003 + number), pieces)
        try:
            difference, replays = compare(text, compiled) if options.compiled else compare(text)
        except Exception as error:
            difference, replays = f"{type(error).__name__}: {error}", 0
        replayed += bool(replays)
        if difference:
            failed += 1
            print(f"--- {number}: {difference}\n{text}\n", flush=True)
    took = time.perf_counter() - started
    print(f"{options.count} programs, {failed} differ, in {replayed} something was replayed, {took:.0f} s")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
