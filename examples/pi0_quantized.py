"""The robot policy of pi0_policy.py with 4-bit weights and 8-bit activations, in the same closed loop.

    python examples/pi0_quantized.py --views 2 --steps 20

DuQuant quantizes all linear layers of the language model and those in the MLPs of the action expert, after it
has watched a few ordinary policy calls. Then two things are checked. The action chunk of the quantized policy
is compared with the dense one's, for the same observations and the same noise: that is what quantization
costs, and with random weights it says nothing about how well a trained policy would act. And the episode of
pi0_policy.py is run with the quantized policy, plainly and through rote, where every chunk has to be equal to
the last bit: replaying costs nothing. The exit status is 1 if one differs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from pi0_policy import (
    Episode,
    Tabletop,
    build_policy,
    environment,
    line,
    noise_sequence,
    run_episode,
    summary,
    synchronized,
)
from torch import Tensor
from transformers import PI0ForConditionalGeneration

import rote
from rote.quant import DuQuantConfig, QuantReport, calibrate, quantize_

LAYERS = ("model.vlm.language_model.layers.*", "model.dit.layers.*.mlp.*")
BATCHES = 4
COMPARED = 8
CALIBRATION_SEED, COMPARISON_SEED = 100, 200  # other worlds than those of the episodes


def configuration(options: argparse.Namespace) -> DuQuantConfig:
    """DuQuant, or the variant that public forks of openpi use; small layers want small blocks."""
    chosen: dict[str, Any] = {"calib_batches": BATCHES}
    if options.path:
        chosen["path"] = options.path
    if options.variant == "vla":
        return DuQuantConfig.vla(**chosen)
    return DuQuantConfig(block_size=128 if options.size == "full" else 32, rotation_steps=64, **chosen)


def quantized(policy: PI0ForConditionalGeneration, config: DuQuantConfig, views: int) -> QuantReport:
    """Quantize the policy in place."""
    world = Tabletop(policy, views, CALIBRATION_SEED)
    noises = noise_sequence(policy, BATCHES, CALIBRATION_SEED)
    with calibrate(policy, config, include=LAYERS, manual=True) as stats:
        for noise in noises:  # sample_actions is not the module's own call: so batches are counted here
            world.advance(policy.sample_actions(**world.observe(), noise=noise))
            stats.end_batch()
    return quantize_(policy, config, stats, include=LAYERS)


def chunks_of(policy: PI0ForConditionalGeneration, views: int) -> list[Tensor]:
    """The answers to some observations, which do not depend on the answers."""
    world, found = Tabletop(policy, views, COMPARISON_SEED), []
    for noise in noise_sequence(policy, COMPARED, COMPARISON_SEED):
        found.append(policy.sample_actions(**world.observe(), noise=noise))
        world.advance(noise)
    return found


def differences(found: list[Tensor], exact: list[Tensor]) -> list[float]:
    """Of each chunk, relative: the norm of the difference over the norm of what is right."""
    pairs = zip(found, exact, strict=True)
    return [((a.double() - b.double()).norm() / b.double().norm()).item() for a, b in pairs]


def gib(device: torch.device) -> float | None:
    """Memory that tensors take on a GPU."""
    return torch.cuda.memory_allocated(device) / 2**30 if device.type == "cuda" else None


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="A quantized PI0 policy in a closed loop.")
    parser.add_argument("--views", type=int, default=2, help="cameras (default: %(default)s)")
    parser.add_argument(
        "--steps", type=int, default=20, help="policy calls per episode (default: %(default)s)"
    )
    parser.add_argument("--episodes", type=int, default=2, help="episodes each way (default: %(default)s)")
    parser.add_argument("--variant", choices=("duquant", "vla"), default="duquant", help="what is quantized")
    parser.add_argument("--path", choices=("reference", "fused", "kernel"), help="how layers are calculated")
    parser.add_argument(
        "--size", choices=("auto", "full", "small"), default="auto", help="auto: full on a GPU"
    )
    parser.add_argument("--device", help="torch device (default: the GPU if there is one)")
    parser.add_argument("--out", type=Path, help="result file (default: examples/results/<name>.json)")
    options = parser.parse_args(argv)
    options.device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if options.size == "auto":
        options.size = "full" if options.device.type == "cuda" else "small"
    name = f"pi0-{options.variant}-{options.size}-{options.views}views-{options.device.type}.json"
    options.out = options.out or Path(__file__).parent / "results" / name
    return options


def episodes_of(
    policy: PI0ForConditionalGeneration, act: Callable[..., Tensor], options: argparse.Namespace
) -> dict[str, list[Episode]]:
    """The same episodes, plainly and through rote."""
    episodes: dict[str, list[Episode]] = {"eager": [], "rote": []}
    for seed in range(options.episodes):
        noises = noise_sequence(policy, options.steps, seed)
        for name, way in (("eager", policy.sample_actions), ("rote", act)):
            episodes[name].append(run_episode(way, Tabletop(policy, options.views, seed), noises))
    return episodes


def show(result: dict[str, Any]) -> None:
    """Print what was found."""
    off, (before, after) = result["differences"], result["gib"]
    print(f"PI0, {result['size']}, {result['views']} views, {result['dtype']}".replace("torch.", ""), end=" ")
    print(f"on {result['device']}")
    bits = f"W{result['config']['weight_bits']}A{result['config']['act_bits']}"
    print(f"{result['quantized']} of {len(result['layers'])} linear layers in {bits},", end=" ")
    print(f"{result['ratio']:.3f} of their bytes, in {result['quantization_s']:.1f} s", end="")
    print("" if after is None else f"; {before:.2f} GiB before, {after:.2f} after")
    print(f"action chunks differ from the dense policy's by {statistics.median(off):.2%} (median),", end=" ")
    print(f"{max(off):.2%} (largest of {len(off)}), relative, with the same noise\n")
    print(f"{'':>6}  {'per call':>12}  {'per episode':>13}   first calls, ms")
    print(*(line(name, row) for name, row in result["times"].items()), sep="\n")
    print(f"chunks of the quantized policy bitwise equal: {'yes' if result['equal'] else 'NO'}\n")


@torch.no_grad()
def main(argv: list[str] | None = None) -> int:
    """Quantize, compare, run the episodes, write the result file."""
    options = parse(argv)
    if options.device.type == "cpu":
        torch.set_num_threads(1)
    dtype = torch.bfloat16 if options.size == "full" else torch.float32
    policy = build_policy(options.size, options.device, dtype)
    config = configuration(options)
    exact, before = chunks_of(policy, options.views), gib(options.device)
    start = synchronized(options.device)
    report = quantized(policy, config, options.views)
    seconds, after = synchronized(options.device) - start, gib(options.device)
    off = differences(chunks_of(policy, options.views), exact)

    act = rote.graph(policy.sample_actions)
    episodes = episodes_of(policy, act, options)
    pairs = zip(episodes["eager"], episodes["rote"], strict=True)
    equal = all(torch.equal(a, b) for e, r in pairs for a, b in zip(e.chunks, r.chunks, strict=True))

    chosen = {key: getattr(options, key) for key in ("size", "views", "steps", "episodes", "variant")}
    result = {**environment(options.device), **chosen, "dtype": str(dtype), "equal": equal}
    result |= {"config": json.loads(config.to_json()), "quantized": len(report.quantized)}
    result |= {"ratio": report.ratio, "quantization_s": seconds, "gib": [before, after], "differences": off}
    result |= {"times": {name: summary(runs) for name, runs in episodes.items()}}
    result |= {"layers": json.loads(report.to_json())["rows"], "report": json.loads(act.report().to_json())}
    show(result)
    print(act.explain())
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    print(f"\nwritten to {options.out}")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
