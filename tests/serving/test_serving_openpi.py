"""A policy of openpi behind ``rote serve``: numpy's transforms run as they do, the model is replayed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rote.integrations.openpi import graph_policy, graphed

pytest.importorskip("transformers")
pytest.importorskip("msgpack", reason="serving needs msgpack: pip install 'rote[serve]'")
clients = pytest.importorskip(
    "tests.serving.clients", reason="serving needs websockets: pip install 'rote[serve]'"
)
building = pytest.importorskip("tests.integrations.openpi.building")

pytestmark = pytest.mark.transformers


def test_actions_are_those_of_the_policy_that_is_not_served() -> None:
    precision = torch.get_float32_matmul_precision()
    plain, policy = (
        building.build_policy(building.build_model(), metadata={"robot": "aloha"}) for _ in range(2)
    )
    policy.graphed = graphed(graph_policy(policy, keep=True))[0]
    with clients.running(policy, warm_up=6) as server, server.client() as client:
        assert client.metadata == {"robot": "aloha"}
        client.infer(building.seen(0))
        for number in range(1, 5):
            torch.manual_seed(number)  # a policy draws its noise
            expected = plain.infer(building.seen(number))
            torch.manual_seed(number)
            answer = client.infer(building.seen(number))
            assert np.array_equal(answer["actions"], expected["actions"])
            assert answer["policy_timing"].keys() == expected["policy_timing"].keys()  # its own
        assert server.metric("rote_replayed_total") >= 4
    torch.set_float32_matmul_precision(precision)
