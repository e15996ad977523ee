"""``rote serve``: what it says before anything is served, and a server as a process of its own."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rote import serving
from rote.cli import output

pytest.importorskip("msgpack", reason="serving needs msgpack: pip install 'rote[serve]'")
clients = pytest.importorskip(
    "tests.serving.clients", reason="serving needs websockets: pip install 'rote[serve]'"
)

TARGET = """
import time
import torch

def build(width=8):
    net = torch.nn.Linear(width, 2)
    def act(observation):
        return net(observation["state"]) if "state" in observation else observation["text"]
    act.metadata = {"width": width}
    return act

def number():
    return 3

class Slow:
    def infer(self, observation):
        time.sleep(observation["s"])
        return {"s": observation["s"]}
"""


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["policy.py:number"], "policy.py:number returned a int; a target returns an object with infer"),
        (["policy.py:nothing"], "policy.py has no function 'nothing'"),
        (["policy.py:build", "--arg", "depth=2"], "policy.py:build cannot be called"),
        (["policy.py:build", "--host", "0.0.0.0"], "host='0.0.0.0' lets other machines in"),
        (["policy.py:build", "--example", "none"], "--example none cannot be read: No such file"),
        (["policy.py:build", "--example", "policy.py"], "--example policy.py: "),
        (
            ["policy.py:build", "--timeout", "0"],
            "timeout_s is 0.0, and has to be a number of seconds above 0",
        ),
        (["policy.py:Slow", "--graph"], "graph what infer calls between tensors"),
        (["policy.py:Slow", "--device", "cpu"], "leave device out"),
    ],
)
def test_what_cannot_be_served(rote, monkeypatch, arguments, text):
    monkeypatch.delenv("ROTE_API_KEY", raising=False)
    rote.write("policy.py", TARGET)
    done = rote("serve", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("rote: ") and text in done.stderr


def test_without_the_extra(rote, monkeypatch):
    monkeypatch.setattr(output, "find_spec", lambda name: None)
    done = rote("serve", "policy.py:build")
    assert (done.exit_code, done.stderr) == (2, "rote: serving needs websockets: pip install 'rote[serve]'\n")


def test_the_packages_are_loaded_by_a_server_alone():
    for path in [
        *Path(serving.__file__).parent.glob("*.py"),
        Path(serving.__file__).parents[1] / "cli/serve.py",
    ]:
        names = [node.module for node in ast.parse(path.read_text()).body if isinstance(node, ast.ImportFrom)]
        assert not {"websockets", "msgpack"} & {str(name).partition(".")[0] for name in names}, path


@pytest.mark.usefixtures("warm_python")
def test_a_process_serves_until_it_is_told_to_end(tmp_path: Path) -> None:
    """SIGTERM in the middle of an inference: the answer comes, then the end."""
    (tmp_path / "policy.py").write_text(TARGET)
    (tmp_path / "example.msgpack").write_bytes(clients.pack({"s": 0}))
    target, example = f"{tmp_path}/policy.py:Slow", str(tmp_path / "example.msgpack")
    command = [sys.executable, "-m", "rote", "serve", target, "--port", "0", "--example", example]
    environment = {**os.environ, "ROTE_API_KEY": "secret"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert said.startswith(f"{target} is served at ws://127.0.0.1:")
        port = int(said.rpartition(":")[2])
        headers = {"Authorization": "Api-Key secret"}
        with clients.Asking(port, additional_headers=headers) as client:
            assert client.infer({"s": 0.0, "image": np.zeros((4, 4), np.uint8)})["s"] == 0
            client.send({"s": 0.5})
            with clients.Asking(port, additional_headers=headers):
                process.send_signal(signal.SIGTERM)
                assert client.answer()["s"] == 0.5
        assert process.wait(clients.PATIENCE_S) == 0
