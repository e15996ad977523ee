"""Policies of openpi, plain and graphed: the same actions, to the bit."""

from __future__ import annotations

import copy
import logging
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from tests.integrations.openpi.building import build_model, build_policy, noise, observation, seen
from tests.integrations.openpi.model.policy import PolicyRecorder

import rote
from rote.integrations.openpi import graph_policy, graphed
from rote.integrations.torch_compile import backend

pytestmark = pytest.mark.transformers
FEW = 3
"""Steps of the integration, which all do the same; a test of ten names none."""
WARM = 3
"""Calls of a new model before one is replayed: the first one sets how attention is calculated."""


def one(policy: Any) -> rote.Graphed:
    """The only graphed callable of a policy or model."""
    (found,) = graphed(policy)
    return found


@pytest.mark.parametrize(("pi05", "dtype"), [(False, "float32"), (True, "bfloat16")], ids=["pi0", "pi05"])
def test_actions_are_equal_to_the_bit(pi05, dtype, device):
    plain, model = (build_model(pi05=pi05, dtype=dtype, device=device) for _ in range(2))
    assert graph_policy(model) is model
    chunks = []
    for number in range(9):
        given = noise(number, plain).to(device) if number % 2 else None
        torch.manual_seed(number)
        arguments = str(device), observation(number, plain, device), given, FEW
        wanted = plain.sample_actions(*arguments)
        after = torch.randn(1, device=device)
        torch.manual_seed(number)
        found = model.sample_actions(*arguments)
        assert torch.equal(torch.randn(1, device=device), after)  # the generator stands where it would
        assert torch.equal(found, wanted)
        chunks.append((found, wanted))
    assert all(torch.equal(found, wanted) for found, wanted in chunks)  # results stay
    assert not torch.equal(chunks[0][0], chunks[2][0])
    assert one(model).report().replayed == 9 - WARM - 2, one(model).explain()  # with noise: another key


def test_actions_follow_the_weights(device):
    plain, model = (build_model(device=device) for _ in range(2))
    other = build_model(device=device, seed=1).state_dict()
    graph_policy(model)
    chunks = []
    for number in range(9):
        if number == 5:
            for each in (plain, model):
                each.load_state_dict(other)
        if number == 7:
            for each in (plain, model):
                with torch.no_grad():
                    each.action_out_proj.weight.mul_(1.5)
        arguments = str(device), observation(0, plain, device), noise(0, plain).to(device), FEW
        chunks.append(model.sample_actions(*arguments))
        assert torch.equal(chunks[-1], plain.sample_actions(*arguments))
    assert not torch.equal(chunks[4], chunks[5]) and not torch.equal(chunks[6], chunks[7])
    assert one(model).report().replayed == 9 - WARM, one(model).explain()


def test_the_host_reads_the_time_eleven_times_on_one_path(device):
    model = graph_policy(build_model(pi05=True, device=device))
    for number in range(4):
        model.sample_actions(str(device), observation(number, model, device))
    (recording,) = one(model).report().recordings
    assert recording.paths == 1
    assert "RT101), 11 times" in one(model).explain()


def test_steps_and_batches_have_recordings_of_their_own(device):
    plain, model = (build_model(device=device) for _ in range(2))
    graph_policy(model)
    for number in range(4):
        for steps, batch in ((3, 1), (2, 1), (2, 2)):
            given = observation(number, plain, device, batch), noise(number, plain, batch).to(device)
            wanted = plain.sample_actions(str(device), *given, num_steps=steps)
            assert torch.equal(model.sample_actions(str(device), *given, num_steps=steps), wanted)
    assert len(one(model).report().recordings) == 3
    assert one(model).report().replayed == 12 - 3 * 2 - 1


def test_images_of_another_size_are_resized_in_the_recording(device):
    plain, model = (build_model(device=device) for _ in range(2))
    graph_policy(model)
    for number in range(4):
        given = observation(number, plain, device, 2, size=160), noise(number, plain, 2).to(device), FEW
        wanted = plain.sample_actions(str(device), *given)
        assert torch.equal(model.sample_actions(str(device), *given), wanted)
    assert one(model).report().replayed == 4 - WARM


@pytest.mark.parametrize(("pi05", "dtype"), [(False, "bfloat16"), (True, "float32")], ids=["pi0", "pi05"])
def test_a_policy_infers_the_same(pi05, dtype, device):
    plain, policy = (
        build_policy(
            build_model(pi05=pi05, dtype=dtype, device=device), device, sample_kwargs={"num_steps": FEW}
        )
        for _ in range(2)
    )
    assert graph_policy(policy) is policy
    for number in range(7):
        given = noise(number, plain._model)[0].numpy() if number % 2 else None
        torch.manual_seed(number)
        wanted = plain.infer(seen(number), noise=given)
        torch.manual_seed(number)
        found = policy.infer(seen(number), noise=given)
        assert found.keys() == wanted.keys() == {"state", "actions", "policy_timing"}
        for name in ("state", "actions"):
            assert np.array_equal(found[name], wanted[name]) and found[name].dtype == wanted[name].dtype
    assert found["actions"].shape == (policy._model.config.action_horizon, 7)
    assert one(policy).report().replayed == 7 - WARM - 2, one(policy).explain()


def test_keywords_of_a_policy_and_a_recorder_around_it(tmp_path, device):
    plain, policy = (
        build_policy(build_model(device=device), device, sample_kwargs={"num_steps": 4}) for _ in range(2)
    )
    recorder = PolicyRecorder(graph_policy(policy), str(tmp_path))
    for number in range(4):
        torch.manual_seed(number)
        wanted = plain.infer(seen(number))["actions"]
        torch.manual_seed(number)
        assert np.array_equal(recorder.infer(seen(number))["actions"], wanted)
    assert one(policy).report().replayed == 4 - WARM
    kept = np.load(tmp_path / "step_3.npy", allow_pickle=True).item()
    assert np.array_equal(kept["outputs"]["actions"], wanted)


def test_a_copy_of_a_model_has_its_own_weights(device):
    model = graph_policy(build_model(device=device))
    arguments = str(device), observation(0, model, device), noise(0, model).to(device), FEW
    before = [model.sample_actions(*arguments) for _ in range(3)][-1]
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.action_out_proj.bias.add_(1)
    after = [twin.sample_actions(*arguments) for _ in range(4)][-1]
    assert torch.equal(model.sample_actions(*arguments), before) and not torch.equal(after, before)
    assert one(twin) is not one(model) and one(twin).report().replayed == 2


def test_options_are_those_of_rote_graph(device):
    """Strict mode refuses the reads of the time between segments."""
    model = graph_policy(build_model(device=device), strict=True)
    with pytest.raises(rote.NotReplayedError, match=r"RT101 at .*pi0_pytorch\.py:\d+: .*_local_scalar_dense"):
        for number in range(5):
            model.sample_actions(str(device), observation(number, model, device), num_steps=FEW)
    with pytest.raises(rote.OptionError, match="warmups is no option"):
        graph_policy(build_model(), warmups=2)


# ---------------------------------------------------------------------- what openpi compiles


def test_what_is_compiled_is_recorded_as_it_is_written(caplog, monkeypatch, device):
    def compile_nothing(graph, inputs):
        raise AssertionError("nothing is compiled")

    inductor = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda function, mode: inductor(function, backend=compile_nothing)
    )  # as PI0Pytorch calls it
    plain, model = build_model(device=device), build_model(device=device, compiled="max-autotune")
    kwargs = {"num_steps": FEW}
    policy = build_policy(model, device, sample_kwargs=kwargs)
    assert policy._sample_actions is model.sample_actions  # not a method: what torch.compile made
    with caplog.at_level(logging.WARNING, "rote"):
        graph_policy(policy)
    assert "records sample_actions as it is written, with the results of eager" in caplog.text
    reference = build_policy(plain, device, sample_kwargs=kwargs)
    for number in range(4):
        given = noise(number, plain).numpy()
        wanted = reference.infer(seen(number), noise=given)["actions"]
        assert np.array_equal(policy.infer(seen(number), noise=given)["actions"], wanted)
    assert one(policy).report().replayed == 4 - WARM


@pytest.mark.long
def test_compiled_kernels_are_recorded_by_the_backend(device):
    """The way for who wants Inductor's kernels; with ATen's here, which compile in half the time."""
    torch._dynamo.reset()
    plain, model = (build_model(device=device) for _ in range(2))
    options = {"kernels": "aten"}
    plain.sample_actions = torch.compile(plain.sample_actions, backend="aot_eager")
    model.sample_actions = torch.compile(model.sample_actions, backend="rote", options=options)
    for number in range(5):
        arguments = str(device), observation(number, model, device), noise(number, model).to(device)
        assert torch.equal(model.sample_actions(*arguments), plain.sample_actions(*arguments))
    assert sum(each.report().replayed for each in backend.graphed()) > 30, backend.explain()
    torch._dynamo.reset()


# ---------------------------------------------------------------------- what does not fit


class OfJax:
    _is_pytorch_model = False


class Nothing:
    pass


class Later:
    """A policy of a version that calls things by other names."""

    _is_pytorch_model = True

    def __init__(self, model: Any) -> None:
        self._model = model


def test_what_does_not_fit_is_refused_with_a_sentence(tmp_path):
    model = build_model()
    policy = build_policy(model)
    with pytest.raises(
        rote.MisuseError,
        match=r"graph_policy needs Nothing\._is_pytorch_model, whether the model is one of PyTorch in openpi "
        r"at commit 15a9616 \(2026-06-16\), and finds no such attribute; pass what create_trained_policy",
    ):
        graph_policy(Nothing())
    with pytest.raises(
        rote.MisuseError,
        match=r"needs Later\._sample_actions, that method of its model in .* finds no such attribute; .* "
        r"rote\.graph\(\.\.\.\._sample_actions\)",
    ):
        graph_policy(Later(model))
    with pytest.raises(rote.MisuseError, match=r"needs Linear\.sample_actions, .* finds no such attribute"):
        graph_policy(torch.nn.Linear(2, 2))
    with pytest.raises(rote.MisuseError, match=r"pass what the PolicyRecorder wraps, its _policy"):
        graph_policy(PolicyRecorder(policy, str(tmp_path)))
    with pytest.raises(
        rote.MisuseError, match=r"that of the policy is one of JAX; .*convert_jax_model_to_py"
    ):
        graph_policy(OfJax())
    policy._sample_actions = None
    with pytest.raises(rote.MisuseError, match=r"Policy\._sample_actions, .* finds a NoneType"):
        graph_policy(policy)


def test_a_second_call_is_refused():
    policy = build_policy(graph_policy(build_model()))
    with pytest.raises(
        rote.MisuseError, match=r"Policy\._sample_actions is graphed already; leave the second"
    ):
        graph_policy(policy)


@pytest.mark.usefixtures("warm_python")
def test_importing_loads_neither_openpi_nor_transformers():
    code = (
        "import sys, rote.integrations.openpi\n"
        "print([name for name in ('openpi', 'transformers', 'jax', 'flax') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
