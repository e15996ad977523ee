"""lerobot's evaluation script, plainly and with a policy of the plugin's type: it finds the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.robots import policies

pytest.importorskip("lerobot")

ROOT = Path(__file__).resolve().parents[3]
RUN = (
    "import warnings; warnings.simplefilter('ignore'); from tests import packages; packages.missing(); "
    "from lerobot.scripts.lerobot_eval import main; main(); "
    "import gc, rote; found = [each for each in gc.get_objects() if type(each) is rote.Graphed]; "
    "print('GRAPHED', [each.report().replayed for each in found])"
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    cpu = torch.device("cpu")
    policies.save_brain(policies.random_brain("act", policies.BODIES["pusht"], cpu, folder), folder)
    return folder


def evaluated(out: Path, *policy: str) -> tuple[dict[str, Any], str]:
    """What ``lerobot-eval`` writes of two episodes of PushT, and what it prints."""
    arguments = [*policy, "--policy.device=cpu", "--env.type=pusht", "--env.episode_length=60"]
    arguments += ["--eval.n_episodes=2", "--eval.batch_size=1", f"--output_dir={out}"]
    settings = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": f"{ROOT}/src:{ROOT}"}
    environment = {**os.environ, **settings}
    command = [sys.executable, "-c", RUN, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads((out / "eval_info.json").read_text())
    return told["per_task"][0]["metrics"], done.stdout


def test_lerobot_eval_by_a_flag(checkpoint, tmp_path):
    pytest.importorskip("gym_pusht")
    try:
        version("lerobot_policy_rote")
    except PackageNotFoundError:
        pytest.skip("the plugin is not installed")
    plain, _ = evaluated(tmp_path / "plain", f"--policy.path={checkpoint}")
    ours, printed = evaluated(tmp_path / "ours", "--policy.type=rote", f"--policy.checkpoint={checkpoint}")
    for name in ("sum_rewards", "max_rewards", "successes"):
        assert ours[name] == plain[name] and len(ours[name]) == 2
    replayed = eval(printed.rsplit("GRAPHED", 1)[1])
    assert max(replayed) >= 10, printed


def test_a_checkpoint_has_to_be_named(checkpoint):
    pytest.importorskip("lerobot_policy_rote")
    from lerobot_policy_rote import RoteConfig

    with pytest.raises(ValueError, match=r"--policy\.type=rote needs --policy\.checkpoint"):
        RoteConfig(device="cpu")
