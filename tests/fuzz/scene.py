"""Random scenes: a module and what a caller does with it, as the text of a program.

The text is what runs, and what a failure shows: with the line ``from tests.fuzz.play import *`` above it, it
can be pasted into a file and run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from string import Template
from textwrap import indent
from typing import Any

import hypothesis.strategies as st

from .moves import moves
from .statements import ATTRIBUTES, BUFFERS, OPTIMIZERS, RESULTS, STATEMENTS, STEP

_TEXT = """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
{init}
    def forward(self, x, y, flag=0):
{forward}

def twice(v):
    return v * 2

def scene(w):
    global LEVEL
    LEVEL = 2.0
    m = w.make(Model)
{setting}
    g, h = w.wrap({graphed}), w.wrap({second})
    k = w.wrap(lambda p: (m(p["x"], *p["y"]), p["x"]))
    x, y, base = w.tensor(0), w.tensor(1), w.tensor(2, 9)
    out, saved = None, w.saved(m)
{moves}

check(scene, device={device!r}{options})
"""


@dataclass(frozen=True, repr=False)
class Scene:
    """One random program.

    Attributes:
        forward: Statements of the module's ``forward``.
        setting: Lines that prepare the module.
        moves: What the caller does.
        graphed: What is graphed.
        second: A second callable.
        options: Options of ``rote.graph``.
        device: ``"cpu"`` or ``"cuda"``.
    """

    forward: list[str]
    setting: list[str]
    moves: list[str]
    graphed: str = "m"
    second: str = "twice"
    options: dict[str, Any] = field(default_factory=dict)
    device: str = "cpu"

    def __repr__(self) -> str:
        return _TEXT.format(
            init=lines(self.init(), 8),
            forward=lines(self.forward, 8),
            setting=lines(self.setting, 4),
            moves=lines(self.moves, 4),
            graphed=self.graphed,
            second=self.second,
            device=self.device,
            options=self.listed_options(),
        )

    def init(self) -> list[str]:
        """The lines that make the attributes that statements mention."""
        names = attributes(self.forward)
        made = [f"self.{name} = {value}" for name, value in ATTRIBUTES.items() if name in names]
        return made + [
            f'self.register_buffer("{name}", {value})' for name, value in BUFFERS.items() if name in names
        ]

    def listed_options(self) -> str:
        """The options, as they follow other arguments."""
        return "".join(f", {name}={value!r}" for name, value in self.options.items())


def attributes(forward: list[str]) -> frozenset[str]:
    """The attributes that statements mention."""
    return frozenset(re.findall(r"self\.(\w+)", "\n".join(forward)))


def lines(texts: list[str], depth: int) -> str:
    """Lines at a depth."""
    return indent("\n".join(texts), " " * depth)


SMALL = st.integers(0, 5)
KINDS = ["frozen", "frozen", "no_grad", "inference", "step", "step", "outside", "outside"]
GRAPHED = ["m", "m", "m.forward", "lambda *args, **kwargs: m(*args, **kwargs)"]
SECOND = ["lambda v: (v * 2 + LEVEL).tanh()", "lambda v: v.add_(1)", "lambda v: (v * m.training, v[1:])"]
OPTIONS = [
    {}, {}, {}, {}, {}, {"warmup": 2}, {"max_recordings": 1}, {"max_paths": 2}, {"max_keys": 1},
    {"verify": 2},
]  # fmt: skip


@st.composite
def scenes(draw: Any, device: str = "cpu", kinds: list[str] = KINDS) -> Scene:
    """Draw a scene.

    Args:
        draw: Given by hypothesis.
        device: ``"cpu"`` or ``"cuda"``.
        kinds: Which kinds of scene: parameters that need no gradient (``frozen``), calls under ``no_grad`` or
            ``inference`` mode, a whole training ``step`` inside, or gradients taken ``outside``.
    """
    kind = draw(st.sampled_from(kinds))
    forward = write_forward(draw, kind, draw(st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=6)))
    names = attributes(forward)
    setting = prepare(draw, kind, names)
    drawn = draw(st.lists(st.tuples(st.sampled_from(moves(names, kind)), SMALL), min_size=3, max_size=14))
    done = [Template(text).substitute(n=number) for text, number in drawn]
    graphed, second = draw(st.sampled_from(GRAPHED)), draw(st.sampled_from(SECOND))
    return Scene(forward, setting, done, graphed, second, draw(st.sampled_from(OPTIONS)), device)


def prepare(draw: Any, kind: str, names: frozenset[str]) -> list[str]:
    """The lines that prepare the module for a kind of scene."""
    setting = {
        "frozen": ["m.requires_grad_(False)"],
        "no_grad": ["w.mode = torch.no_grad"],
        "inference": ["w.mode = torch.inference_mode"],
    }.get(kind, [])
    if kind == "step":
        setting.append(f"m.opt = {draw(st.sampled_from(OPTIMIZERS))}")
    if kind == "outside":
        trained = names & {"lin", "norm", "w"}
        setting.append(f"m.opt = {OPTIMIZERS[0] if trained else 'torch.optim.SGD([w.leaf(0)])'}")
    if draw(st.integers(0, 4)) == 0:
        setting.append("m.eval()")
    return setting


def write_forward(draw: Any, kind: str, texts: list[str]) -> list[str]:
    """The statements, each over values made before it, and the result."""
    values, written = ["x", "y"], []

    def fill(text: str, number: int = 0, **names: str) -> str:
        first, second = draw(SMALL), draw(SMALL)
        chosen = {"a": values[-1 - first % len(values)], "b": values[-1 - second % len(values)]}
        return Template(text).substitute(chosen, n=number, **names)

    for text in texts:
        name = f"v{len(written)}"
        written.append(fill(text, draw(SMALL), v=name))
        values += [name] if "$v" in text else []
    if kind == "step":
        clip = draw(st.sampled_from(["", "", "\nnn.utils.clip_grad_norm_(self.parameters(), 1.0)"]))
        written.append(fill(STEP, clip=clip, bool=str(draw(st.booleans()))))
    else:
        written.append(fill(draw(st.sampled_from(RESULTS))))
    return "\n".join(written).split("\n")
