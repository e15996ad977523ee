"""Policies in closed loops, each in five ways: ``python -m benchmarks.robots --world pusht --policy act``.

Every way plays the same episodes in a process of its own. Actions are compared with those of eager with the
same weights: through ``rote.graph`` all of them have to be equal to the bit, or the exit status is 1. With
``--checkpoint`` a policy that lerobot has trained takes the place of random weights.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rote.bench import machine

from .. import common
from . import pictures, policies, ways, worlds
from .shelf import Shelf
from .worker import Task

ROOT = Path(__file__).resolve().parents[2]
EXACT = "rote.graph"
Block = tuple[str, str]  # a policy, and its weights
LIBRARIES = (
    "lerobot",
    "transformers",
    "diffusers",
    "gymnasium",
    "gym-pusht",
    "gym-aloha",
    "mujoco",
    "hf-libero",
)
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


@dataclass(frozen=True)
class Result:
    """What one way gave.

    Attributes:
        told: What the process says of itself.
        actions: Of each episode, by seed.
        seconds: Of each action, by seed.
        pictures: Of the first episode.
    """

    told: dict[str, Any]
    actions: dict[int, np.ndarray[Any, Any]]
    seconds: dict[int, np.ndarray[Any, Any]]
    pictures: np.ndarray[Any, Any] | None

    def difference(self, other: Result) -> float | None:
        """The largest of an action; None where episodes are missing, infinite where lengths differ."""
        if not self.actions or self.actions.keys() != other.actions.keys():
            return None
        pairs = [(mine, other.actions[seed]) for seed, mine in self.actions.items()]
        if any(mine.shape != theirs.shape for mine, theirs in pairs):
            return float("inf")
        return max(float(np.abs(mine.astype(np.float64) - theirs).max()) for mine, theirs in pairs)

    def right(self, eager: Result) -> bool:
        """Whether everything was played, and is what it is eagerly."""
        return self.equal(eager) and not self.told["error"]

    def equal(self, other: Result) -> bool:
        """Whether all episodes are there, with the same bits."""
        same = [
            seed in other.actions and mine.tobytes() == other.actions[seed].tobytes()
            for seed, mine in self.actions.items()
        ]
        return bool(self.actions) and all(same) and self.actions.keys() == other.actions.keys()


def main(argv: list[str] | None = None) -> int:
    """Play, compare, write; 1 where ``rote.graph`` raised, or an action through it is not that of eager."""
    options = parse(argv)
    stamp = datetime.now(UTC).strftime("%Y%m%d_%H%M%S")
    out: Path = options.out / options.world
    out.mkdir(parents=True, exist_ok=True)
    file = out / f"{stamp}_results.json"
    blocks = {block: dict[str, Result]() for block in product(options.policy, options.weights)}
    with shelves(options) as folder:
        for block, way, result in in_turn(options, blocks, folder):
            found = blocks[block]
            found[way] = result
            whole(file, json.dumps(document(options, rows_of(blocks)), indent=1) + "\n")
            if len(found) == len(options.ways):
                print(table(rows_of({block: found})), flush=True)
                draw(found, out / f"{stamp}_{'_'.join(block)}")
    print(f"written to {file}")
    return int(not all(found[EXACT].right(found["eager"]) for found in blocks.values() if EXACT in found))


def whole(file: Path, text: str) -> None:
    """Write a file that other processes find as it was, or as it is."""
    half = file.with_suffix(".half")
    half.write_text(text)
    half.replace(file)


def in_turn(
    options: argparse.Namespace, blocks: Iterable[Block], folder: Path
) -> Iterator[tuple[Block, str, Result]]:
    """Play all, some processes at a time. Eager comes first in a block: it writes what others load."""
    waiting, running = [(block, "eager") for block in blocks], dict[Future[Result], tuple[Block, str]]()
    with ThreadPoolExecutor(options.jobs) as pool:
        while waiting or running:
            while waiting and len(running) < options.jobs:
                block, way = waiting.pop(0)
                running[pool.submit(played, options, *block, way, folder)] = block, way
            for ended in wait(running, return_when=FIRST_COMPLETED).done:
                block, way = running.pop(ended)
                if way == "eager":
                    waiting[:0] = [(block, other) for other in options.ways if other != "eager"]
                yield block, way, ended.result()


@contextmanager
def shelves(options: argparse.Namespace) -> Iterator[Path]:
    """The folder for episodes and files of processes: one that goes away, or that of ``--resume``.

    Raises:
        SystemExit: What lies there was not played by the same versions, with the same options.
    """
    if options.resume is None:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
        return
    options.resume.mkdir(parents=True, exist_ok=True)
    made, mine = options.resume / "made.json", json.dumps(made_with(options))
    if made.exists() and made.read_text() != mine:
        sys.exit(
            f"--resume: {options.resume} holds episodes of {made.read_text()}, not of {mine}; name another"
        )
    whole(made, mine)
    yield options.resume.resolve()


def made_with(options: argparse.Namespace) -> dict[str, Any]:
    """What episodes depend on, beside policy, weights, way and seed."""
    chosen = {name: str(getattr(options, name)) for name in ("world", "steps", "device", "checkpoint")}
    return chosen | {name: text for name, text in library_versions().items() if text}


def played(options: argparse.Namespace, policy: str, weights: str, way: str, folder: Path) -> Result:
    """Have a process play the episodes that are missing in one way; caches of compilers are its own."""
    shelf = Shelf(folder / f"{policy}-{weights}", way)
    shelf.folder.mkdir(exist_ok=True)
    seeds = tuple(range(options.seed, options.seed + options.seeds))
    died = (
        process(
            options,
            Task(
                options.world,
                policy,
                str(options.checkpoint.resolve()) if options.checkpoint else "",
                weights,
                way,
                seeds,
                options.steps,
                str(options.device),
                str(shelf.folder),
            ),
            shelf,
        )
        if shelf.missing(seeds)
        else {}
    )
    lying = {seed: shelf.episode(seed) for seed in seeds if seed not in shelf.missing(seeds)}
    arrays = {seed: each for seed, (_, each) in lying.items()}
    told = shelf.told() if lying or not died else {"graphed": []}
    return Result(
        {**told, **died, "episodes": [told for told, _ in lying.values()]},
        {seed: each["actions"] for seed, each in arrays.items()},
        {seed: each["seconds"] for seed, each in arrays.items()},
        next((each["pictures"] for each in arrays.values() if "pictures" in each), None),
    )


def process(options: argparse.Namespace, task: Task, shelf: Shelf) -> dict[str, str]:
    """Play in a process; what there is to say if it dies."""
    task.write(shelf.task)
    gl = os.environ.get("MUJOCO_GL", "egl" if options.device.type == "cuda" else "osmesa")
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    caches = {
        "TORCHINDUCTOR_CACHE_DIR": str(shelf.folder / f"{shelf.way}-inductor"),
        "MUJOCO_GL": gl,
        "PYTHONPATH": paths,
    }
    command = [sys.executable, "-m", "benchmarks.robots.worker", str(shelf.task)]
    environment = {**os.environ, **OFFLINE, **caches}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if not done.returncode:
        return {}
    last = (done.stderr.strip().splitlines() or ["no output"])[-1]
    return {"error": f"exit status {done.returncode}: {last[:300]}", "where": done.stderr[-2000:]}


def rows_of(blocks: Mapping[Block, Mapping[str, Result]]) -> list[dict[str, Any]]:
    """What has been played so far, for the file of results."""
    return [
        row(*block, way, each, found["eager"])
        for block, found in blocks.items()
        for way, each in found.items()
    ]


def row(policy: str, weights: str, way: str, found: Result, eager: Result) -> dict[str, Any]:
    """One way in the file of results."""
    episodes = found.told["episodes"]
    first = [each for each in episodes if each["first_of_process"]]
    later = [each for each in episodes if not each["first_of_process"]] or episodes
    totals = {
        "first_episode_s": first[0]["policy_s"] if first else None,
        "episode_s": float(np.median([each["policy_s"] for each in later])) if episodes else None,
        "success_rate": sum(each["success"] for each in episodes) / len(episodes) if episodes else None,
    }
    compared = {"equal": found.equal(eager), "largest_difference": found.difference(eager)}
    return {"policy": policy, "weights": weights, "way": way, **totals, **compared, **found.told}


def table(rows: list[dict[str, Any]]) -> str:
    """Rows for people: the policy's time in an episode, in the first one, the difference, what was raised."""
    lines = [f"{rows[0]['policy']}, {rows[0]['weights']}", TITLES]
    for each in rows:
        times = [
            f"{each[name]:.3f}" if each[name] is not None else "-"
            for name in ("episode_s", "first_episode_s")
        ]
        differs = "0" if each["equal"] else f"{each['largest_difference']}"
        lines.append(
            f"{each['way']:>16} {times[0]:>10} {times[1]:>10} {differs[:12]:>13}  {each['error'] or '-'}"
        )
    return "\n".join(lines)


TITLES = f"{'way':>16} {'episode s':>10} {'first s':>10} {'difference':>13}  raised"


def draw(found: dict[str, Result], stem: Path) -> None:
    """The pictures of one block, where something was played."""
    films = [each.pictures for way, each in found.items() if each.pictures is not None]
    if films:
        pictures.gif(films[-1], stem.with_name(stem.name + ".gif"))
    seconds = {
        way: np.concatenate(list(each.seconds.values())) for way, each in found.items() if each.seconds
    }
    if seconds:
        pictures.latency_plot(seconds, stem.with_name(stem.name + ".png"), stem.name.split("_", 2)[-1])


def document(options: argparse.Namespace, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The file of results: what was run, on what, and every episode of every way."""
    chosen = {
        name: getattr(options, name) for name in ("world", "policy", "weights", "seed", "seeds", "steps")
    }
    return {
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": common.device_name(options.device),
        "versions": library_versions(),
        "arguments": {**chosen, "checkpoint": str(options.checkpoint or "")},
        "rows": rows,
    }


def library_versions() -> dict[str, Any]:
    """Of what an episode goes through."""
    return common.versions() | {name: machine.version(name) for name in LIBRARIES}


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.robots", description=__doc__)
    parser.add_argument("--world", choices=list(worlds.WORLDS), default="pusht")
    parser.add_argument("--policy", nargs="+", choices=list(policies.KINDS), default=list(policies.KINDS))
    parser.add_argument(
        "--checkpoint", type=Path, help="a folder that lerobot has written, instead of --policy"
    )
    parser.add_argument("--weights", nargs="+", choices=("bf16", "float32", "w4a8"), default=["bf16", "w4a8"])
    parser.add_argument(
        "--ways", nargs="+", choices=list(ways.WAYS), help="default: all; eager is always played"
    )
    parser.add_argument("--seeds", type=int, default=10, help="episodes (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first one (default: %(default)s)")
    parser.add_argument("--steps", type=int, help="fewer steps than an episode has")
    parser.add_argument("--device", help="default: the GPU if there is one")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time (default: %(default)s)")
    parser.add_argument(
        "--resume", type=Path, help="a folder that keeps episodes: what lies there is not played"
    )
    parser.add_argument("--out", type=Path, default=Path("results"), help="default: results")
    options = parser.parse_args(argv)
    options.device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    wanted = options.ways or ways.ways_on(options.device)
    options.ways = ["eager", *(way for way in wanted if way != "eager")]
    if options.checkpoint:
        options.policy = ["checkpoint"]
    return options


if __name__ == "__main__":
    sys.exit(main())
