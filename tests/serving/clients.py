"""A client of the tests' own in the format of openpi's, and a server in a thread."""

from __future__ import annotations

import asyncio
import http.client
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgpack
import numpy as np
from websockets.sync.client import ClientConnection, connect

from rote.serving import PolicyServer, ServeOptions, Stopped, served

LOG = logging.getLogger("rote.serving")

PATIENCE_S = 60
"""A wait that takes longer fails the test."""


def pack(value: Any) -> bytes:
    return msgpack.packb(value, default=_packed)


def unpack(message: bytes) -> Any:
    return msgpack.unpackb(message, object_hook=_unpacked)


def _packed(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        fields = {b"data": value.tobytes(), b"dtype": value.dtype.str, b"shape": value.shape}
        return {b"__ndarray__": True, **fields}
    if isinstance(value, np.generic):
        return {b"__npgeneric__": True, b"data": value.item(), b"dtype": value.dtype.str}
    raise TypeError(type(value))


def _unpacked(fields: dict[Any, Any]) -> Any:
    if b"__ndarray__" in fields:
        return np.ndarray(fields[b"shape"], np.dtype(fields[b"dtype"]), fields[b"data"])
    if b"__npgeneric__" in fields:
        return np.dtype(fields[b"dtype"]).type(fields[b"data"])
    return fields


class FailedError(Exception):
    """The server answered by a text."""


class Asking:
    """A client: told the metadata when it connects."""

    def __init__(self, port: int, **options: Any) -> None:
        address = f"ws://127.0.0.1:{port}"
        self._opened = connect(address, compression=None, max_size=None, open_timeout=PATIENCE_S, **options)
        self.socket: ClientConnection = self._opened.__enter__()
        self.metadata = unpack(self.socket.recv(PATIENCE_S))

    def send(self, observation: Any) -> None:
        self.socket.send(pack(observation))

    def answer(self) -> Any:
        message = self.socket.recv(PATIENCE_S)
        if isinstance(message, str):
            raise FailedError(message)
        return unpack(message)

    def infer(self, observation: Any) -> Any:
        self.send(observation)
        return self.answer()

    def __enter__(self) -> Asking:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.__exit__(None, None, None)


@dataclass
class Running:
    """A server that runs."""

    server: PolicyServer
    loop: asyncio.AbstractEventLoop
    port: int
    ended: threading.Event = field(default_factory=threading.Event)
    how: Stopped | None = None
    told: bool = False

    def client(self, **options: Any) -> Asking:
        return Asking(self.port, **options)

    def stop(self) -> None:
        """Tell the server to end; told twice, it hurries."""
        self.told = True
        self.loop.call_soon_threadsafe(self.server.stop)

    def end(self) -> Stopped | None:
        if not self.told:
            self.stop()
        assert self.ended.wait(PATIENCE_S)
        return self.how

    def get(self, path: str, headers: dict[str, str] | None = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request("GET", path, headers=headers or {})
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, text

    def metric(self, name: str) -> float:
        lines = self.get("/metrics")[1].splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if line.rpartition(" ")[0] == name)

    def requests(self, outcome: str) -> float:
        return self.metric(f'rote_serve_requests_total{{outcome="{outcome}"}}')


def join_inference() -> None:
    """Wait for what a server that was cut off has left: a warm-up that ends puts random generators back."""
    for thread in threading.enumerate():
        if thread.name == "rote serve: inference":
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


@contextmanager
def running(made: Any, *, graphs: bool | None = None, **options: Any) -> Iterator[Running]:
    """Serve in a thread; at the end the server is stopped."""
    opened = threading.Event()
    found: list[Running] = []
    failed: list[BaseException] = []

    async def main() -> None:
        server = PolicyServer(served(made, graphs=graphs), ServeOptions(port=0, **options))
        loop = asyncio.get_running_loop()

        def say(port: int) -> None:
            found.append(Running(server, loop, port))
            opened.set()

        how = await server.run(say)
        found[0].how = how

    def work() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            failed.append(error)
        opened.set()
        for each in found:
            each.ended.set()

    thread = threading.Thread(target=work)
    thread.start()
    assert opened.wait(PATIENCE_S)
    if failed:
        thread.join()
        raise failed[0]
    try:
        yield found[0]
    finally:
        found[0].end()
        thread.join(PATIENCE_S)
    assert not failed, failed


def wait_for(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.005)


class Gate:
    """A policy that waits at a gate, and notes who came through."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.entered = threading.Event()
        self.seen: list[Any] = []

    def infer(self, observation: dict[str, Any]) -> dict[str, Any]:
        self.seen.append(observation["n"])
        self.entered.set()
        assert self.open.wait(PATIENCE_S)
        return {"n": observation["n"]}
