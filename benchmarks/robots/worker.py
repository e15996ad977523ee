"""One policy in one world in one way, in a process of its own: nothing is warm that no user has warm.

``python -m benchmarks.robots.worker FILE`` reads a :class:`Task` from FILE, and puts on the shelf beside it
what came of it. An episode that lies there is not played again.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from rote.integrations.lerobot import graphed
from rote.integrations.torch_compile import backend

from ..common import describe, first_line
from . import policies, ways, worlds
from .episodes import play
from .shelf import Shelf


@dataclass(frozen=True)
class Task:
    """What a process has to do.

    Attributes:
        world: A key of :data:`worlds.WORLDS`.
        policy: A key of :data:`policies.KINDS`, for random weights.
        checkpoint: A folder that lerobot has written; empty for random weights.
        weights: ``bf16``, ``float32`` or ``w4a8``.
        way: A key of :data:`ways.WAYS`.
        seeds: Of the episodes, which are played in this order.
        steps: Fewer of them in an episode than the world has.
        device: Where the policy runs.
        folder: For quantized weights, and the description of a language model.
    """

    world: str
    policy: str
    checkpoint: str
    weights: str
    way: str
    seeds: tuple[int, ...]
    steps: int | None
    device: str
    folder: str

    def write(self, file: Path) -> None:
        """Write it for a process to read."""
        file.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, file: Path) -> Task:
        """What :meth:`write` has written."""
        given = json.loads(file.read_text())
        return cls(**given | {"seeds": tuple(given["seeds"])})


def brain_of(task: Task) -> policies.Brain:
    """The policy, with random weights or from its checkpoint."""
    device = torch.device(task.device)
    if task.checkpoint:
        return policies.loaded_brain(Path(task.checkpoint), device)
    return policies.random_brain(
        task.policy, policies.BODIES[task.world], device, Path(task.folder) / "language-model"
    )


def run(task: Task, shelf: Shelf) -> None:
    """Play the episodes that are missing. What is raised ends them, and is part of what is told."""
    device, world = torch.device(task.device), worlds.WORLDS[task.world]()
    brain = brain_of(task)
    if task.weights == "w4a8":
        file = Path(task.folder) / f"{brain.policy.name}-w4a8.safetensors"
        if not file.exists():
            ways.quantize(brain_of(task), world, device, file)
        brain = ways.quantized(brain, file)
    ways.WAYS[task.way](brain.policy)
    told, first = {"task": world.task, "error": "", "where": ""}, True
    try:
        for seed in shelf.missing(task.seeds):
            filmed, bf16 = seed == task.seeds[0], task.weights == "bf16"
            episode = play(brain, world, seed, device, bf16=bf16, steps=task.steps, filmed=filmed)
            shelf.tell(told | {"graphed": recorded(task.way, brain)})
            shelf.put(episode, episode.row(world.task) | {"first_of_process": first})
            first = False
    except Exception as error:
        told |= {"error": first_line(error), "where": "".join(traceback.format_exception(error)[-3:])}
    shelf.tell(told | {"graphed": recorded(task.way, brain)})
    world.close()


def recorded(way: str, brain: policies.Brain) -> list[dict[str, Any]]:
    """What rote has recorded in this process, and why not."""
    if way == "rote.graph":
        return [describe(each) for each in graphed(brain.policy) if each.report().calls]
    return [describe(each) for each in backend.graphed()] if way == "backend=rote" else []


def main() -> int:
    """Read the task, write what came of it."""
    file = Path(sys.argv[1])
    task = Task.read(file)
    warnings.simplefilter("ignore")
    if task.device == "cpu":
        torch.set_num_threads(1)
    run(task, Shelf(file.parent, task.way))
    sys.stdout.flush()
    os._exit(0)  # threads of a renderer raise where the interpreter ends before them


if __name__ == "__main__":
    main()
