"""Policies of lerobot, plain and graphed: the same actions, to the bit."""

from __future__ import annotations

import copy
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from tests.integrations.lerobot.building import (
    KINDS,
    build,
    explained,
    observation,
    pair,
    replays,
)

import rote
from rote.integrations.lerobot import graph_policy, graphed

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
EACH = pytest.mark.parametrize("kind", KINDS)


def acted(policy: Any, kind: str, steps: int, device: torch.device, *, bf16: bool = False) -> list[Any]:
    """Actions of one episode after a reset, and the generator behind them."""
    policy.reset()
    torch.manual_seed(0)
    found = list[Any]()
    for step in range(steps):
        with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            found.append(policy.select_action(observation(kind, step, device)).clone())
    return [*found, torch.rand(1, device=device)]


def assert_equal(found: list[Any], wanted: list[Any]) -> None:
    assert len(found) == len(wanted)
    for step, (ours, theirs) in enumerate(zip(found, wanted, strict=True)):
        assert torch.equal(ours, theirs), f"step {step}"


@EACH
@pytest.mark.parametrize("bf16", [False, True], ids=["float32", "autocast"])
def test_episodes_are_equal_to_the_bit(kind, bf16, tmp_path, device):
    plain, ours = pair(kind, tmp_path, device)
    for _ in range(2):  # a reset begins a queue anew
        wanted = acted(plain, kind, 44, device, bf16=bf16)
        assert_equal(acted(ours, kind, 44, device, bf16=bf16), wanted)
    assert not torch.equal(wanted[0], wanted[9])
    assert replays(ours) >= 8, explained(ours)


@EACH
def test_chunks_and_batches(kind, tmp_path, device):
    plain, ours = pair(kind, tmp_path, device)
    for number in range(5):
        for batch in (1, 3):
            chunks = []
            for policy in (plain, ours):
                policy.reset()
                torch.manual_seed(number)
                given = observation(kind, number, device, batch)
                policy.select_action(dict(given))  # fills the history
                given["observation.images"] = given["observation.image"][:, None]  # it asks for that
                chunks.append(policy.predict_action_chunk(given))
            assert torch.equal(*chunks) and chunks[0].shape[0] == batch
    (chunk_maker,) = [each for each in graphed(ours) if each.report().calls]
    assert len(chunk_maker.report().recordings) == 2 and replays(ours) >= 10, explained(ours)


def test_act_with_a_temporal_ensemble(tmp_path, device):
    """The average over chunks is Python state of the policy, and stays outside."""
    plain, ours = pair("act", tmp_path, device, temporal_ensemble_coeff=0.01, n_action_steps=1)
    assert_equal(acted(ours, "act", 12, device), acted(plain, "act", 12, device))
    assert replays(ours) == 10, explained(ours)


def test_diffusion_with_noise_of_the_caller(tmp_path, device):
    plain, ours = pair("diffusion", tmp_path, device)
    for number in range(6):
        noise = torch.randn(1, 16, 2, generator=torch.Generator().manual_seed(number)).to(device)
        actions = []
        for policy in (plain, ours):
            policy.reset()
            actions.append(policy.select_action(observation("diffusion", number, device), noise=noise))
        assert torch.equal(*actions)
    assert replays(ours) >= 3, explained(ours)


@EACH
def test_actions_follow_the_weights(kind, tmp_path, device):
    plain, ours = pair(kind, tmp_path, device)
    before = acted(ours, kind, 33, device)
    for policy in (plain, ours):
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter.mul_(1.25)
    after = acted(ours, kind, 33, device)
    assert_equal(after, acted(plain, kind, 33, device))
    assert not torch.equal(before[-2], after[-2])


def test_a_copy_has_weights_of_its_own(tmp_path, device):
    plain, ours = pair("act", tmp_path, device)
    acted(ours, "act", 33, device)
    twin = copy.deepcopy(ours)
    with torch.no_grad():
        twin.model.action_head.bias.add_(1)
    assert_equal(acted(ours, "act", 9, device), acted(plain, "act", 9, device))
    torch.testing.assert_close(acted(twin, "act", 1, device)[0], acted(ours, "act", 1, device)[0] + 1)
    assert ours.state_dict().keys() == plain.state_dict().keys()


# ---------------------------------------------------------------------- real-time chunking


def with_rtc(policy: Any, schedule: str, **others: Any) -> Any:
    from lerobot.configs.types import RTCAttentionSchedule
    from lerobot.policies.rtc.configuration_rtc import RTCConfig

    policy.config.rtc_config = RTCConfig(
        enabled=True, prefix_attention_schedule=RTCAttentionSchedule(schedule), execution_horizon=8, **others
    )
    policy.init_rtc_processor()
    return policy


@pytest.mark.parametrize("schedule", ["ZEROS", "ONES", "LINEAR", "EXP"])
def test_real_time_chunking(schedule, tmp_path, device):
    """A gradient inside of each denoising step, and what is left of the last chunk, of different lengths."""
    plain, ours = (with_rtc(each, schedule) for each in pair("smolvla", tmp_path, device))
    left = {plain: None, ours: None}
    for number in range(24):
        delay = 2 + number % 2
        chunks = []
        for policy in (plain, ours):
            torch.manual_seed(number)
            chunk = policy.predict_action_chunk(
                observation("smolvla", number, device),
                inference_delay=delay,
                prev_chunk_left_over=left[policy],
            )
            left[policy] = chunk[:, 6 + delay :]
            chunks.append(chunk)
        assert torch.equal(*chunks), number
    assert replays(ours) >= 15, explained(ours)


def test_guidance_without_a_chunk_before(tmp_path, device):
    plain, ours = (with_rtc(each, "EXP") for each in pair("smolvla", tmp_path, device))
    for number in range(6):
        chunks = []
        for policy in (plain, ours):
            torch.manual_seed(number)
            chunks.append(
                policy.predict_action_chunk(
                    observation("smolvla", number, device), inference_delay=0, prev_chunk_left_over=None
                )
            )
        assert torch.equal(*chunks)
    assert replays(ours) == 4, explained(ours)


# ---------------------------------------------------------------------- a server's threads


def test_the_policy_of_an_asynchronous_server(tmp_path, device):
    """lerobot's gRPC server calls ``predict_action_chunk`` on threads of a pool."""
    pytest.importorskip("grpc")
    from lerobot.async_inference.configs import PolicyServerConfig
    from lerobot.async_inference.policy_server import PolicyServer

    plain, ours = pair("act", tmp_path, device)
    server = PolicyServer(PolicyServerConfig(host="127.0.0.1", port=8080))
    server.policy, server.actions_per_chunk = ours, 8
    wanted = [plain.predict_action_chunk(observation("act", number, device))[:, :8] for number in range(24)]
    with ThreadPoolExecutor(4) as threads:
        given = [observation("act", number, device) for number in range(24)]
        found = list(threads.map(server._get_action_chunk, given))
    assert_equal(found, wanted)
    assert replays(ours) >= 12, explained(ours)


# ---------------------------------------------------------------------- what lerobot compiles


def test_what_is_compiled_is_recorded_as_it_is_written(tmp_path, caplog, monkeypatch, device):
    def compile_nothing(graph, inputs):
        raise AssertionError("nothing is compiled")

    inductor = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, mode: inductor(function, backend=compile_nothing))
    plain = build("smolvla", tmp_path, device)
    compiled = build("smolvla", tmp_path, device, compile_model=True)
    compiled.load_state_dict(plain.state_dict())
    with caplog.at_level(logging.WARNING, "rote"):
        graph_policy(compiled)
    assert "records sample_actions as it is written" in caplog.text and "forward as it is" in caplog.text
    assert_equal(acted(compiled, "smolvla", 33, device), acted(plain, "smolvla", 33, device))
    assert replays(compiled) >= 2, explained(compiled)


# ---------------------------------------------------------------------- what does not fit


def test_other_types_are_refused_with_a_sentence():
    from lerobot.policies.vqbet.modeling_vqbet import VQBeTPolicy

    with pytest.raises(
        rote.MisuseError,
        match=r"graph_policy knows policies of type act, diffusion, pi0, pi05, smolvla, and this VQBeTPolicy "
        r"is of type vqbet; pass a policy of type act, .* policy\.model\.METHOD = rote\.graph\(",
    ):
        graph_policy(object.__new__(VQBeTPolicy))


def test_a_second_call_is_refused(tmp_path, device):
    _, ours = pair("act", tmp_path, device)
    with pytest.raises(rote.MisuseError, match=r"ACT\.forward is graphed already; leave the second call out"):
        graph_policy(ours)


def test_wrong_options_change_nothing(tmp_path, device):
    policy = build("act", tmp_path, device)
    with pytest.raises(rote.OptionError, match="warmups is no option"):
        graph_policy(policy, warmups=2)
    assert graphed(policy) == []
