"""One call before and after, to scale: a picture of what it is to be launch-bound.

``docs/write.py`` writes it from the newest measurement of :data:`PROGRAM` in the benchmark set.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .benchmarks import RESULTS, duration
from .readme import TITLES

DRAWING = Path(__file__).parents[1] / "diagrams" / "launches.svg"

PROGRAM = "llama-batch1"
WIDTH, HEIGHT, LEFT, SPAN = 1080, 330, 150, 900
HOST, DEVICE, GAP = "#c2571a", "#2a6f97", 90
"""Colours, and kernels that are drawn: each stands for several."""


def drawing() -> str:
    """The picture as SVG; it stands on a light ground, so that it can be read on a dark page."""
    _, entry = _newest()
    rows: dict[str, dict[str, Any]] = {row["name"]: row for row in entry["report"]["rows"]}
    eager, rote = rows["eager"], rows["rote"]
    scale = SPAN / eager["median_us"]
    where = f"{entry['report']['device_name']}, torch {entry['report']['versions']['torch']}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="sans-serif" font-size="14" role="img">',
        f"<title>{_told(eager, rote)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#fafafa"/>',
        _text(20, 30, f"{TITLES[PROGRAM]}, {where}", bold=True),
        _text(20, 66, f"eager: {duration(eager['median_us'])}, {_launches(eager)}"),
        *_lane("host", 78, [(0, eager["host_us"])], scale, HOST),
        *_lane("device", 112, _spread(eager["median_us"], rote["median_us"]), scale, DEVICE),
        _text(20, 186, f"rote: {duration(rote['median_us'])}, {_launches(rote)}, {_equal(rote)}"),
        *_lane("host", 198, [(0, rote["host_us"])], scale, HOST),
        *_lane("device", 232, [(rote["host_us"], rote["median_us"] - rote["host_us"])], scale, DEVICE),
        f'<path d="M{LEFT} 276H{LEFT + SPAN}" stroke="#999"/>',
        _text(LEFT, 296, "0"),
        _text(LEFT + SPAN, 296, duration(eager["median_us"]), anchor="end"),
        _text(20, 318, "Work of the device in eager is that of the replay, spread evenly.", small=True),
        "</svg>",
        "",
    ]
    return "\n".join(parts)


def _spread(whole: float, busy: float) -> list[tuple[float, float]]:
    """Kernels in the time of a call, one behind the other with the same gaps."""
    return [(whole * number / GAP, busy / GAP) for number in range(GAP)]


def _lane(name: str, top: int, spans: list[tuple[float, float]], scale: float, colour: str) -> list[str]:
    return [
        _text(LEFT - 12, top + 18, name, anchor="end"),
        f'<rect x="{LEFT}" y="{top}" width="{SPAN}" height="26" fill="#eee"/>',
        *[
            f'<rect x="{LEFT + start * scale:.2f}" y="{top}" width="{max(length * scale, 1):.2f}" '
            f'height="26" fill="{colour}"/>'
            for start, length in spans
        ],
    ]


def _launches(row: dict[str, Any]) -> str:
    count = int(row["launches"]["total"])
    return f"{count:,} launches" if count != 1 else "1 launch"


def _equal(row: dict[str, Any]) -> str:
    return "bitwise equal" if row["equality"] and row["equality"]["bitwise"] else "results differ"


def _told(eager: dict[str, Any], rote: dict[str, Any]) -> str:
    return (
        f"In eager the host launches {int(eager['launches']['total']):,} times and the device waits for it: "
        f"{duration(eager['median_us'])}. A replay is {_launches(rote)}: {duration(rote['median_us'])}."
    )


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", bold: bool = False, small: bool = False
) -> str:
    more = (' font-weight="bold"' if bold else "") + (' font-size="12"' if small else "")
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="#222"{more}>{text}</text>'


def caption() -> str:
    """Where the picture is from."""
    return f"To scale, from `benchmarks/results/{_newest()[0]}`."


def _newest() -> tuple[str, dict[str, Any]]:
    """The newest measurement of the program, with the name of its file.

    Raises:
        LookupError: It was not measured.
    """
    for path in sorted((RESULTS / "nvidia-h200").glob("*-set.json"), reverse=True):
        entry = json.loads(path.read_text(encoding="utf-8"))["rows"].get(PROGRAM, {"small": True})
        if "report" in entry and not entry["small"]:
            return f"{path.parent.name}/{path.name}", entry
    raise LookupError(f"no result has the program {PROGRAM}")
