"""Closed loops in simulators: what is told of them, and the adapters. No time is asserted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.robots import __main__ as command
from benchmarks.robots import episodes, policies, worlds

CPU = torch.device("cpu")
HERE = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"
)


class StandIn:
    """Has the part of LIBERO's ``OffScreenRenderEnv`` that is used, and notes what is asked."""

    def __init__(self, ends_after: int) -> None:
        self.asked, self._ends_after, self._steps = list[Any](), ends_after, 0

    def reset(self) -> None:
        self.asked.append("reset")
        self._steps = -worlds.LiberoWorld.WAIT

    def set_init_state(self, state: Any) -> dict[str, Any]:
        self.asked.append(("state", state))
        return self._seen()

    def step(self, action: list[float]) -> tuple[dict[str, Any], float, bool, dict[str, Any]]:
        assert isinstance(action, list) and len(action) == 7
        self.asked.append(action)
        self._steps += 1
        done = self._steps >= self._ends_after
        return self._seen(), float(done), done, {}

    def close(self) -> None:
        self.asked.append("close")

    def _seen(self) -> dict[str, Any]:
        picture = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
        return {
            "agentview_image": picture,
            "robot0_eye_in_hand_image": picture + 1,
            "robot0_eef_pos": np.array([0.1, 0.2, 0.3]),
            "robot0_eef_quat": np.array([0.0, 0.0, np.sin(0.25), np.cos(0.25)]),
            "robot0_gripper_qpos": np.array([0.04, -0.04]),
        }


def test_libero_as_its_script_uses_it() -> None:
    env = StandIn(ends_after=3)
    world = worlds.LiberoWorld(env, ["first", "second"], "put it down", horizon=220)
    moment = world.reset(seed=3)
    assert env.asked[:2] == ["reset", ("state", "second")]
    assert env.asked[2:] == [[0.0] * 6 + [-1.0]] * 10  # objects fall
    np.testing.assert_allclose(moment.observation["agent_pos"], [0.1, 0.2, 0.3, 0, 0, 0.5, 0.04, -0.04])
    seen = moment.observation["pixels"]
    assert list(seen) == ["image", "image2"]
    turned = env._seen()["agentview_image"][::-1, ::-1]
    assert np.array_equal(seen["image"], turned) and seen["image"].flags.c_contiguous
    assert np.array_equal(moment.picture, turned)
    moments = [world.step(np.zeros(7, np.float32)) for _ in range(3)]
    assert [each.done for each in moments] == [each.success for each in moments] == [False, False, True]
    world.close()
    assert env.asked[-1] == "close"


def test_libero_ends_without_success() -> None:
    world = worlds.LiberoWorld(StandIn(ends_after=99), ["only"], "put it down", horizon=2)
    for _ in range(2):  # the second episode counts anew
        world.reset(seed=0)
        moments = [world.step(np.zeros(7, np.float32)) for _ in range(2)]
        assert [(each.done, each.success) for each in moments] == [(False, False), (True, False)]


@pytest.mark.parametrize(
    ("quaternion", "wanted"),
    [((0, 0, 0, 1), (0, 0, 0)), ((1, 0, 0, 0), (np.pi, 0, 0)), ((0, 0, 0, 1.0000001), (0, 0, 0))],
)
def test_rotations(quaternion: Any, wanted: Any) -> None:
    np.testing.assert_allclose(worlds.axis_angle(quaternion), wanted, atol=1e-12)


def test_a_difference_shows() -> None:
    def result(actions: dict[int, Any]) -> command.Result:
        made = {seed: np.array(each, np.float32) for seed, each in actions.items()}
        return command.Result({}, made, {}, None)

    eager = result({0: [[1.0], [2.0]], 1: [[0.0]]})
    assert result({0: [[1.0], [2.0]], 1: [[0.0]]}).equal(eager)
    assert not result({0: [[1.0], [2.0]], 1: [[-0.0]]}).equal(eager)  # bits
    other = result({0: [[1.0], [2.5]], 1: [[0.0]]})
    assert not other.equal(eager) and other.difference(eager) == 0.5
    longer, fewer = result({0: [[1.0], [2.0], [3.0]], 1: [[0.0]]}), result({0: [[1.0], [2.0]]})
    assert not longer.equal(eager) and longer.difference(eager) == float("inf")
    assert not fewer.equal(eager) and fewer.difference(eager) is None


@HERE
@pytest.mark.parametrize("weights", ["bf16", "w4a8"])
def test_episodes_of_a_checkpoint(weights: str, tmp_path: Path) -> None:
    """One that the test writes as lerobot does; plainly and graphed, with the files that are written."""
    for name in ("lerobot", "gym_pusht"):
        pytest.importorskip(name)
    folder = tmp_path / "checkpoint"
    made = policies.random_brain("act", policies.BODIES["pusht"], CPU, folder, seed=5)
    policies.save_brain(made, folder)
    given = ["--checkpoint", str(folder), "--weights", weights, "--ways", "rote.graph", "--device", "cpu"]
    assert command.main([*given, "--seeds", "2", "--steps", "40", "--out", str(tmp_path / "results")]) == 0
    (file,) = (tmp_path / "results" / "pusht").glob("*_results.json")
    told = json.loads(file.read_text())
    assert told["versions"]["lerobot"] and told["versions"]["gym-pusht"] and told["arguments"]["seeds"] == 2
    eager, ours = told["rows"]
    assert (eager["way"], ours["way"]) == ("eager", "rote.graph") and eager["weights"] == weights
    assert ours["equal"] and ours["largest_difference"] == 0 and not ours["error"]
    for one, other in zip(eager["episodes"], ours["episodes"], strict=True):
        assert one["actions_sha256"] == other["actions_sha256"] and one["steps"] == 40
        assert {"success", "seed", "task", "latency_ms", "policy_s", "wall_s"} <= one.keys()
    assert eager["episodes"][0]["actions_sha256"] != eager["episodes"][1]["actions_sha256"]
    assert ours["graphed"][0]["replayed"] >= 6
    assert sorted(path.suffix for path in file.parent.iterdir()) == [".gif", ".json", ".png"]


class Corridor:
    """A world whose pictures are never alike. One of them that nobody looks at may be nonsense."""

    task, horizon = "put it down", 20

    def __init__(self, *, lazy: bool) -> None:
        self._lazy, self._noise = lazy, np.random.default_rng()

    def reset(self, seed: int) -> worlds.Moment:
        self._noise = np.random.default_rng(seed)
        return self._seen(True)

    def step(self, action: Any, *, looked_at: bool = True) -> worlds.Moment:
        return self._seen(looked_at or not self._lazy)

    def close(self) -> None:
        pass

    def _seen(self, drawn: bool) -> worlds.Moment:
        picture = self._noise.integers(0, 256, (96, 96, 3), np.uint8)
        state = self._noise.random(2)
        return worlds.Moment({"pixels": picture if drawn else 255 - picture, "agent_pos": state})


@HERE
@pytest.mark.parametrize("kind", list(policies.KINDS))
def test_a_picture_that_is_not_drawn_is_not_looked_at(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("lerobot")
    brain = policies.random_brain(kind, policies.BODIES["pusht"], CPU, tmp_path)
    told = [
        episodes.play(brain, Corridor(lazy=lazy), 3, CPU, bf16=False, steps=None) for lazy in (False, True)
    ]
    assert told[0].actions.tobytes() == told[1].actions.tobytes()


@HERE
def test_a_run_goes_on_where_it_was_cut(tmp_path: Path) -> None:
    """Also one with more episodes; what lies there is not played, and other options are refused."""
    for name in ("lerobot", "gym_pusht"):
        pytest.importorskip(name)
    given = ["--policy", "act", "--weights", "bf16", "--ways", "rote.graph", "--device", "cpu"]
    given += ["--jobs", "2", "--resume", str(tmp_path / "kept"), "--out", str(tmp_path / "results")]
    assert command.main([*given, "--seeds", "1", "--steps", "12"]) == 0
    kept = tmp_path / "kept" / "act-bf16"
    before = {file.name: file.stat().st_mtime_ns for file in kept.glob("*-0.*")}
    assert len(before) == 4
    assert command.main([*given, "--seeds", "2", "--steps", "12"]) == 0
    assert before == {file.name: file.stat().st_mtime_ns for file in kept.glob("*-0.*")}
    told = json.loads(max((tmp_path / "results" / "pusht").glob("*.json")).read_text())
    assert [[each["seed"] for each in row["episodes"]] for row in told["rows"]] == [[0, 1], [0, 1]]
    assert all(row["equal"] for row in told["rows"])
    with pytest.raises(SystemExit, match="holds episodes of"):
        command.main([*given, "--seeds", "2", "--steps", "13"])


@HERE
def test_a_checkpoint_is_that_policy(tmp_path: Path) -> None:
    pytest.importorskip("lerobot")
    made = policies.random_brain("act", policies.BODIES["pusht"], CPU, tmp_path, seed=5)
    policies.save_brain(made, tmp_path / "kept")
    found = policies.loaded_brain(tmp_path / "kept", CPU)
    seen = {"observation.image": torch.rand(1, 3, 96, 96), "observation.state": torch.rand(1, 2) * 512}
    actions = [each.after(each.policy.select_action(each.before(dict(seen)))) for each in (made, found)]
    assert torch.equal(*actions)


@HERE
def test_a_way_that_raises_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lerobot", "gym_pusht"):
        pytest.importorskip(name)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "gym_pusht.py").write_text("raise RuntimeError('no simulator today')")
    given = [
        "--policy",
        "act",
        "--weights",
        "float32",
        "--ways",
        "rote.graph",
        "--device",
        "cpu",
        "--seeds",
        "1",
    ]
    assert command.main([*given, "--out", str(tmp_path / "results")]) == 1  # neither way has an episode
    (file,) = (tmp_path / "results" / "pusht").glob("*_results.json")
    for row in json.loads(file.read_text())["rows"]:
        assert row["error"].endswith("RuntimeError: no simulator today") and row["episodes"] == []
