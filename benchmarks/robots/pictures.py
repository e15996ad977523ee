"""A GIF of an episode, and a plot of what its actions took."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

WIDTH = 240
MILLISECONDS = 60


def gif(pictures: np.ndarray[Any, np.dtype[np.uint8]], file: Path) -> None:
    """Write pictures ``[number, H, W, 3]`` as an animation."""
    from PIL import Image

    images = [Image.fromarray(each) for each in pictures]
    scale = WIDTH / images[0].width
    small = [each.resize((WIDTH, round(each.height * scale))) for each in images]
    small[0].save(file, save_all=True, append_images=small[1:], duration=MILLISECONDS, loop=0, optimize=True)


def latency_plot(seconds: dict[str, np.ndarray[Any, np.dtype[np.float64]]], file: Path, title: str) -> None:
    """Write what each ``select_action`` took, by way: along the episodes, and sorted."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    along, ordered = figure.subplots(1, 2, sharey=True)
    for way, values in seconds.items():
        milliseconds = values * 1e3
        along.plot(milliseconds, linewidth=0.7, label=way)
        ordered.plot(np.linspace(0, 100, len(milliseconds)), np.sort(milliseconds), linewidth=1.2, label=way)
    along.set(yscale="log", xlabel="step", ylabel="select_action, ms", title=title)
    ordered.set(xlabel="percentile", title="sorted")
    ordered.legend(fontsize="small")
    figure.savefig(file, dpi=110)
