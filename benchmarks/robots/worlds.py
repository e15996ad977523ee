"""Simulators behind one interface: an observation as lerobot's environments give it, a step, a picture.

Libraries of simulators are imported when a world is opened. PushT needs no graphics at all. Aloha is
rendered by MuJoCo, which reads ``MUJOCO_GL`` when it is imported: ``egl`` on a GPU, ``osmesa`` without one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

Picture = np.ndarray[Any, np.dtype[np.uint8]]
Actions = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True)
class Moment:
    """What a world shows after a reset or a step.

    Attributes:
        observation: ``pixels`` (uint8 ``[H, W, 3]``, or a dict of such by camera) and ``agent_pos``
            (``[state]``).
        reward: Of the step.
        done: The episode is over.
        success: The task is done.
    """

    observation: dict[str, Any]
    reward: float = 0.0
    done: bool = False
    success: bool = False

    @property
    def picture(self) -> Picture:
        """What the first camera sees."""
        pixels = self.observation["pixels"]
        return pixels if isinstance(pixels, np.ndarray) else next(iter(pixels.values()))


class World(Protocol):
    """A simulator with one task.

    Attributes:
        task: The instruction, for policies that read one.
        horizon: Steps after which an episode ends.
    """

    task: str
    horizon: int

    def reset(self, seed: int) -> Moment:
        """Begin an episode. The same seed begins the same one."""
        ...

    def step(self, action: Actions, *, looked_at: bool = True) -> Moment:
        """Carry out one action, ``[action]``. A picture that nobody looks at may be an older one."""
        ...

    def close(self) -> None:
        """Free what the simulator holds."""
        ...


class GymWorld:
    """An environment of gymnasium whose observations have ``pixels`` and ``agent_pos``."""

    def __init__(self, env: Any, task: str) -> None:
        self.task, self._env = task, env
        self.horizon: int = env.spec.max_episode_steps

    def reset(self, seed: int) -> Moment:
        return Moment(self._env.reset(seed=seed)[0])

    def step(self, action: Actions, *, looked_at: bool = True) -> Moment:
        seen, reward, terminated, truncated, told = self._env.step(action)
        return Moment(seen, float(reward), bool(terminated or truncated), bool(told["is_success"]))

    def close(self) -> None:
        self._env.close()


class AlohaWorld(GymWorld):
    """Draws what is looked at. MuJoCo takes a millisecond for a step, without a GPU hundreds for a picture.

    gym-aloha draws three cameras in each step, and hands out one.
    """

    CAMERA = "top"

    def __init__(self, env: Any, task: str) -> None:
        super().__init__(env, task)
        self._pictures, self._looked_at = dict[str, Picture](), True
        physics = env.unwrapped._env.physics
        self._draw, physics.render = physics.render, self._drawn

    def reset(self, seed: int) -> Moment:
        self._looked_at = True
        return super().reset(seed)

    def step(self, action: Actions, *, looked_at: bool = True) -> Moment:
        self._looked_at = looked_at
        return super().step(action)

    def _drawn(self, height: int, width: int, camera_id: str) -> Picture:
        seen = self._looked_at and camera_id == self.CAMERA
        if seen or camera_id not in self._pictures:
            self._pictures[camera_id] = self._draw(height=height, width=width, camera_id=camera_id)
        return self._pictures[camera_id]


class LiberoWorld:
    """A task of LIBERO, as openpi's script for it uses its simulator.

    ``OffScreenRenderEnv`` gives no gymnasium interface: an episode begins from one of the recorded initial
    states of the task, objects fall for some steps before the robot may act, pictures are upside down, and
    the state is put together from three parts.

    Args:
        env: An ``OffScreenRenderEnv``.
        initial_states: Those of the task; an episode's seed chooses one.
        task: The instruction.
        horizon: Steps after which an episode ends; openpi takes 220 to 520, by suite.
    """

    WAIT = 10
    STILL = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0)

    def __init__(self, env: Any, initial_states: Any, task: str, horizon: int) -> None:
        self.task, self.horizon = task, horizon
        self._env, self._states, self._steps = env, initial_states, 0

    def reset(self, seed: int) -> Moment:
        self._steps = 0
        self._env.reset()
        seen = self._env.set_init_state(self._states[seed % len(self._states)])
        for _ in range(self.WAIT):
            seen = self._env.step(list(self.STILL))[0]
        return Moment(self._observation(seen))

    def step(self, action: Actions, *, looked_at: bool = True) -> Moment:
        seen, reward, done, _ = self._env.step(action.tolist())
        self._steps += 1
        over = bool(done) or self._steps >= self.horizon
        return Moment(self._observation(seen), float(reward), over, bool(done))

    def close(self) -> None:
        self._env.close()

    def _observation(self, seen: dict[str, Any]) -> dict[str, Any]:
        """Pictures the right way up, and the state: position, rotation as axis and angle, gripper."""
        turned = {
            camera: np.ascontiguousarray(seen[name][::-1, ::-1])
            for camera, name in (("image", "agentview_image"), ("image2", "robot0_eye_in_hand_image"))
        }
        parts = seen["robot0_eef_pos"], axis_angle(seen["robot0_eef_quat"]), seen["robot0_gripper_qpos"]
        return {"pixels": turned, "agent_pos": np.concatenate(parts)}


def axis_angle(quaternion: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A rotation ``(x, y, z, w)`` as its axis times its angle, as robosuite calculates it."""
    x, y, z, w = np.asarray(quaternion, dtype=np.float64)
    w = float(np.clip(w, -1.0, 1.0))
    length = float(np.sqrt(1.0 - w * w))
    if np.isclose(length, 0.0):
        return np.zeros(3)
    return np.array([x, y, z]) * 2.0 * np.arccos(w) / length


def pusht() -> World:
    """A disc pushes a T onto its mark, seen from above; pymunk and pygame, no graphics."""
    import gym_pusht  # noqa: F401  # registers the environment
    import gymnasium

    env = gymnasium.make("gym_pusht/PushT-v0", obs_type="pixels_agent_pos", render_mode="rgb_array")
    return GymWorld(env, "Push the T-shaped block onto the T-shaped target.")


def aloha() -> World:
    """Two arms, one cube, handed over; MuJoCo."""
    import gym_aloha  # noqa: F401  # registers the environment
    import gymnasium

    name = "gym_aloha/AlohaTransferCube-v0"
    env = gymnasium.make(name, obs_type="pixels_agent_pos", render_mode="rgb_array", max_episode_steps=400)
    return AlohaWorld(env, "Pick up the cube with the right arm and transfer it to the left arm.")


def libero(suite: str = "libero_spatial", task: int = 0) -> World:
    """A task of LIBERO. Its meshes are downloaded when it is opened for the first time."""
    from pathlib import Path

    from libero.libero import benchmark, get_libero_path
    from libero.libero.envs import OffScreenRenderEnv

    tasks = benchmark.get_benchmark_dict()[suite]()
    chosen = tasks.get_task(task)
    file = Path(get_libero_path("bddl_files")) / chosen.problem_folder / chosen.bddl_file
    env = OffScreenRenderEnv(bddl_file_name=str(file), camera_heights=256, camera_widths=256)
    env.seed(7)  # or objects differ although initial states are set
    return LiberoWorld(env, tasks.get_task_init_states(task), chosen.language, HORIZONS[suite])


HORIZONS = {
    "libero_spatial": 220,
    "libero_object": 280,
    "libero_goal": 300,
    "libero_10": 520,
    "libero_90": 400,
}
"""Of LIBERO's suites, as openpi's script has them: somewhat more than the longest demonstration."""

WORLDS: dict[str, Callable[[], World]] = {"pusht": pusht, "aloha": aloha, "libero": libero}
