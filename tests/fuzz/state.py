"""Random scenes about Python state: pieces of it are read and written inside, and change outside.

A scene is one of :mod:`.scene` with one or two :class:`~tests.fuzz.pieces.Piece` more. Where a piece lives is
drawn too: in a closure, a global, an attribute of the module, an argument, a namespace or a dict.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from string import Template
from textwrap import indent
from typing import Any

import hypothesis.strategies as st

from .moves import CALLS, moves
from .pieces import PIECES, Piece
from .scene import GRAPHED, KINDS, OPTIONS, SECOND, SMALL, Scene, attributes, lines, prepare, write_forward
from .statements import STATEMENTS

_TEXT = """\
def twice(v):
    return v * 2

def scene(w):
    global LEVEL{globals}
    LEVEL = 2.0
{made}
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
{init}
        def forward(self, x, y, flag=0, cfg=None):
{forward}
    m = w.make(Model)
    w.watch(lambda: {{{watched}}})
{setting}
    g, h = w.wrap({graphed}), w.wrap({second})
    k = w.wrap(lambda p: (m(p["x"], *p["y"]), p["x"]))
    x, y, base = w.tensor(0), w.tensor(1), w.tensor(2, 9)
    out, saved = None, w.saved(m)
{moves}

check(scene, device={device!r}{options})
"""

HOMES = ["closure", "closure", "global", "attribute", "attribute", "argument", "namespace", "item"]
NUMBERS = [
    "$v = $a * ($r)",
    "$v = $a * ($r)",
    "$v = $a + ($r)",
    "if $r:\n    $v = $a + 1\nelse:\n    $v = $b * 2",
    "$v = $a + 1 if ($r) == $n else $b * 2",
    "$v = $a\nfor _ in range(int($r) % 4):\n    $v = $v * 0.5 + 1",
    "$v = $a * len(format($r))",
    "$v = $a * sum($r for _ in range(2))",
    "$v = $a * (lambda: $r)()",
    "$v = $a[: 1 + int($r) % 3].sum(0) + $b",
    "$v = $a + torch.full((4,), float($r), device=$a.device)",
    "$v = $a * {0: 1.0, 1: 2.0}.get($r, 3.0)",
    "$v = $a * max($r, 1) + (not $r)",
    "def inner(v):\n    return v * ($r)\n$v = inner($a)",
    "try:\n    $v = $a * ($r)\n"
    "except (LookupError, StopIteration, AttributeError, TypeError):\n    $v = $a - 1",
]
"""How a number is used."""
TENSORS = ["$v = $a * ($r)", "$v = $a + ($r)", "$v = torch.where($a > 0, $a, $r)", "$v = (lambda: $r)() + $b"]
"""How a tensor of four numbers is used."""
CALL = "out = w.call(g, x, y)"
STEADY = "for n in range(4):\n    out = w.call(g, w.tensor(n % 2), y)"


@dataclass(frozen=True)
class Placed:
    """A piece of state and where it lives.

    Attributes:
        piece: What it is.
        home: One of :data:`HOMES`.
        number: Tells two pieces of one scene apart.
    """

    piece: Piece
    home: str
    number: int

    @property
    def outside(self) -> str:
        """How the caller writes it."""
        number = self.number
        paths = {"attribute": f"m._s{number}", "namespace": f"S{number}.s", "item": f"D{number}['s']"}
        return paths.get(self.home, f"s{number}")

    @property
    def inside(self) -> str:
        """How the callable writes it."""
        return {"attribute": f"self._s{self.number}", "argument": "cfg"}.get(self.home, self.outside)

    def fill(self, text: str, path: str, **values: object) -> str:
        """A text of the piece, less what is not its own."""
        return Template(text).safe_substitute(s=path, kind=f"K{self.number}", **values)

    def made(self) -> list[str]:
        """The lines before the module."""
        found = [self.fill(self.piece.setup, self.outside)] if self.piece.setup else []
        value = self.fill(self.piece.value, self.outside)
        owner = {"namespace": f"S{self.number} = types.SimpleNamespace()", "item": f"D{self.number} = {{}}"}
        found += [owner[self.home]] if self.home in owner else []
        return found + ([f"{self.outside} = {value}"] if self.home != "attribute" else [])

    def init(self) -> list[str]:
        """The lines of the module's ``__init__``."""
        value = self.fill(self.piece.value, self.inside)
        return [f"{self.inside} = {value}"] if self.home == "attribute" else []

    def declared(self, forward: list[str]) -> list[str]:
        """The declaration that a callable needs that binds the name."""
        binds = re.search(rf"^\s*{self.outside} [-+*]?= ", "\n".join(forward), re.MULTILINE)
        if not binds or self.home not in ("closure", "global"):
            return []
        return [f"{'nonlocal' if self.home == 'closure' else 'global'} {self.outside}"]


@dataclass(frozen=True, repr=False)
class StateScene(Scene):
    """A random program about state.

    Attributes:
        pieces: The state, and where it lives.
    """

    pieces: list[Placed] = field(default_factory=list)

    def __repr__(self) -> str:
        made = [text for placed in self.pieces for text in placed.made()]
        init = self.init() + [text for placed in self.pieces for text in placed.init()]
        declared = [text for placed in self.pieces for text in placed.declared(self.forward)]
        watched = [
            f'"s{placed.number}": {placed.fill(placed.piece.watch, placed.outside)}' for placed in self.pieces
        ]
        return _TEXT.format(
            globals="".join(f", {placed.outside}" for placed in self.pieces if placed.home == "global"),
            made=lines(made, 4),
            init=lines(init, 12),
            forward=lines([*declared, *self.forward], 12),
            watched=", ".join(watched),
            setting=lines(self.setting, 4),
            moves=lines(self._with_arguments(), 4),
            graphed=self.graphed,
            second=self.second,
            device=self.device,
            options=self.listed_options(),
        )

    def _with_arguments(self) -> list[str]:
        """The moves, where calls are given the piece that is an argument."""
        for placed in self.pieces:
            if placed.home == "argument":
                given = rf"\1functools.partial(g, cfg={placed.outside}), "
                return [
                    re.sub(r"(w\.(?:call|in_thread)\(|w\.train\(m, )g, ", given, move) for move in self.moves
                ]
        return self.moves


@st.composite
def state_scenes(
    draw: Any, device: str = "cpu", kinds: list[str] = KINDS, pieces: list[Piece] = PIECES
) -> StateScene:
    """Draw a scene about state.

    Args:
        draw: Given by hypothesis.
        device: ``"cpu"`` or ``"cuda"``.
        kinds: As for :func:`~tests.fuzz.scene.scenes`.
        pieces: What state there may be.
    """
    kind = draw(st.sampled_from(kinds))
    placed = _place(draw, pieces)
    statements = _statements(draw, placed)
    forward = write_forward(draw, kind, [text for text, _ in statements])
    if kind != "step":
        read = ", ".join(f"v{number}" for number, (_, shown) in enumerate(statements) if shown)
        forward[-1] += f", [{read}]"  # so that what was read is seen
    names = attributes(forward)
    setting = prepare(draw, kind, names)
    others = [text for text in moves(names, kind) if not _takes_no_argument(text, placed)]
    done = [STEADY]
    for _ in range(draw(st.integers(3, 10))):
        what = draw(st.sampled_from(["state"] * 6 + ["call"] * 3 + ["other"] * 2))
        if what == "state":
            done.append(_change(draw, draw(st.sampled_from(placed))))
        else:
            texts = [move.text for move in CALLS[:3]] if what == "call" else others
            done.append(Template(draw(st.sampled_from(texts))).substitute(n=draw(SMALL)))
    graphed, second = draw(st.sampled_from(GRAPHED)), draw(st.sampled_from(SECOND))
    return StateScene(forward, setting, done, graphed, second, draw(st.sampled_from(OPTIONS)), device, placed)


def _place(draw: Any, pieces: list[Piece]) -> list[Placed]:
    """One piece, now and then two; only one of them is an argument."""
    found: list[Placed] = []
    for number in range(draw(st.sampled_from([1, 1, 2]))):
        homes = [
            home for home in HOMES if home not in {each.home for each in found if each.home == "argument"}
        ]
        found.append(Placed(draw(st.sampled_from(pieces)), draw(st.sampled_from(homes)), number))
    return found


def _statements(draw: Any, placed: list[Placed]) -> list[tuple[str, bool]]:
    """Reads of the state, some writes, and some other statements; and which of them are reads.

    ``$a``, ``$b`` and ``$v`` are left.
    """
    found = [(_read(draw, placed[0]), True)]
    for _ in range(draw(st.integers(0, 4))):
        what = draw(st.sampled_from(["read"] * 4 + ["other"] * 3 + ["write"] * 2))
        each = draw(st.sampled_from(placed))
        if what == "write" and each.piece.writes:
            text = draw(st.sampled_from(each.piece.writes))
            found.append((each.fill(text, each.inside, n=draw(SMALL)), False))
        elif what == "other":
            found.append((draw(st.sampled_from(STATEMENTS)), False))
        else:
            found.append((_read(draw, each), True))
    return found


def _read(draw: Any, placed: Placed) -> str:
    text = placed.fill(draw(st.sampled_from(placed.piece.reads)), placed.inside, n=draw(SMALL))
    return Template(draw(st.sampled_from(TENSORS if placed.piece.tensor else NUMBERS))).safe_substitute(
        r=text
    )


def _change(draw: Any, placed: Placed) -> str:
    """A change, alone, with calls behind it, or again and again between calls."""
    text = placed.fill(draw(st.sampled_from(placed.piece.moves)), placed.outside)
    form, number = draw(st.integers(0, 3)), draw(SMALL)
    if form == 3 and "$n." not in text:
        changed = indent(Template(text).safe_substitute(n="(n % 3)"), "    ")
        return f"for n in range(5):\n{changed}\n    {CALL}"
    changed = Template(text).safe_substitute(n=number)
    return "\n".join([changed, *([], [CALL], [STEADY], [STEADY])[form]])


def _takes_no_argument(text: str, placed: list[Placed]) -> bool:
    """Whether a move calls without the argument that the callable needs."""
    return any(each.home == "argument" for each in placed) and bool(re.search(r"call\(k,|wrap\(m\)", text))
