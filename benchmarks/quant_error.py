"""How far quantized synthetic layers are from dense ones: ``python -m benchmarks.quant_error [--quick] [--out
PATH]``.

Four layers with random weights: an up and a q projection with hot channels, a down projection with two
massive entries in one token, and a plain Gaussian one. For each, the relative square error of the output
under several recipes, at W4A4 and W4A8, mean over the seeds; where a massive token rules the total
(``down``), the median over tokens. Factors are against rounding to nearest with the same grids. ``KNOWN``
holds what the official code of DuQuant gave on layers made in the same way.
"""

from __future__ import annotations

import argparse
import json
import statistics
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rote.quant import DuQuantConfig
from rote.quant.converting.convert import build_layer
from rote.quant.converting.measure import output_errors
from rote.quant.numerics import InputSample, find_transform

from . import common

TOKENS = 128
SEEDS = 3
STEPS = 64
PLAIN = DuQuantConfig(
    rotation="none", permutation="none", smooth_alpha=None, weight_range="minmax", rotation_steps=STEPS,
    path="reference",
)  # fmt: skip
SEARCH = PLAIN.replace(rotation="greedy", permutation="zigzag")
RECIPES = {
    "round to nearest": PLAIN,
    "smoothing 0.5": PLAIN.replace(smooth_alpha=0.5),
    "hadamard": PLAIN.replace(rotation="hadamard"),
    "R1": PLAIN.replace(rotation="greedy"),
    "R1 P R2": SEARCH,
    "smoothing 0.6, R1 P R2": SEARCH.replace(smooth_alpha=0.6),
    "smoothing 0.6, R1 P R2, clipping 0.9 and 0.8": SEARCH.replace(
        smooth_alpha=0.6, act_clip=0.9, weight_clip=0.8
    ),
    "smoothing 0.6, R1 P R2, searched clipping": SEARCH.replace(smooth_alpha=0.6, weight_range="mse"),
    "smoothing 0.6, R1 P R2, learned clipping": SEARCH.replace(smooth_alpha=0.6, weight_range="learned"),
    "R1 P R2, searched clipping": SEARCH.replace(weight_range="mse"),
}  # fmt: skip
LAYERS = {"up": (1024, 4096), "q": (2048, 2048), "down": (4096, 1024), "gaussian": (1024, 1024)}
KNOWN = {
    ("up", 4): (0.159, 0.037, 0.034, 0.047, 0.032, 0.015, 0.012),
    ("up", 8): (0.0167, 0.0187, 0.0159, 0.0159, 0.0160, 0.0077, 0.0060),
    ("q", 4): (0.246, 0.052, 0.041, 0.067, 0.036, 0.017, 0.012),
    ("q", 8): (0.0192, 0.0247, 0.0178, 0.0179, 0.0177, 0.0083, 0.0059),
    ("down", 4): (0.088, 0.293, 0.041, 0.045, 0.039, 0.056, 0.040),
    ("down", 8): (0.0199, 0.241, 0.0196, 0.0194, 0.0195, 0.029, 0.020),
    ("gaussian", 4): (0.0317, 0.0313, 0.0317, 0.0315, 0.0315, 0.0309, 0.024),
}


def layer_and_inputs(kind: str, seed: int, shape: tuple[int, int] | None = None) -> tuple[nn.Linear, Tensor]:
    """A layer with random weights, and inputs of shape ``(tokens, in)``."""
    width, out = shape or LAYERS[kind]
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator)

    linear = nn.Linear(width, out, bias=False)
    linear.weight.data = normal(out, width) / width**0.5
    x = normal(TOKENS, width)
    if kind == "down":
        x = torch.nn.functional.gelu(x) * normal(TOKENS, width)
        x[5, width // 3], x[5, 2 * width // 3] = 1400.0, -600.0
    elif kind != "gaussian":
        gain = torch.exp(0.5 * normal(width))
        hot = torch.randperm(width, generator=generator)[: max(1, width // 256)]
        gain[hot] *= 10 + 20 * torch.rand(len(hot), generator=generator)
        x = x / x.square().mean(1, keepdim=True).sqrt() * gain
    return linear, x


def errors(
    kind: str, act_bits: int, seeds: int, recipes: dict[str, DuQuantConfig]
) -> dict[str, dict[str, float]]:
    """Mean errors over the seeds, in total and of the median token, for each recipe."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in recipes}
    for seed in range(seeds):
        linear, x = layer_and_inputs(kind, seed)
        for name, recipe in recipes.items():
            layer = build_layer(linear, recipe.replace(act_bits=act_bits, seed=seed), x)
            found[name].append(output_errors(linear, layer, x))
    return {
        name: {"total": statistics.mean(t for t, _ in pairs), "token": statistics.mean(m for _, m in pairs)}
        for name, pairs in found.items()
    }


def peaks(seeds: int) -> dict[str, float]:
    """The largest entry of a massive token before, between and behind the rotations, mean over the seeds."""
    found: dict[str, list[float]] = {"input": [], "R1": [], "R1 P R2": []}
    for seed in range(seeds):
        _, x = layer_and_inputs("down", seed, (1024, 64))
        weight = torch.zeros(1, 1024)
        for name, recipe in (("input", PLAIN), ("R1", RECIPES["R1"]), ("R1 P R2", SEARCH)):
            chain = find_transform([weight], recipe.replace(seed=seed), InputSample.of(x))
            found[name].append(chain.apply(x).abs().max().item())
    return {name: statistics.mean(values) for name, values in found.items()}


def measure(seeds: int) -> dict[str, Any]:
    """The whole table as plain data."""
    rows: list[dict[str, Any]] = []
    for kind in LAYERS:
        metric = "token" if kind == "down" else "total"
        for act_bits in (4, 8):
            measured = errors(kind, act_bits, seeds, RECIPES)
            base = measured["round to nearest"][metric]
            known = dict(zip(RECIPES, KNOWN.get((kind, act_bits), ()), strict=False))
            for name, values in measured.items():
                row = {"layer": kind, "bits": f"W4A{act_bits}", "recipe": name, "metric": metric, **values}
                row["factor"] = base / values[metric]
                if name in known:
                    row["known"], row["known_factor"] = known[name], known["round to nearest"] / known[name]
                rows.append(row)
    return {"rows": rows, "peaks": peaks(seeds)}


def table(rows: list[dict[str, Any]]) -> str:
    """One line a recipe."""
    lines = [f"{'layer':9} {'bits':5} {'recipe':46} {'error':>8} {'factor':>7} {'known':>8} {'factor':>7}"]
    for row in rows:
        known = f"{row['known']:8.4f} {row['known_factor']:6.1f}x" if "known" in row else ""
        error = row[row["metric"]]
        lines.append(
            f"{row['layer']:9} {row['bits']:5} {row['recipe']:46} {error:8.4f} {row['factor']:6.1f}x {known}"
        )
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed")
    parser.add_argument("--out", type=Path, help="where the JSON goes")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    today = datetime.now(UTC).date().isoformat()
    seeds = 1 if options.quick else SEEDS
    found = {"date": today, "device": "host", "versions": common.versions(), "seeds": seeds, **measure(seeds)}
    print(table(found["rows"]))
    print("peaks:", ", ".join(f"{name} {value:.0f}" for name, value in found["peaks"].items()))
    out = options.out or Path(__file__).parent / "results" / "host" / f"{today}-quant-error.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"results in {out}")


if __name__ == "__main__":
    main()
