"""Models of transformers, without memory for their weights."""

from __future__ import annotations

import pytest
import torch
from tests.checker.afresh import check_or_skip

from rote.checker.entry import check_work

pytestmark = pytest.mark.transformers
transformers = pytest.importorskip("transformers")


def decoder():
    config = transformers.LlamaConfig(
        hidden_size=512, num_hidden_layers=3, intermediate_size=1376, num_attention_heads=8, vocab_size=8000
    )
    with torch.device("cuda"):
        return transformers.LlamaForCausalLM(config).eval(), torch.zeros(2, 128, dtype=torch.long)


def test_a_decoder_forward():
    def build():
        model, ids = decoder()
        return torch.no_grad()(lambda ids: model(ids, use_cache=False).logits), (ids,), {}

    findings = check_work(build)
    assert findings.ok and not findings and findings.operations > 75, str(findings)


def test_a_decoder_with_an_attention_mask():
    def build():
        model, ids = decoder()
        mask = torch.ones_like(ids)
        return torch.no_grad()(lambda ids, mask: model(ids, attention_mask=mask).logits), (ids, mask), {}

    findings = check_work(build)
    assert findings.ok, str(findings)


def test_a_decoder_step_of_training():
    def build():
        model, ids = decoder()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=True)

        def step(ids):
            optimizer.zero_grad()
            loss = model(ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            return loss

        return step, (ids,), {}

    findings = check_or_skip(build)
    assert findings.ok, str(findings)


@pytest.mark.long
def test_pi0_at_full_size():
    """The policy of transformers 5.23 can be captured as it is; that of 5.17 has two places that cannot.

    There a Boolean mask selects the image features, and a scalar is put into the attention mask.
    """

    def build():
        from examples.pi0_policy import Tabletop, build_policy, noise_sequence

        policy = build_policy("full", torch.device("cuda"), torch.bfloat16)
        (noise,) = noise_sequence(policy, 1, seed=0)
        observation = Tabletop(policy, 2, seed=0).observe()
        return torch.no_grad()(policy.sample_actions), (), {**observation, "noise": noise}

    findings = check_work(build, limit_s=200)
    version = tuple(int(part) for part in transformers.__version__.split(".")[:2])
    expected = {"RT111", "RT124"} if version < (5, 18) else set()
    assert {finding.code for finding in findings} == expected and not findings.incomplete, str(findings)
    assert len(findings) == len(expected) and findings.operations > 10_000
