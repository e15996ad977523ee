"""A served policy: what clients are told and given, what is recorded for them, what is counted."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import rote
from rote import EnvironmentError_, MisuseError, OptionError
from rote.serving import PolicyServer, ServeOptions, Stopped, served

pytest.importorskip("msgpack", reason="serving needs msgpack: pip install 'rote[serve]'")
clients = pytest.importorskip(
    "tests.serving.clients", reason="serving needs websockets: pip install 'rote[serve]'"
)
running, wait_for, Gate = clients.running, clients.wait_for, clients.Gate


def policy(width: int = 8) -> Any:
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(width, 16), nn.GELU(), nn.Linear(16, 4))

    def act(observation: dict[str, Any]) -> dict[str, Any]:
        return {"actions": net(observation["state"]), "n": observation["n"]}

    return act


def observation(n: int, rows: int = 1, width: int = 8) -> dict[str, Any]:
    return {"state": np.random.default_rng(n).standard_normal((rows, width), np.float32), "n": np.int64(n)}


def plainly(act: Any, asked: dict[str, Any]) -> Any:
    with torch.no_grad():
        return act({"state": torch.from_numpy(asked["state"]), "n": torch.tensor(asked["n"])})[
            "actions"
        ].numpy()


# --- What clients are told and given ---------------------------------------------------------------------


def test_answers_are_those_of_the_plain_policy() -> None:
    act = policy()
    act.metadata = {"action_horizon": 1, "names": ["a", "b"]}
    with running(act) as server, server.client() as client:
        assert client.metadata == {"action_horizon": 1, "names": ["a", "b"]}
        for n in range(20):
            asked = observation(n)
            answer = client.infer(asked)
            assert np.array_equal(answer["actions"], plainly(act, asked)) and answer["n"] == n
            assert answer["policy_timing"].keys() == {"infer_ms"}
            assert ("prev_total_ms" in answer["server_timing"]) == (n > 0)
            assert answer["server_timing"]["infer_ms"] > 0 and answer["server_timing"]["wait_ms"] > 0
        assert server.metric("rote_replayed_total") >= 20


def test_an_object_with_infer_gets_arrays_and_keeps_its_timing() -> None:
    kinds: list[Any] = []

    class Policy:
        metadata = MappingProxyType({"seed": 1})

        def infer(self, given: dict[str, Any]) -> dict[str, Any]:
            kinds.append({key: type(value) for key, value in given.items()})
            assert not torch.is_grad_enabled()
            result = given["state"] * 2
            result += given["scale"]
            return {"actions": result, "text": given["prompt"], "policy_timing": {"infer_ms": 7.0}}

    with running(Policy()) as server, server.client() as client:
        asked = {"state": np.arange(3.0), "prompt": "fold", "scale": np.float32(2)}
        answer = client.infer(asked)
        assert answer["policy_timing"] == {"infer_ms": 7.0} and answer["text"] == "fold"
        assert np.array_equal(answer["actions"], np.arange(3.0) * 2 + 2)
    assert kinds[0] == {"state": np.ndarray, "prompt": str, "scale": np.float32}


def test_a_result_whose_memory_is_used_again_is_not_mixed() -> None:
    kept = np.zeros(4)

    def infer(given: dict[str, Any]) -> dict[str, Any]:
        kept[:] = given["n"]
        return {"kept": kept}

    with running(SimpleNamespace(infer=infer)) as server, ThreadPoolExecutor(4) as pool:

        def ask(first: int) -> bool:
            with server.client() as client:
                return all(np.all(client.infer({"n": n})["kept"] == n) for n in range(first, first + 20))

        assert all(pool.map(ask, (0, 100, 200, 300)))


def test_a_module_and_what_is_graphed_already_are_served() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(8, 2)

        def forward(self, given: dict[str, Any]) -> torch.Tensor:
            return self.net(given["state"])

    net = Net()
    for made in (net, rote.graph(net, keep=True), rote.graph(net.forward)):
        with running(made) as server, server.client() as client:
            asked = {"state": observation(1)["state"]}
            answers = [client.infer(asked)["actions"] for _ in range(3)]
            assert all(
                np.array_equal(each, plainly(lambda x: {"actions": net(x)}, {**asked, "n": 0}))
                for each in answers
            )
            assert server.metric("rote_replayed_total") > 3


def test_1000_requests_of_8_clients_are_answered_each_with_its_own() -> None:
    act = policy()
    with running(act) as server:

        def ask(first: int) -> list[bool]:
            with server.client() as client:
                found: list[bool] = []
                for n in range(first, first + 125):
                    asked = observation(n)
                    answer = client.infer(asked)
                    found.append(answer["n"] == n and np.array_equal(answer["actions"], plainly(act, asked)))
                return found

        with ThreadPoolExecutor(8) as pool:
            right = [each for found in pool.map(ask, range(0, 1000, 125)) for each in found]
        assert len(right) == 1000 and all(right)
        assert server.requests("answered") == 1000
        assert server.metric("rote_serve_infer_seconds_count") == 1000
        assert server.metric("rote_recordings") == 1


def test_each_shape_has_a_recording() -> None:
    act = policy()
    with running(act) as server, server.client() as one, server.client() as two:
        for n in range(12):
            for client, rows in ((one, 1), (two, 3)):
                asked = observation(n, rows)
                assert np.array_equal(client.infer(asked)["actions"], plainly(act, asked))
        assert server.metric("rote_recordings") == 2


# --- The warm-up -----------------------------------------------------------------------------------------


def counting(act: Any) -> Any:
    """A policy with an example, whose state shows how it was called."""
    calls: list[str] = []

    class Policy:
        metadata = MappingProxyType({"seed": 1, "example_observation": observation(0)})

        def infer(self, given: dict[str, Any]) -> dict[str, Any]:
            calls.append("infer")
            noise = torch.randn(1).item() + random.random() + np.random.rand()
            return {"actions": given["state"] * 2, "noise": noise}

        def reset(self) -> None:
            calls.append("reset")

    return Policy(), calls


def test_examples_are_called_before_the_port_is_open_and_leave_no_trace() -> None:
    made, calls = counting(None)
    torch.manual_seed(5), random.seed(5), np.random.seed(5)
    expected = torch.randn(1).item() + random.random() + np.random.rand()
    torch.manual_seed(5), random.seed(5), np.random.seed(5)
    with running(made) as server:
        assert calls == ["infer"] * 3 + ["reset"]
        with server.client() as client:
            assert client.metadata == {"seed": 1}
            assert client.infer(observation(1))["noise"] == expected
    assert len(calls) == 5


def test_a_callable_is_replayed_before_the_port_is_open() -> None:
    act = policy()
    act.metadata = {"example_observation": [observation(0), observation(0, rows=3)]}
    with running(act) as server, server.client() as client:
        assert client.metadata == {} and server.metric("rote_recordings") == 2
        calls, replayed = server.metric("rote_calls_total"), server.metric("rote_replayed_total")
        for rows in (1, 3):
            client.infer(observation(7, rows))
        assert server.metric("rote_calls_total") == calls + 2
        assert server.metric("rote_replayed_total") == replayed + 2


def test_without_an_example_the_first_observation_warms_up() -> None:
    with running(policy()) as server, server.client() as client:
        assert server.metric("rote_calls_total") == 0
        client.infer(observation(1))
        eager = server.metric("rote_calls_total") - server.metric("rote_replayed_total")
        client.infer(observation(2))
        assert server.metric("rote_calls_total") - server.metric("rote_replayed_total") == eager
        assert server.metric("rote_replayed_total") > 16


def test_a_warm_up_that_fails_is_told_to_its_client_and_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        clients.LOG, "disabled", True
    )  # what pytest keeps of a log has frames, and what is in them
    act = policy()
    with running(act) as server, server.client() as client:
        with pytest.raises(clients.FailedError, match="KeyError: 'state'"):
            client.infer({"n": np.int64(1)})
        asked = observation(2)
        assert np.array_equal(client.infer(asked)["actions"], plainly(act, asked))


def test_so_many_calls_as_are_asked_for() -> None:
    made, calls = counting(None)
    with running(made, warm_up=5):
        assert calls == ["infer"] * 5 + ["reset"]
    made, calls = counting(None)
    with running(made, warm_up=0) as server, server.client() as client:
        client.infer(observation(1))
    assert calls == ["infer"]


def test_what_is_not_replayed_is_called_plainly(caplog: pytest.LogCaptureFixture) -> None:
    with running(lambda given: given["state"] * time.time()) as server, server.client() as client:
        client.infer({"state": np.ones(2)})
        assert "rote_calls_total" not in server.get("/metrics")[1]
    assert "nothing was replayed, so the policy is called plainly" in caplog.text and "RT218" in caplog.text


def test_a_warm_up_that_fails_opens_no_port() -> None:
    class Policy:
        metadata = MappingProxyType({"example_observation": {}})

        def infer(self, given: dict[str, Any]) -> dict[str, Any]:
            return {"actions": given["state"]}

    with pytest.raises(KeyError, match="state"), running(Policy()):
        raise AssertionError


def test_the_state_of_an_episode_is_forgotten_for_the_only_client() -> None:
    made, calls = counting(None)
    with running(made, warm_up=0, max_clients=1) as server:
        for _ in range(2):
            with server.client() as client:
                client.infer(observation(1))
    assert calls == ["reset", "infer"] * 2


# --- Who comes in ----------------------------------------------------------------------------------------


def infer_nothing() -> Any:
    return SimpleNamespace(infer=lambda given: {})


def test_a_key_is_asked_for() -> None:
    from websockets.exceptions import InvalidStatus

    headers = [
        {},
        {"Authorization": "Api-Key wrong"},
        {"Authorization": "Bearer right"},
        {"Authorization": "right"},
    ]
    with running(infer_nothing(), api_key="right") as server:
        for each in headers:
            with pytest.raises(InvalidStatus, match="401"):
                server.client(additional_headers=each)
        twice = [("Authorization", "Api-Key right"), ("Authorization", "Api-Key right")]
        with pytest.raises(InvalidStatus, match="401"):
            server.client(additional_headers=twice)
        right = {"Authorization": "Api-Key right"}
        with server.client(additional_headers=right) as client:
            assert client.infer({}).keys() == {"policy_timing", "server_timing"}
        assert server.get("/metrics")[0] == 401
        assert server.get("/metrics", right)[0] == 200
        assert server.get("/healthz") == (200, "OK\n")


def test_a_key_is_not_shown() -> None:
    assert "secret" not in repr(ServeOptions(api_key="secret"))


def test_web_pages_do_not_come_in() -> None:
    from websockets.exceptions import InvalidStatus

    with running(infer_nothing(), max_clients=1) as server:
        for _ in range(3):
            with pytest.raises(InvalidStatus, match="403"):
                server.client(origin="http://localhost")
        with server.client() as client:
            client.infer({})


def test_no_more_clients_than_may() -> None:
    from websockets.exceptions import InvalidStatus

    with running(infer_nothing(), max_clients=2) as server:
        with server.client(), server.client() as client:
            with pytest.raises(InvalidStatus, match="503"):
                server.client()
            assert client.infer({})
            assert server.metric("rote_serve_clients") == 2
        for _ in range(5):  # who has left has left
            with server.client() as one, server.client() as two:
                assert one.infer({}) and two.infer({})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", ""])
def test_other_machines_need_a_key(host: str) -> None:
    with pytest.raises(OptionError, match="lets other machines in: give a key as well, in ROTE_API_KEY"):
        ServeOptions(host)
    assert ServeOptions(host, api_key="k").host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_this_machine_needs_none(host: str) -> None:
    assert ServeOptions(host).api_key is None


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_clients": 0}, "max_clients is 0, and has to be 1 or more"),
        ({"max_waiting": -1}, "max_waiting is -1, and has to be 0 or more"),
        ({"timeout_s": 0}, "timeout_s is 0, and has to be a number of seconds above 0"),
        ({"drain_s": float("inf")}, "drain_s is inf, and has to be a number of seconds above 0"),
        ({"api_key": ""}, "api_key is empty or has other letters than printable ASCII without spaces"),
        ({"api_key": "a b"}, "api_key is empty or has other letters"),
    ],
)
def test_impossible_options(options: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        ServeOptions(**options)


@pytest.mark.parametrize(
    ("made", "options", "text"),
    [
        (3, {}, "the target returned a int; a target returns an object with infer"),
        (infer_nothing(), {"graphs": True}, "graph what infer calls between tensors"),
        (infer_nothing(), {"device": "cpu"}, "gets arrays and no tensors: leave device out"),
        (SimpleNamespace(infer=print, metadata=[1]), {}, "metadata is to be a mapping, and is a list"),
    ],
)
def test_what_cannot_be_served(made: Any, options: dict[str, Any], text: str) -> None:
    with pytest.raises(MisuseError, match=text):
        served(made, **options)


def test_a_port_that_is_taken() -> None:
    with (
        running(infer_nothing()) as server,
        pytest.raises(EnvironmentError_, match=f"127.0.0.1:{server.port} cannot"),
    ):
        taken = PolicyServer(served(infer_nothing()), ServeOptions(port=server.port))
        asyncio.run(taken.run(lambda port: None))


# --- Over HTTP -------------------------------------------------------------------------------------------


def test_health_says_that_an_inference_hangs() -> None:
    gate = Gate()
    with running(gate, timeout_s=0.05, warm_up=0) as server, server.client() as client:
        assert server.get("/healthz") == (200, "OK\n")
        with pytest.raises(clients.FailedError, match=r"there was no answer within 0\.05 s"):
            client.infer({"n": 1})
        wait_for(lambda: server.get("/healthz")[0] == 503)
        assert "an inference has been running for" in server.get("/healthz")[1]
        gate.open.set()
        wait_for(lambda: server.get("/healthz")[0] == 200)


def test_metrics_are_the_text_of_prometheus() -> None:
    with running(policy()) as server, server.client() as client:
        client.infer(observation(1))
        lines = server.get("/metrics")[1].splitlines()
    names = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    assert names == {line.split()[2] for line in lines if line.startswith("# HELP")}
    for line in lines:
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            float(value)
            assert any(name.startswith(known) for known in names), line
    buckets = [
        float(line.split()[-1]) for line in lines if line.startswith("rote_serve_infer_seconds_bucket")
    ]
    assert buckets == sorted(buckets) and buckets[-1] == 1


def test_another_page_is_none() -> None:
    with running(infer_nothing()) as server:
        assert server.get("/other")[0] == 426  # a websocket is expected


def test_metrics_do_not_wait_for_an_inference_that_hangs() -> None:
    gate, free = threading.Event(), threading.Event()
    free.set()

    def act(given: dict[str, Any]) -> Any:
        return given["state"] + 1

    graphed = rote.graph(act)

    class Policy:
        def __init__(self) -> None:
            self.graphed = graphed

        def infer(self, given: dict[str, Any]) -> Any:
            gate.set()
            assert free.wait(60)
            return {"actions": graphed({"state": torch.from_numpy(given["state"])})}

    with running(Policy(), warm_up=0) as server, server.client() as client:
        client.infer({"state": np.ones(2)})
        assert server.metric("rote_calls_total") == 1
        free.clear(), gate.clear()
        client.send({"state": np.ones(2)})
        assert gate.wait(60)
        assert "rote_calls_total 1\n" in server.get("/metrics")[1]  # as it was
        free.set()
        client.answer()
        assert server.metric("rote_calls_total") == 2


def test_a_server_that_nobody_asks_ends() -> None:
    with running(infer_nothing()) as server:
        assert server.end() is Stopped.DRAINED
