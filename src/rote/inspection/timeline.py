"""One picture of a profile: when host and device work in one call, and which lines the time goes to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base import picture

if TYPE_CHECKING:  # it draws itself with this file
    from .profile_result import Cost, Profile

MOST_LINES = 8
"""Lines shown in the picture."""

_COLOURS = {"host": "tab:orange", "device": "tab:blue"}


def draw(profile: Profile, path: str | Path) -> None:
    """Draw a profile as a PNG.

    Args:
        profile: What to draw.
        path: Of the picture.

    Raises:
        EnvironmentError_: matplotlib is not installed.
    """
    figure = picture.figure(6)
    above, below = figure.subplots(2, 1, height_ratios=(1, 2))
    _draw_call(above, profile)
    _draw_lines(below, profile.by_line[:MOST_LINES], profile.backend == "host")
    figure.suptitle(f"{profile.name} on {profile.device}\n{profile.verdict}", fontsize=9)
    figure.savefig(str(path), dpi=110)


def _draw_call(axis: Any, profile: Profile) -> None:
    rows = [row for row, spans in profile.spans.items() if spans]
    for height, row in enumerate(reversed(rows)):
        spans = [(start / 1e3, length / 1e3) for start, length in profile.spans[row]]
        axis.broken_barh(spans, (height - 0.35, 0.7), facecolor=_COLOURS[row], linewidth=0)
    axis.set_yticks(range(len(rows)), labels=list(reversed(rows)))
    axis.set_xlim(left=0)
    axis.set_xlabel("ms, one call under the profiler", fontsize=8)
    axis.tick_params(labelsize=8)


def _draw_lines(axis: Any, costs: tuple[Cost, ...], on_host: bool) -> None:
    places = range(len(costs))
    names = [f"{cost.name}\n{cost.line(50)}" for cost in costs]
    axis.barh([at - 0.2 for at in places], [cost.host_us / 1e3 for cost in costs], 0.4, color="tab:orange")
    axis.barh([at + 0.2 for at in places], [cost.busy_us / 1e3 for cost in costs], 0.4, color="tab:blue")
    axis.legend(["host", "inside the operations" if on_host else "device"], fontsize=7, loc="lower right")
    axis.set_yticks(list(places), labels=names, parse_math=False)  # a source line may hold dollar signs
    axis.set_xlabel("ms per call", fontsize=8)
    axis.tick_params(labelsize=7)
    axis.invert_yaxis()
