"""Adapters of peft on transformers' models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import peft
import torch
import transformers
from torch import Tensor

Items = Iterator[Any]


def base(device: Any) -> Any:
    config = transformers.GPT2Config(
        vocab_size=64,
        n_positions=32,
        n_embd=32,
        n_layer=2,
        n_head=4,
        use_cache=False,
        bos_token_id=1,
        eos_token_id=2,
    )
    return transformers.GPT2LMHeadModel(config).to(device)


def low_rank_training(wrap: Any, device: Any) -> Items:
    """LoRA with dropout on the attention of a GPT-2, AdamW over what requires gradients."""
    config = peft.LoraConfig(
        r=4, lora_alpha=8, target_modules=["c_attn"], lora_dropout=0.05, task_type="CAUSAL_LM"
    )
    model = peft.get_peft_model(base(device), config).train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3)

    @wrap
    def step(ids: Tensor) -> Tensor:
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    while True:
        yield step(torch.randint(64, (2, 16)).to(device)), trained


def switched_adapters(wrap: Any, device: Any) -> Items:
    """Two adapters, switched from time to time, and none at all in between."""
    config = peft.LoraConfig(r=4, target_modules=["c_attn"], init_lora_weights=False)
    model = peft.get_peft_model(base(device), config, adapter_name="first").eval()
    model.add_adapter("second", config)
    forward = wrap(model)
    with torch.no_grad():
        while True:
            for name in ("first", "second"):
                model.set_adapter(name)
                for _ in range(10):
                    yield forward(input_ids=torch.randint(64, (1, 8)).to(device)).logits
            with model.disable_adapter():
                for _ in range(5):
                    yield forward(input_ids=torch.randint(64, (1, 8)).to(device)).logits


def prompts(wrap: Any, device: Any) -> Items:
    """Prompt tuning: forward graphed, backward and SGD outside."""
    config = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)
    model = peft.get_peft_model(base(device), config).train()
    forward = wrap(model)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    while True:
        ids = torch.randint(64, (2, 12)).to(device)
        loss = forward(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.detach(), [p for p in model.parameters() if p.requires_grad]
