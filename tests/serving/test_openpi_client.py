"""openpi's own client, as it is published, in a process and an environment of its own: it needs numpy 1.

``make test-openpi-client`` makes the environment and runs this.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

pytest.importorskip("msgpack", reason="serving needs msgpack: pip install 'rote[serve]'")
clients = pytest.importorskip(
    "tests.serving.clients", reason="serving needs websockets: pip install 'rote[serve]'"
)

PYTHON = os.environ.get("ROTE_OPENPI_CLIENT", "")
pytestmark = pytest.mark.skipif(
    not PYTHON, reason="ROTE_OPENPI_CLIENT names no Python with openpi-client: make test-openpi-client"
)

PROGRAM = """
import json, sys
import numpy as np
from openpi_client.websocket_client_policy import WebsocketClientPolicy

assert np.__version__.startswith("1.")
client = WebsocketClientPolicy("127.0.0.1", int(sys.argv[1]), api_key="secret")
rng = np.random.default_rng(0)
found = []
for n in range(30):
    state = rng.standard_normal((2, 8)).astype(np.float32)
    image = rng.integers(0, 255, (16, 16, 3), dtype=np.uint8)
    seen = {"state": state, "image": image}
    sent = {"observation": seen, "scale": np.float32(n), "prompt": "fold", "odd": False}
    answer = client.infer(sent)
    expected = state * np.float32(n) + image.astype(np.float32).mean()
    assert np.array_equal(answer["state"], state) and answer["state"].dtype == np.float32
    assert np.allclose(answer["actions"], expected, rtol=1e-5) and answer["prompt"] == "fold"
    found.append(sorted(answer["server_timing"]))
try:
    client.infer({"odd": True})
except RuntimeError as error:
    failed = str(error)
assert client.infer(sent)["prompt"] == "fold"
metadata = client.get_server_metadata()
print(json.dumps({"metadata": metadata, "timing": [found[0], found[-1]], "failed": failed}))
"""


def act(given: dict[str, Any]) -> dict[str, Any]:
    if given["odd"]:
        raise ValueError("an odd observation")
    seen = given["observation"]
    actions = seen["state"] * given["scale"] + seen["image"].float().mean()
    return {"actions": actions, "state": seen["state"], "prompt": given["prompt"]}


def test_the_client_of_openpi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients.LOG, "disabled", True)
    act.metadata = {"horizon": 2, "names": ["a", "b"]}  # pyright: ignore[reportFunctionMemberAccess]
    with clients.running(act, api_key="secret") as server:
        command = [PYTHON, "-c", PROGRAM, str(server.port)]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=clients.PATIENCE_S
        )
        assert done.returncode == 0, done.stderr
        key = {"Authorization": "Api-Key secret"}
        page = server.get("/metrics", key)[1]
    told = json.loads(done.stdout)
    assert told["metadata"] == {"horizon": 2, "names": ["a", "b"]}
    assert told["timing"] == [["infer_ms", "wait_ms"], ["infer_ms", "prev_total_ms", "wait_ms"]]
    assert told["failed"].endswith("ValueError: an odd observation")
    assert 'rote_serve_requests_total{outcome="answered"} 31' in page
    assert "rote_recordings 1\n" in page
