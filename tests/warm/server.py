"""Forks a process, which has imported PyTorch and numpy, for each program that a client asks for.

``python server.py ADDRESS LAUNCHER``; it ends when its standard input does. A program has a session of its
own, which is killed when its client goes. Its process returns from :func:`serve` and ends as Python ends.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import numpy  # noqa: F401
import torch  # noqa: F401

sys.path[0] = str(Path(__file__).parent)
from client import at_start  # noqa: E402


class Program:
    """A process, and the client that waits for its end."""

    def __init__(self, process: int, client: socket.socket) -> None:
        self.process = process
        self.client = client

    def signalled(self) -> bool:
        """Hand a signal on that the client sent; whether that was the last, since the client is gone."""
        try:
            sent = self.client.recv(1)
        except ConnectionError:
            sent = b""
        if sent:
            os.kill(self.process, sent[0])
            return False
        for kill in (os.killpg, os.kill):  # it may have no session yet
            with contextlib.suppress(ProcessLookupError):
                kill(self.process, signal.SIGKILL)
        return True

    def ended(self) -> None:
        """Tell the client how it ended."""
        _, status = os.waitpid(self.process, 0)
        with contextlib.suppress(OSError):
            self.client.send(status.to_bytes(4, "big"))
        self.client.close()


def serve(address: str) -> dict[str, Any]:
    """Fork until the standard input ends; in a process that was forked, what it is to run."""
    life = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(address)
    listener.listen(64)
    gc.collect()
    gc.freeze()  # or each process would collect all that at its end, and copy it for that
    told = Path(f"{address}.new")
    told.write_text(json.dumps(at_start(dict(os.environ))))
    told.replace(f"{address}.json")
    selector = selectors.DefaultSelector()
    selector.register(life, selectors.EVENT_READ, "life")
    selector.register(listener, selectors.EVENT_READ, "client")
    while True:
        for key, _ in selector.select():
            if key.data == "life":
                for each in list(selector.get_map().values()):
                    if isinstance(each.data, Program):
                        each.data.client.close()
                        os.killpg(each.data.process, signal.SIGKILL)
                os._exit(0)
            elif key.data == "client":
                client, _ = listener.accept()
                asked, streams = _received(client)
                process = os.fork()
                if not process:
                    os.setsid()
                    for each in list(selector.get_map().values()):
                        os.close(each.fd)
                    for fd in (client.fileno(), selector.fileno()):
                        os.close(fd)
                    for number, fd in enumerate(streams):
                        os.dup2(fd, number)
                        os.close(fd)
                    return asked
                for fd in streams:
                    os.close(fd)
                program = Program(process, client)
                selector.register(client, selectors.EVENT_READ, program)
                selector.register(os.pidfd_open(process), selectors.EVENT_READ, (program,))
            elif isinstance(key.data, Program):
                if key.data.signalled():
                    selector.unregister(key.data.client)
            else:
                (program,) = key.data
                selector.unregister(key.fd)
                os.close(key.fd)
                if program.client in {each.fileobj for each in selector.get_map().values()}:
                    selector.unregister(program.client)
                program.ended()


def _received(client: socket.socket) -> tuple[dict[str, Any], list[int]]:
    header, streams, _, _ = socket.recv_fds(client, 8, 3)
    length, text = int.from_bytes(header, "big"), b""
    while len(text) < length:
        text += client.recv(length - len(text))
    return json.loads(text), list(streams)


def _given() -> list[str]:
    """Folders in which the environment tells Python to look."""
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [str(Path(each).absolute()) for each in folders if each]


def run(asked: dict[str, Any], launcher: str, path: list[str]) -> None:
    """Run a program in this process, as Python does at its start."""
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    for each in asked["warnings"]:
        action, _, rest = each.partition(":")
        assert not rest, "only actions are known here"
        warnings.simplefilter(action)  # pyright: ignore[reportArgumentType]
    sys.warnoptions += asked["warnings"]
    what, *arguments = asked["arguments"]
    sys.executable = launcher
    own = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    first = (
        {"-c": "", "-m": os.getcwd()}.get(what) if what.startswith("-") else str(Path(what).resolve().parent)
    )
    sys.path[:] = [str(first), *(str(Path(each).absolute()) for each in own), *path]
    sys.path_importer_cache.clear()
    for name in ("client", "__main__"):
        del sys.modules[name]
    if what == "-c":
        code, *arguments = arguments
        sys.argv[:] = ["-c", *arguments]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(code, "<string>", "exec", dont_inherit=True), vars(main))
        return
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if what == "-m":
        module, *arguments = arguments
        sys.argv[:] = [module, *arguments]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = [what, *arguments]
        runpy.run_path(what, run_name="__main__")


if __name__ == "__main__":
    installed = [each for each in sys.path[1:] if each not in _given()]
    run(serve(sys.argv[1]), sys.argv[2], installed)
