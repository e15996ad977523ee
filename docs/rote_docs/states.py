"""The life of a key, drawn and listed from the table in :mod:`rote.runtime.engine.states`.

``docs/write.py`` writes the drawing. Only the places of the boxes and the bends of the
arrows are chosen here; which arrows there are, and what stands beside them, comes from the table.
"""

from __future__ import annotations

import math
from pathlib import Path
from textwrap import wrap
from typing import NamedTuple

from rote.runtime.engine.states import TABLE, LifeEvent, State

DRAWING = Path(__file__).parents[1] / "diagrams" / "states.svg"

WIDTH, HEIGHT = 1080, 560
BOX = (120, 44)
LINE = 17
"""Pixels from one line of a label to the next."""

CHARACTERS = 21
"""In a line of a label, at most."""

PLACES = {
    State.OBSERVING: (150.0, 190.0),
    State.RECORDING: (540.0, 190.0),
    State.REPLAYING: (930.0, 190.0),
    State.EAGER: (540.0, 500.0),
}


class Arrow(NamedTuple):
    """How an arrow is drawn.

    Attributes:
        bend: How far its middle lies beside the straight line, in pixels; to the right of one who walks along
            it if negative.
        label: Where its text begins, from the middle of the arrow.
        anchor: How the text lies there: ``"start"``, ``"middle"`` or ``"end"``.
    """

    bend: float = 0.0
    label: tuple[float, float] = (8.0, 0.0)
    anchor: str = "start"


ARROWS = {
    (State.OBSERVING, State.RECORDING): Arrow(0, (0, -10), "middle"),
    (State.RECORDING, State.OBSERVING): Arrow(45, (0, 20), "middle"),
    (State.RECORDING, State.REPLAYING): Arrow(0, (0, -10), "middle"),
    (State.REPLAYING, State.OBSERVING): Arrow(-110, (0, -26), "middle"),
    (State.OBSERVING, State.EAGER): Arrow(0, (-16, 8), "end"),
    (State.RECORDING, State.EAGER): Arrow(0, (10, -60), "start"),
    (State.REPLAYING, State.EAGER): Arrow(0, (16, 8), "start"),
}


def arrows() -> dict[tuple[State, State], list[LifeEvent]]:
    """The events that lead from one state to another, in the order of the table."""
    found: dict[tuple[State, State], list[LifeEvent]] = {}
    for source, row in TABLE.items():
        for event, target in row.items():
            found.setdefault((source, target), []).append(event)
    return found


def drawing() -> str:
    """The state diagram as SVG; it stands on a light ground, so that it can be read on a dark page."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#fafafa"/>',
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0L10 5L0 10z" fill="#555"/></marker></defs>',
    ]
    for (source, target), events in arrows().items():
        draw = _loop if source is target else _curve
        parts += draw(source, target, [line for event in events for line in wrap(event.value, CHARACTERS)])
    parts += [_box(state) for state in TABLE]
    return "\n".join([*parts, "</svg>", ""])


def _box(state: State) -> str:
    (x, y), (width, height) = PLACES[state], BOX
    return (
        f'<rect x="{x - width / 2:g}" y="{y - height / 2:g}" width="{width}" height="{height}" rx="6" '
        f'fill="#fff" stroke="#333"/>\n<text x="{x:g}" y="{y + 5:g}" text-anchor="middle" fill="#111" '
        f'font-weight="bold">{state.value}</text>'
    )


def _curve(source: State, target: State, events: list[str]) -> list[str]:
    arrow = ARROWS.get((source, target), Arrow())
    (x0, y0), (x1, y1) = PLACES[source], PLACES[target]
    length = math.hypot(x1 - x0, y1 - y0)
    left = ((y1 - y0) / length, -(x1 - x0) / length)
    middle = ((x0 + x1) / 2 + arrow.bend * left[0], (y0 + y1) / 2 + arrow.bend * left[1])
    bend = (2 * middle[0] - (x0 + x1) / 2, 2 * middle[1] - (y0 + y1) / 2)
    start, end = _edge(PLACES[source], bend), _edge(PLACES[target], bend)
    path = f"M{start[0]:.0f} {start[1]:.0f}Q{bend[0]:.0f} {bend[1]:.0f} {end[0]:.0f} {end[1]:.0f}"
    at = (0.25 * start[0] + 0.5 * bend[0] + 0.25 * end[0], 0.25 * start[1] + 0.5 * bend[1] + 0.25 * end[1])
    return [_path(path), _text(at[0] + arrow.label[0], at[1] + arrow.label[1], events, arrow.anchor)]


def _loop(state: State, _: State, events: list[str]) -> list[str]:
    """An arrow from the top of a box back to it, on the side that looks outwards."""
    (x, y), half = PLACES[state], BOX[1] / 2
    top, x = y - half, x + math.copysign(BOX[0] / 4, x - WIDTH / 2)
    bend = f"{x - 40:.0f} {top - 52:.0f} {x + 40:.0f} {top - 52:.0f}"
    path = f"M{x - 22:.0f} {top:.0f}C{bend} {x + 22:.0f} {top:.0f}"
    return [_path(path), _text(x, top - 46 - LINE * (len(events) - 1), events, "middle")]


def _edge(box: tuple[float, float], towards: tuple[float, float]) -> tuple[float, float]:
    """Where the line from the middle of a box to a point leaves the box."""
    dx, dy = towards[0] - box[0], towards[1] - box[1]
    scale = min(BOX[0] / 2 / abs(dx) if dx else math.inf, BOX[1] / 2 / abs(dy) if dy else math.inf)
    return box[0] + dx * scale, box[1] + dy * scale


def _path(path: str) -> str:
    return f'<path d="{path}" fill="none" stroke="#555" marker-end="url(#tip)"/>'


def _text(x: float, y: float, lines: list[str], anchor: str) -> str:
    spans = "".join(
        f'<tspan x="{x:.0f}" dy="{LINE if number else 0}">{line}</tspan>' for number, line in enumerate(lines)
    )
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="#333">{spans}</text>'


def table() -> str:
    """All transitions as a Markdown table: a row for each event, a column for each state."""
    heads = " | ".join(state.value for state in TABLE)
    rows = [f"| what happens | {heads} |", f"| --- {'| --- ' * len(TABLE)}|"]
    for event in LifeEvent:
        cells = [row[event].value if event in row else "" for row in TABLE.values()]
        rows.append(f"| {event.value} | {' | '.join(cells)} |")
    return "\n".join(rows)
