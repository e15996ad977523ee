"""One of several processes has faults, in many steps: no rank hangs, and each has what it has plainly."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import distributed

from .rank_faults import OFTEN, programs_on
from .ranks import RANKS, started

pytestmark = pytest.mark.skipif(
    not distributed.is_available() or not distributed.is_gloo_available(), reason="no gloo"
)
KINDS = 8


def check(python, file, ranks, steps, *kind):
    kind = kind or ("cpu",)
    said = started(python, "tests.differential.rank_faults", file, str(ranks), str(steps), *kind, ranks=ranks)
    for rank, (found, errors) in enumerate(said):
        assert list(found) == programs_on(kind[0]), errors
        for told in found.values():
            assert told["wrong"] == [], told
            has_faults = rank == ranks - 1
            assert len(told["met"]) == (KINDS if has_faults else 0), told
            head, *others = told["ranks"].splitlines()
            assert f" on {ranks} ranks: " in head and told["ranks"] == said[0][0][told["name"]]["ranks"], told
            assert any([f" on rank {ranks - 1}, " in line for line in others]), told
            least = steps * (1 - OFTEN) / 3 if has_faults else steps - 12
            assert told["replayed"] >= least, f"{told['name']} on rank {rank}: {told['explained']}"


def test_forty_steps(tmp_path, warm_path):
    check(warm_path, tmp_path / "store", RANKS, 40)


@pytest.mark.long
@pytest.mark.parametrize(("ranks", "steps"), [(2, 1000), (4, 200)])
def test_many_steps(tmp_path, warm_path, ranks, steps):
    check(warm_path, tmp_path / "store", ranks, steps)


@pytest.mark.multi_gpu
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("kind", [("cuda",), ("cuda", "captured")])
def test_many_steps_on_gpus(tmp_path, ranks, kind):
    if torch.cuda.device_count() < ranks:
        pytest.skip(f"needs {ranks} GPUs")
    check(sys.executable, tmp_path / "store", ranks, 200, *kind)
