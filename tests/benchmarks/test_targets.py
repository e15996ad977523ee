"""Every program of the benchmark set, small: two builds are the same, and rote gives what eager gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from benchmarks.set import ROWS, Row
from benchmarks.targets import batch_sizes, detector, llama, unet, vision
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from transformers import LlamaConfig, LlamaForCausalLM

import rote
from rote.cli.targets import load

CALLS = 5


def outcome(function: Any, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    torch.manual_seed(number)
    return [
        leaf.clone() if isinstance(leaf, Tensor) else leaf for leaf in tree_leaves(function(*args, **kwargs))
    ]


PROGRAMS = [row for row in ROWS if row.runner == ("rote", "bench")]


@pytest.mark.long
@pytest.mark.parametrize("row", PROGRAMS, ids=lambda row: row.name)
def test_a_program_under_rote(row: Row, device: torch.device) -> None:
    if row.needs_gpu and device.type == "cpu":
        pytest.skip("its kernels need a GPU")
    plain, args, kwargs = row.build(small=True, device=str(device))
    recorded, same_args, same_kwargs = row.build(small=True, device=str(device))
    pairs = zip(tree_leaves((args, kwargs)), tree_leaves((same_args, same_kwargs)), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs if isinstance(a, Tensor))
    graphed = rote.graph(recorded)
    for number in range(CALLS):
        expected = outcome(plain, number, args, kwargs)
        got = outcome(graphed, number, same_args, same_kwargs)
        assert any(isinstance(leaf, Tensor) and leaf.numel() for leaf in expected)
        assert all(torch.isfinite(leaf).all() for leaf in expected if isinstance(leaf, Tensor))
        assert len(got) == len(expected) and all(map(torch.equal, got, expected)), number
    if row.name != "adamw-foreach" or device.type == "cuda":  # reads its step count on the host
        assert graphed.report().replayed > 0, graphed.explain()
    graphed.reset()


def test_names_are_unique() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.name in ("chain-10", "pi0-3views")], ids=lambda row: row.name
)
def test_the_command_line_can_build_it(row: Row) -> None:
    more = [f"{name}={value}" for name, value in row.arguments.items()]
    target = load(row.full_target, [*more, "small=True", "device=cpu"])
    assert target.function(*target.args, **target.kwargs).isfinite().all()


def test_batches_of_all_sizes() -> None:
    model, (batches,) = batch_sizes.stream(small=True, device="cpu")
    assert sorted(len(batch) for batch in batches) == list(range(1, 9))
    assert [len(batch) for batch in batches] != list(range(1, 9))
    graphed = rote.graph(model)
    for _ in range(4):
        assert all(torch.equal(graphed(batch), model(batch)) for batch in batches)
    assert graphed.report().replayed > 0
    graphed.reset()


def test_suppression_is_the_greedy_one() -> None:
    torch.manual_seed(0)
    corners = torch.rand(60, 2) * 10
    boxes, scores = torch.cat([corners, corners + 1 + torch.rand(60, 2) * 4], dim=1), torch.rand(60)
    shared = detector.overlaps(boxes)
    expected: list[int] = []
    for at in scores.argsort(descending=True).tolist():
        if all(shared[at, kept] <= 0.3 for kept in expected):
            expected.append(at)
    assert 5 < len(expected) < 55
    assert detector.suppress(boxes, scores, 0.3, 60).tolist() == expected
    assert detector.suppress(boxes, scores, 0.3, 4).tolist() == expected[:4]


def test_sizes_are_those_of_the_originals() -> None:
    with torch.device("meta"):
        models = {
            25_557_032: vision.ResNet(),
            3_504_872: vision.mobilenet_v2(),
            859_520_964: unet.UNet((320, 640, 1280, 1280), heads=8),
            1_235_814_400: LlamaForCausalLM(LlamaConfig(**llama.BILLION)),
            44_401_393: detector.Detector(proposals=1000, most=100),
        }
    for module in models[44_401_393].modules():
        if isinstance(module, nn.BatchNorm2d):  # frozen there, and no parameters
            module.weight = module.bias = None
    assert {n: sum(each.numel() for each in model.parameters()) for n, model in models.items()} == {
        n: n for n in models
    }
