"""What goes wrong: policies that fail or hang, clients that leave or send garbage, the end of a server."""

from __future__ import annotations

import asyncio
import os
import pickle
import random
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rote.serving import PolicyServer, ServeOptions, Stopped, WireLimits, served

msgpack = pytest.importorskip("msgpack", reason="serving needs msgpack: pip install 'rote[serve]'")
clients = pytest.importorskip(
    "tests.serving.clients", reason="serving needs websockets: pip install 'rote[serve]'"
)
running, wait_for, Gate, FailedError = clients.running, clients.wait_for, clients.Gate, clients.FailedError


@pytest.fixture(autouse=True)
def _no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """What pytest keeps of a log has frames, and what is in them."""
    monkeypatch.setattr(clients.LOG, "disabled", True)


def echo() -> Any:
    return SimpleNamespace(infer=lambda given: {"n": given["n"]})


def closed(client: Any) -> tuple[int, str]:
    """The code and the reason with which a connection was closed."""
    from websockets.exceptions import ConnectionClosed

    with pytest.raises(ConnectionClosed) as caught:
        client.socket.recv(clients.PATIENCE_S)
    assert caught.value.rcvd is not None
    return caught.value.rcvd.code, caught.value.rcvd.reason


# --- Policies --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tracebacks", [False, True])
def test_a_request_that_fails_is_told_and_the_next_is_answered(tracebacks: bool) -> None:
    def infer(given: dict[str, Any]) -> dict[str, Any]:
        if given["n"] % 2:
            raise ValueError(f"{given['n']} is odd")
        return {"n": given["n"]}

    made = SimpleNamespace(infer=infer)
    with running(made, warm_up=0, tracebacks=tracebacks) as server, server.client() as client:
        for n in range(4):
            if n % 2:
                with pytest.raises(FailedError) as caught:
                    client.infer({"n": n})
                assert f"ValueError: {n} is odd" in str(caught.value)
                assert ("Traceback" in str(caught.value) and __file__ in str(caught.value)) is tracebacks
            else:
                assert client.infer({"n": n})["n"] == n
        assert (server.requests("failed"), server.requests("answered")) == (2, 2)


@pytest.mark.parametrize(
    ("infer", "text"),
    [
        (
            lambda given: {"a": [object()]},
            r"MisuseError: result\['a'\]\[0\] is a object, which a message cannot",
        ),
        (lambda given: {"a": np.array([None])}, r"MisuseError: result\['a'\] has the type object"),
        (
            lambda given: os._exit if given["n"] == 1 else {},
            r"MisuseError: result\['actions'\] is a builtin_fun",
        ),
        (lambda given: exec("raise SystemExit(3)"), "MisuseError: the policy raised SystemExit: 3"),
        (lambda given: exec("raise KeyboardInterrupt"), "the policy raised KeyboardInterrupt"),
        (lambda given: torch.ones(2) @ torch.ones(3), "RuntimeError: "),
    ],
    ids=range(6),
)
def test_whatever_a_policy_does_is_told(infer: Callable[[Any], Any], text: str) -> None:
    with running(SimpleNamespace(infer=infer), warm_up=0) as server, server.client() as client:
        with pytest.raises(FailedError, match=text):
            client.infer({"n": 1})
        assert server.get("/healthz")[0] == 200


def test_an_answer_that_comes_too_late_is_given_to_nobody() -> None:
    gate = Gate()
    with running(gate, warm_up=0, timeout_s=0.05) as server, server.client() as one, server.client() as two:
        with pytest.raises(
            FailedError, match=r"there was no answer within 0\.05 s; one that comes later is dropped"
        ):
            one.infer({"n": 1})
        with pytest.raises(FailedError, match="there was no answer within"):
            two.infer({"n": 2})  # it has not begun, and is never made
        gate.open.set()
        wait_for(lambda: server.metric("rote_serve_busy_seconds") == 0)
        assert one.infer({"n": 3})["n"] == 3 and two.infer({"n": 4})["n"] == 4
        assert gate.seen == [1, 3, 4]
        assert (server.requests("timed_out"), server.requests("answered")) == (2, 2)


def test_a_warm_up_that_hangs_holds_up_nobody_for_longer_than_a_request_may_take() -> None:
    gate = Gate()
    with running(gate, timeout_s=0.05) as server, server.client() as one, server.client() as two:
        one.send({"n": 1})
        assert gate.entered.wait(clients.PATIENCE_S)
        with pytest.raises(FailedError, match="the server is busy: it warms up for another client"):
            two.infer({"n": 2})
        gate.open.set()
        assert one.answer()["n"] == 1 and two.infer({"n": 3})["n"] == 3
        assert server.requests("refused") == 1


# --- More than the server takes --------------------------------------------------------------------------


def test_clients_wait_and_over_the_bound_are_told() -> None:
    gate = Gate()
    with (
        running(gate, warm_up=0, max_waiting=2) as server,
        server.client() as first,
        server.client() as fourth,
    ):
        first.send({"n": 1})
        assert gate.entered.wait(clients.PATIENCE_S)
        with server.client() as second, server.client() as third:
            second.send({"n": 2})
            wait_for(lambda: server.metric("rote_serve_waiting") == 1)
            third.send({"n": 3})
            wait_for(lambda: server.metric("rote_serve_waiting") == 2)
            with pytest.raises(
                FailedError, match="the server is busy: 2 requests wait, and 2 may; try again later"
            ):
                fourth.infer({"n": 4})
            gate.open.set()
            assert [each.answer()["n"] for each in (first, second, third)] == [1, 2, 3]
        assert fourth.infer({"n": 5})["n"] == 5
        assert gate.seen == [1, 2, 3, 5] and server.requests("refused") == 1


def test_one_client_alone_never_waits_for_itself() -> None:
    with running(echo(), warm_up=0, max_waiting=0) as server, server.client() as client:
        for n in range(300):
            assert client.infer({"n": n})["n"] == n


def test_a_client_that_asks_ahead_is_answered_in_order() -> None:
    with running(echo(), max_waiting=1) as server, server.client() as client:
        for n in range(100):
            client.send({"n": n})
        assert [client.answer()["n"] for _ in range(100)] == list(range(100))


# --- Clients that leave ----------------------------------------------------------------------------------


def cut(client: Any) -> None:
    """Leave without a word."""
    client.socket.socket.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("leave", [cut, lambda client: client.socket.close()], ids=["cut", "closed"])
def test_a_client_that_leaves_in_the_middle(leave: Callable[[Any], None]) -> None:
    gate = Gate()
    with running(gate, warm_up=0) as server, server.client() as stays:
        with server.client() as runs, server.client() as waits:
            runs.send({"n": 1})
            assert gate.entered.wait(clients.PATIENCE_S)
            waits.send({"n": 2})
            wait_for(lambda: server.metric("rote_serve_waiting") == 1)
            leave(waits)
            leave(runs)
        wait_for(lambda: server.requests("left") == 2)
        gate.open.set()
        assert stays.infer({"n": 3})["n"] == 3
        assert gate.seen == [1, 3], "nobody waits for the second"
        wait_for(lambda: server.metric("rote_serve_clients") == 1)


def test_clients_that_come_and_go() -> None:
    with running(echo(), max_clients=64) as server:

        def ask(first: int) -> int:
            right = 0
            for n in range(first, first + 10):
                with server.client() as client:
                    right += client.infer({"n": n})["n"] == n
                    if n % 3 == 0:
                        client.send({"n": n})
                        cut(client)
            return right

        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(ask, range(0, 400, 100))) == 40
        wait_for(lambda: server.metric("rote_serve_clients") == 0)


# --- Garbage ---------------------------------------------------------------------------------------------

OBJECTS = pickle.dumps(np.array([print], dtype=object))


def array(dtype: Any, data: bytes, shape: list[int]) -> bytes:
    return msgpack.packb({"n": {b"__ndarray__": True, b"dtype": dtype, b"data": data, b"shape": shape}})


@pytest.mark.parametrize(
    ("message", "code", "text"),
    [
        (b"", 1007, "a message ends in the middle"),
        (b"\xc1garbage", 1007, "a message is no msgpack"),
        (clients.pack({"n": np.ones(9)})[:-5], 1007, "a message is no msgpack|ends in the middle"),
        (msgpack.packb([1, 2]), 1007, "a request is a map, and a list came"),
        (array("|O", OBJECTS, [1]), 1007, r"arrays of type '\|O' are not accepted"),
        (array([["a", "|O"]], OBJECTS, [1]), 1007, "the type of an array is to be a text"),
        (array("<f4", bytes(4), [2**40]), 1007, "an array has a shape of more than 1,024 bytes"),
        (array("<f4", bytes(2048), [512]), 1007, "an array has 2,048 bytes, and 1,024 are the limit"),
        (b"\x91" * 100, 1007, "lists and maps lie deeper than 16"),
        ("a text", 1003, "a request is bytes, and a text came"),
        ([b""] * 5000, 1008, "a message came in more than 1,000 pieces"),
    ],
    ids=range(11),
)
def test_garbage_is_refused_and_others_are_answered(message: Any, code: int, text: str) -> None:
    limits = WireLimits(message_bytes=4096, array_bytes=1024)
    with running(echo(), limits=limits) as server, server.client() as good, server.client() as bad:
        assert good.infer({"n": 1})["n"] == 1
        send_quietly(bad, message)
        with pytest.raises(FailedError, match=text):
            bad.answer()
        assert closed(bad)[0] == code
        assert good.infer({"n": 2})["n"] == 2
        assert server.requests("malformed") == 1


def send_quietly(client: Any, message: Any) -> None:
    """Send; a server that has heard enough may have closed the connection before the end."""
    from websockets.exceptions import ConnectionClosed

    try:
        client.socket.send(message)
    except (ConnectionClosed, OSError):
        assert isinstance(message, list)


def test_a_message_that_is_too_long() -> None:
    limits = WireLimits(message_bytes=1000)
    with running(echo(), limits=limits) as server, server.client() as good, server.client() as bad:
        bad.socket.send(bytes(2000))
        assert closed(bad)[0] == 1009
        assert good.infer({"n": 2})["n"] == 2
        wait_for(lambda: server.requests("malformed") == 1)


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 100 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\n\r\n",
        os.urandom(3000),
        b"",
    ],
)
def test_what_is_no_websocket(data: bytes) -> None:
    with running(echo()) as server, server.client() as good:
        with socket.create_connection(("127.0.0.1", server.port)) as bad:
            bad.sendall(data)
            if data:
                while bad.recv(1000):
                    pass
        assert good.infer({"n": 2})["n"] == 2


def test_frames_that_are_none() -> None:
    with running(echo()) as server, server.client() as good, server.client() as bad:
        bad.socket.socket.sendall(random.Random(0).randbytes(1000))
        closed_or_failed(bad)
        assert good.infer({"n": 2})["n"] == 2


def closed_or_failed(client: Any) -> None:
    from websockets.exceptions import ConnectionClosed

    with pytest.raises((ConnectionClosed, FailedError)):
        client.answer()


# --- The end ---------------------------------------------------------------------------------------------


def test_what_was_accepted_is_finished_and_nothing_else_is_taken() -> None:
    gate = Gate()
    with running(gate, warm_up=0) as server:
        with server.client() as runs, server.client() as waits, server.client() as rests:
            runs.send({"n": 1})
            assert gate.entered.wait(clients.PATIENCE_S)
            waits.send({"n": 2})
            wait_for(lambda: server.metric("rote_serve_waiting") == 1)
            server.stop()
            assert closed(rests) == (1001, "the server ends")
            with pytest.raises(OSError):
                server.client()
            runs.send({"n": 3})  # ahead of its answer
            gate.open.set()
            assert [each.answer()["n"] for each in (runs, waits)] == [1, 2]
            assert closed(runs) == closed(waits) == (1001, "the server ends")
            assert server.end() is Stopped.DRAINED
        assert gate.seen == [1, 2]


@pytest.mark.parametrize("hurried", [False, True])
def test_what_hangs_is_cut_off(hurried: bool) -> None:
    gate = Gate()
    with running(gate, warm_up=0, drain_s=60 if hurried else 0.05) as server, server.client() as client:
        client.send({"n": 1})
        assert gate.entered.wait(clients.PATIENCE_S)
        server.stop()
        if hurried:
            server.stop()
        assert closed(client) == (1001, "the server ends")
        assert server.end() is Stopped.CUT_OFF
        gate.open.set()
    clients.join_inference()


@pytest.mark.parametrize("hurried", [False, True])
def test_a_warm_up_is_ended(hurried: bool) -> None:
    entered, go = threading.Event(), threading.Event()
    calls: list[int] = []

    def infer(given: dict[str, Any]) -> dict[str, Any]:
        calls.append(1)
        entered.set()
        assert go.wait(clients.PATIENCE_S)
        return {}

    made = SimpleNamespace(infer=infer, metadata={"example_observation": {"n": 1}})

    async def main() -> Stopped:
        server = PolicyServer(served(made), ServeOptions(port=0))
        running = asyncio.create_task(server.run(lambda port: calls.append(100)))
        await asyncio.to_thread(entered.wait)
        server.stop()
        if hurried:
            server.stop()
        else:
            go.set()
        return await running

    assert asyncio.run(main()) is Stopped.DRAINED and calls == [1]
    go.set()
    clients.join_inference()
