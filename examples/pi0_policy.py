"""A robot policy in a closed loop, once plainly and once through rote.

    python examples/pi0_policy.py --views 2 --steps 20

The policy is transformers' own PI0ForConditionalGeneration with random weights and no edits: a vision
tower, a language model that reads images and instruction into a key/value cache, and an action expert that
denoises a chunk of actions in ten steps. On a GPU it has its real size; on a CPU a small configuration has
the same parts.

The world is a toy, but the loop is closed: what the policy answers decides what it sees next, so a single
wrong bit in one chunk shows in every later one. The exit status is 1 if any chunk differs.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import PI0Config, PI0ForConditionalGeneration

import rote

EXECUTED = 5  # actions of a chunk that the arm carries out before it asks again
PROMPT = 48  # tokens of instruction
SHOWN = 5  # calls listed one by one


@dataclass(frozen=True)
class Episode:
    """What one closed loop gave: the chunks as handed out, and the seconds they took."""

    chunks: list[Tensor]
    calls: list[float]
    seconds: float


def configuration(size: str) -> PI0Config:
    """The published sizes, or all parts of them small enough for an eager call of some 20 ms on a CPU."""
    if size == "full":
        return PI0Config()
    tower = dict(hidden_size=64, num_hidden_layers=2, intermediate_size=128, num_attention_heads=2)
    language = dict(model_type="gemma", num_key_value_heads=1, head_dim=32, vocab_size=512, **tower)
    vision = dict(
        model_type="siglip_vision_model", patch_size=14, image_size=56, vision_use_head=False, **tower
    )
    # The expert attends to the language model's keys: same layers, heads and head size, its own width.
    expert = {**language, "hidden_size": 32, "intermediate_size": 64}
    vlm = dict(model_type="paligemma", text_config=language, vision_config=vision)
    vlm.update(projection_dim=64, image_token_id=512)
    return PI0Config(vlm_config=vlm, dit_config=expert, chunk_size=10, max_state_dim=8, max_action_dim=8)


def build_policy(size: str, device: torch.device, dtype: torch.dtype) -> PI0ForConditionalGeneration:
    """The stock policy with random weights."""
    torch.manual_seed(0)
    with torch.device(device):
        policy = PI0ForConditionalGeneration(configuration(size))
    return policy.to(dtype).eval()


class Tabletop:
    """A deterministic world: the first actions of a chunk move the arm, and the cameras see it move."""

    def __init__(self, policy: PI0ForConditionalGeneration, views: int, seed: int) -> None:
        config = policy.config
        eyes, device, dtype = config.vlm_config.vision_config, policy.device, policy.dtype
        rng = torch.Generator().manual_seed(seed)
        size = (1, views, 3, eyes.image_size, eyes.image_size)
        self.scene = torch.randn(size, generator=rng).to(device, dtype)
        self.state = torch.randn(1, config.max_state_dim, generator=rng).to(device, dtype)
        self.pixels = self.scene
        patches = views * (eyes.image_size // eyes.patch_size) ** 2
        images = torch.full((1, patches), config.vlm_config.image_token_id)
        words = torch.randint(5, 500, (1, PROMPT), generator=rng)
        ids = torch.cat([images, words], dim=1).to(device)
        self.instruction = {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "pixel_attention_mask": torch.ones(1, views, dtype=torch.bool, device=device),
        }

    def observe(self) -> dict[str, Tensor]:
        """The keyword arguments of the next policy call."""
        return {"state": self.state, "pixel_values": self.pixels, **self.instruction}

    def advance(self, chunk: Tensor) -> None:
        """Carry out the first actions of a chunk."""
        self.state = torch.tanh(self.state + 0.1 * chunk[:, :EXECUTED].sum(dim=1))
        self.scene = self.scene.roll(1, dims=-1)
        self.pixels = self.scene + self.state.mean()


def noise_sequence(policy: PI0ForConditionalGeneration, steps: int, seed: int) -> list[Tensor]:
    """The starting noise of every call, drawn before so that both runs get the same."""
    config = policy.config
    rng = torch.Generator().manual_seed(1000 + seed)
    size = (1, config.chunk_size, config.max_action_dim)
    return [torch.randn(size, generator=rng).to(policy.device, policy.dtype) for _ in range(steps)]


def run_episode(act: Callable[..., Tensor], world: Tabletop, noises: list[Tensor]) -> Episode:
    """Close the loop once. The chunks are kept as they were handed out: they must not change later."""
    chunks: list[Tensor] = []
    calls: list[float] = []
    device = world.state.device
    began = synchronized(device)
    for noise in noises:
        observation = world.observe()
        start = synchronized(device)
        chunk = act(**observation, noise=noise)
        calls.append(synchronized(device) - start)
        chunks.append(chunk)
        world.advance(chunk)
    return Episode(chunks, calls, synchronized(device) - began)


def synchronized(device: torch.device) -> float:
    """The time once all queued work is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def summary(episodes: list[Episode]) -> dict[str, Any]:
    """Times of one way of calling, in milliseconds, over all its episodes."""
    calls = [seconds * 1e3 for episode in episodes for seconds in episode.calls]
    return {
        "call_median_ms": statistics.median(calls),
        "call_ms": calls,
        "episode_ms": [episode.seconds * 1e3 for episode in episodes],
    }


def line(name: str, times: dict[str, Any]) -> str:
    """One row of the printed table."""
    first = ", ".join(f"{ms:.1f}" for ms in times["call_ms"][:SHOWN])
    episodes = statistics.median(times["episode_ms"])
    return f"{name:>6}  {times['call_median_ms']:9.2f} ms  {episodes:10.1f} ms   {first}"


def environment(device: torch.device) -> dict[str, Any]:
    """What the numbers were measured with."""
    on_gpu = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device)
        if on_gpu
        else platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "transformers": transformers.__version__,
    }


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="A PI0 policy in a closed loop: eager and through rote.")
    parser.add_argument("--views", type=int, default=2, help="cameras (default: %(default)s)")
    parser.add_argument(
        "--steps", type=int, default=20, help="policy calls per episode (default: %(default)s)"
    )
    parser.add_argument("--episodes", type=int, default=2, help="episodes each way (default: %(default)s)")
    parser.add_argument(
        "--size", choices=("auto", "full", "small"), default="auto", help="auto: full on a GPU"
    )
    parser.add_argument("--device", help="torch device (default: the GPU if there is one)")
    parser.add_argument("--out", type=Path, help="result file (default: examples/results/<name>.json)")
    options = parser.parse_args(argv)
    options.device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if options.size == "auto":
        options.size = "full" if options.device.type == "cuda" else "small"
    name = f"pi0-{options.size}-{options.views}views-{options.device.type}.json"
    options.out = options.out or Path(__file__).parent / "results" / name
    return options


@torch.no_grad()
def main(argv: list[str] | None = None) -> int:
    """Run the episodes, print what they took, write the result file."""
    options = parse(argv)
    if options.device.type == "cpu":
        torch.set_num_threads(1)  # operations this small lose more to a second thread than they gain
    dtype = torch.bfloat16 if options.size == "full" else torch.float32
    policy = build_policy(options.size, options.device, dtype)
    act = rote.graph(policy.sample_actions)

    episodes: dict[str, list[Episode]] = {"eager": [], "rote": []}
    for seed in range(options.episodes):
        noises = noise_sequence(policy, options.steps, seed)
        for name, way in (("eager", policy.sample_actions), ("rote", act)):
            episodes[name].append(run_episode(way, Tabletop(policy, options.views, seed), noises))
    pairs = zip(episodes["eager"], episodes["rote"], strict=True)
    equal = all(torch.equal(a, b) for e, r in pairs for a, b in zip(e.chunks, r.chunks, strict=True))
    times = {name: summary(runs) for name, runs in episodes.items()}
    ratio = times["eager"]["call_median_ms"] / times["rote"]["call_median_ms"]

    made_with = environment(options.device)
    print(
        f"PI0, {options.size}, {options.views} views, {dtype}".replace("torch.", ""),
        "on",
        made_with["device"],
    )
    print(f"{'':>6}  {'per call':>12}  {'per episode':>13}   first calls, ms")
    print(*(line(name, row) for name, row in times.items()), sep="\n")
    print(f"rote is {ratio:.2f} times as fast as eager; chunks bitwise equal: {'yes' if equal else 'NO'}\n")
    print(act.explain())
    chosen = {key: getattr(options, key) for key in ("size", "views", "steps", "episodes")}
    result = {**made_with, **chosen, "dtype": str(dtype), "times": times, "ratio": ratio, "equal": equal}
    result["report"] = json.loads(act.report().to_json())
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    print(f"\nwritten to {options.out}")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
