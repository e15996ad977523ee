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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rote.bench import machine

from .. import common
from . import pictures, policies, ways, worlds
from .worker import Task

ROOT = Path(__file__).resolve().parents[2]
EXACT = "rote.graph"
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
    rows, failed = list[dict[str, Any]](), False
    for policy in options.policy:
        for weights in options.weights:
            with scratch(options) as folder:
                found = {way: played(options, policy, weights, way, folder) for way in options.ways}
            rows += (
                block := [row(policy, weights, way, each, found["eager"]) for way, each in found.items()]
            )
            print(table(block), flush=True)
            draw(found, out / f"{stamp}_{policy}_{weights}")
            failed |= EXACT in found and not found[EXACT].right(found["eager"])
    file = out / f"{stamp}_results.json"
    file.write_text(json.dumps(document(options, rows), indent=1) + "\n")
    print(f"written to {file}")
    return int(failed)


@contextmanager
def scratch(options: argparse.Namespace) -> Iterator[Path]:
    """A folder for the files of processes."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def played(options: argparse.Namespace, policy: str, weights: str, way: str, folder: Path) -> Result:
    """Have a process play all episodes in one way; caches of compilers are its own."""
    file = folder / f"{way}.json"
    checkpoint = str(options.checkpoint.resolve()) if options.checkpoint else ""
    seeds = tuple(range(options.seed, options.seed + options.seeds))
    Task(
        options.world,
        policy,
        checkpoint,
        weights,
        way,
        seeds,
        options.steps,
        str(options.device),
        str(folder),
    ).write(file)
    gl = os.environ.get("MUJOCO_GL", "egl" if options.device.type == "cuda" else "osmesa")
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    caches = {
        "TORCHINDUCTOR_CACHE_DIR": str(folder / f"{way}-inductor"),
        "MUJOCO_GL": gl,
        "PYTHONPATH": paths,
    }
    command = [sys.executable, "-m", "benchmarks.robots.worker", str(file)]
    environment = {**os.environ, **OFFLINE, **caches}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode or not file.with_suffix(".out").exists():
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        died = {"error": f"exit status {done.returncode}: {last[:300]}", "where": done.stderr[-2000:]}
        return Result({**died, "episodes": [], "graphed": []}, {}, {}, None)
    kept = np.load(file.with_suffix(".npz"))
    by_seed = {
        kind: {seed: kept[f"{kind}_{seed}"] for seed in seeds if f"{kind}_{seed}" in kept}
        for kind in ("actions", "seconds")
    }
    film = kept.get("pictures")
    return Result(
        json.loads(file.with_suffix(".out").read_text()), by_seed["actions"], by_seed["seconds"], film
    )


def row(policy: str, weights: str, way: str, found: Result, eager: Result) -> dict[str, Any]:
    """One way in the file of results."""
    episodes = found.told["episodes"]
    later = episodes[1:] or episodes
    totals = {
        "first_episode_s": episodes[0]["policy_s"] if episodes else None,
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
    versions = common.versions() | {name: machine.version(name) for name in LIBRARIES}
    return {
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": common.device_name(options.device),
        "versions": versions,
        "arguments": {**chosen, "checkpoint": str(options.checkpoint or "")},
        "rows": rows,
    }


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
