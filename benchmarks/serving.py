"""The PI0 policy behind ``rote serve``: 2,000 calls of one client over a websocket, graphed and plainly.

Server and client are processes of their own, as they are in use. A call is timed by the client, from the
observation as numpy arrays to the actions as numpy arrays; the server says what part of that the policy took.
The port is open when the warm-up is over, so all calls are timed, the first one included. The question is the
tail: a controller waits for the slowest call, not for the median.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from examples.pi0_policy import Tabletop, build_policy, noise_sequence
from websockets.sync.client import connect

from rote.serving import WireLimits, decode, encode

from .common import Outcome, Settings, statistic

NEEDS_GPU = False
VIEWS = 2
CALLS = 2_000
PLAIN_CALLS = 200
DIFFERENT = 8
START_S = 900.0
SUBJECT = f"PI0, {VIEWS} views"


def build(size: str, device: str) -> Any:
    """The target of ``rote serve``: an observation in, a chunk of actions out."""
    if device == "cpu":
        torch.set_num_threads(1)
    policy = policy_of(size, device)
    dtype = policy.dtype

    def act(observation: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        given = {
            name: each.to(dtype) if each.is_floating_point() else each for name, each in observation.items()
        }
        return {"actions": policy.sample_actions(**given).float()}

    act.metadata = {"example_observation": observations(policy, 1)[0]}  # pyright: ignore[reportFunctionMemberAccess]
    return act


def policy_of(size: str, device: str) -> Any:
    """The policy in the precision that it is served in."""
    dtype = torch.bfloat16 if size == "full" else torch.float32
    return build_policy(size, torch.device(device), dtype).requires_grad_(False)


def observations(policy: Any, number: int) -> list[dict[str, np.ndarray[Any, Any]]]:
    """What a robot would send: different pixels, state and noise."""
    world = Tabletop(policy, VIEWS, seed=VIEWS)
    found: list[dict[str, Any]] = []
    for noise in noise_sequence(policy, number, seed=VIEWS):
        tensors = {**world.observe(), "noise": noise}
        arrays = {name: each.float() if each.is_floating_point() else each for name, each in tensors.items()}
        found.append({name: each.cpu().numpy() for name, each in arrays.items()})
        world.advance(noise)
    return found


@dataclass(frozen=True)
class ServedCalls:
    """What a client has seen.

    Attributes:
        seconds: Of each call.
        infer_s: What of it the policy took.
        actions: The first answer to each observation.
        steady: Whether all answers to an observation were the same.
        page: The server's metrics.
    """

    seconds: list[float]
    infer_s: list[float]
    actions: list[np.ndarray[Any, Any]]
    steady: bool
    page: dict[str, float]


def run(settings: Settings) -> Outcome:
    """Both servers, one after the other: they would share the device."""
    out = Outcome()
    size = "full" if settings.on_gpu else "small"
    inputs = observations(policy_of(size, "cpu" if size == "small" else str(settings.device)), DIFFERENT)
    if settings.on_gpu:
        torch.cuda.empty_cache()
    found = {
        "eager": asked(size, settings, inputs, settings.rounds(PLAIN_CALLS), ("--no-graph",)),
        "rote": asked(size, settings, inputs, settings.rounds(CALLS)),
    }
    for way, calls in found.items():
        out.add(SUBJECT, {way: statistic(calls.seconds), f"{way}, policy": statistic(calls.infer_s)})
        for part in (way, f"{way}, policy"):
            row = next(row for row in out.rows if row["way"] == part)
            out.ratios[f"{SUBJECT}: {part}: p99 / median"] = row["p99_us"] / row["median_us"]
        out.facts[f"{way}: slowest calls, ms"] = [each * 1e3 for each in sorted(calls.seconds)[-5:]]
        out.facts[f"{way}: server"] = {
            name: value for name, value in calls.page.items() if "bucket" not in name
        }
        out.checks[f"{way}: an observation has one answer"] = calls.steady
    out.ratio(SUBJECT, "eager", "rote")
    pairs = zip(found["eager"].actions, found["rote"].actions, strict=True)
    out.checks["bitwise equal"] = all(np.array_equal(left, right) for left, right in pairs)
    page = found["rote"].page
    out.checks["all calls of clients replayed"] = page["rote_calls_total"] - page["rote_replayed_total"] <= 2
    return out


def asked(
    size: str, settings: Settings, inputs: list[dict[str, Any]], number: int, options: tuple[str, ...] = ()
) -> ServedCalls:
    """Ask a server of its own a number of times, in turn with each observation."""
    seconds: list[float] = []
    infer_s: list[float] = []
    answers: list[list[np.ndarray[Any, Any]]] = [[] for _ in inputs]
    limits = WireLimits()
    with server(size, settings, options) as port:
        with connect(f"ws://127.0.0.1:{port}", compression=None, max_size=None) as socket:
            socket.recv()
            for place in itertools.islice(itertools.cycle(range(len(inputs))), max(number, len(inputs))):
                start = time.perf_counter()
                socket.send(encode(inputs[place]))
                message = socket.recv()
                assert isinstance(message, bytes), message
                answer = decode(message, limits)
                seconds.append(time.perf_counter() - start)
                infer_s.append(answer["server_timing"]["infer_ms"] / 1e3)
                answers[place].append(answer["actions"])
        page = metrics(port)
    steady = all(np.array_equal(each, of_one[0]) for of_one in answers for each in of_one)
    return ServedCalls(seconds, infer_s, [of_one[0] for of_one in answers], steady, page)


@contextmanager
def server(size: str, settings: Settings, options: tuple[str, ...]) -> Iterator[int]:
    """A server as a process, and its port; it is told to end, and has to."""
    device = str(settings.device)
    command = [sys.executable, "-m", "rote", "serve", "benchmarks.serving:build", "--port", "0", *options]
    command += ["--arg", f"size={size}", "--arg", f"device={device}", "--device", device]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            said = process.stdout.readline()
            if not said:
                raise RuntimeError(f"the server ended with {process.wait(START_S)}")
            yield int(said.rpartition(":")[2])
        finally:
            process.terminate()
        if status := process.wait(START_S):
            raise RuntimeError(f"the server ended with {status}")


def metrics(port: int) -> dict[str, float]:
    """What the server has counted."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        lines = page.read().decode().splitlines()
    return {
        name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")
    }
