"""Memory of a decoder's intermediates on the host: 12-layer Llama forward, hidden 512, 2 x 128 tokens, sdpa.

Every operation of a tape that keeps its own output would hold the sum of all outputs. The host backend lets
an intermediate take memory of its size whose last reader has run; ``bytes_held`` is what is left.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from transformers import LlamaConfig, LlamaForCausalLM

import rote

from .common import Outcome, Settings, describe, first_fast_call, time_calls

NEEDS_GPU = False
VOCABULARY = 8000
TOKENS = (2, 128)


class Produced(TorchDispatchMode):
    """Adds up the storages that operations make. They are kept, so that no address is counted for two."""

    def __init__(self) -> None:
        super().__init__()
        self.storages: dict[int, torch.UntypedStorage] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        known = {_storage(leaf)._cdata for leaf in tree_iter((args, kwargs)) if isinstance(leaf, Tensor)}
        result = func(*args, **(kwargs or {}))
        for leaf in tree_iter(result):
            if isinstance(leaf, Tensor) and _storage(leaf)._cdata not in known:
                self.storages[_storage(leaf)._cdata] = _storage(leaf)
        return result

    def total(self) -> int:
        """Bytes of all of them."""
        return sum(storage.nbytes() for storage in self.storages.values())


def build() -> LlamaForCausalLM:
    """The decoder with random weights."""
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=512,
        num_hidden_layers=12,
        num_attention_heads=8,
        intermediate_size=1024,
        vocab_size=VOCABULARY,
        use_cache=False,
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config).eval()


@torch.no_grad()
def run(settings: Settings) -> Outcome:
    """Bytes made and bytes held, equality on new tokens, time in turns."""
    out = Outcome()
    model = build()
    rng = torch.Generator().manual_seed(1)
    inputs = [torch.randint(0, VOCABULARY, TOKENS, generator=rng) for _ in range(4)]

    def forward(ids: Tensor) -> Tensor:
        return model(input_ids=ids, use_cache=False).logits

    with Produced() as produced:
        logits = forward(inputs[0])
    graphed = rote.graph(forward, backend="host", keep=True)
    out.facts["first fast call"] = first_fast_call(graphed, lambda: graphed(inputs[0]), torch.device("cpu"))
    same = [torch.equal(forward(ids), graphed(ids)) for ids in inputs]
    out.checks["logits bitwise equal on new tokens"] = all(same)
    ways = {"eager": lambda: forward(inputs[1]), "rote": lambda: graphed(inputs[1])}
    out.add("forward, 2 x 128 tokens", time_calls(ways, settings, rounds=20))
    out.ratio("forward, 2 x 128 tokens", "eager", "rote")

    about = describe(graphed)
    held = sum(recording["bytes_held"] for recording in about["recordings"])
    out.facts["bytes of the logits, which escape"] = _storage(logits).nbytes()
    out.facts["bytes of intermediates without reuse"] = produced.total() - _storage(logits).nbytes()
    out.facts["bytes held by the recording, logits and all"] = held
    out.facts["bytes held besides the logits"] = held - _storage(logits).nbytes()
    out.facts["rote"] = about
    graphed.reset()
    return out


def _storage(tensor: Tensor) -> torch.UntypedStorage:
    return tensor.untyped_storage()
