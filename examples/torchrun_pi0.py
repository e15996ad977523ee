"""Fine-tunes a PI0 policy on several processes, plainly and through rote: every rank has to have equal bits.

    torchrun --nproc-per-node 2 examples/torchrun_pi0.py --device cpu

The policy is that of ``examples/pi0_policy.py``, with random weights and made data. Its vision tower and its
language model stay as they are; the action expert learns, in ``DistributedDataParallel``, with AdamW and
gradients clipped by their global norm. It is the whole step that is graphed. The policy draws its noise and
its timesteps itself, other ones on each rank.

With ``--device cuda`` each rank has a GPU and the policy its real size, and the processes meet over NCCL. The
exit status is 1 if a rank differs, or if nothing was replayed.

With ``--attention sdpa`` on a GPU the backward of the attention adds in another order from run to run: two
plain runs differ as well. That of matrix products and a softmax does not.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import rote

if __package__:
    from .pi0_policy import Tabletop, build_policy, synchronized
else:
    from pi0_policy import Tabletop, build_policy, synchronized


class Trainer:
    """A policy, what trains it, and its step, which is graphed or not."""

    def __init__(self, options: argparse.Namespace, device: torch.device, *, graphed: bool) -> None:
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        self.policy = build_policy("full" if device.type == "cuda" else "small", device, dtype).train()
        self.policy.set_attn_implementation(options.attention)
        for kept in (self.policy.model.vlm, self.policy.model.dit.get_input_embeddings()):
            kept.requires_grad_(False)
        self.learned = [each for each in self.policy.parameters() if each.requires_grad]
        devices = [device] if device.type == "cuda" else None
        self.parallel = DistributedDataParallel(self.policy, device_ids=devices)
        self.optimizer = torch.optim.AdamW(self.learned, lr=1e-4, fused=True)
        self.call: Any = rote.graph(self.step) if graphed else self.step

    def step(self, batch: dict[str, Tensor]) -> Tensor:
        self.optimizer.zero_grad()
        loss = self.parallel(**batch).loss.mean()
        loss.backward()
        nn.utils.clip_grad_norm_(self.learned, 1.0)
        self.optimizer.step()
        return loss.detach()

    def play(self, batch: dict[str, Tensor], number: int) -> tuple[list[Tensor], float]:
        """What has to be equal, and how long the step has taken, in seconds."""
        torch.manual_seed(1000 * number + dist.get_rank())
        began = synchronized(self.policy.device)
        loss = self.call(batch)
        return [loss, *self.learned], synchronized(self.policy.device) - began


def batches(trainer: Trainer, options: argparse.Namespace) -> list[dict[str, Tensor]]:
    """What a world shows to this rank, and the actions that are right there."""
    policy = trainer.policy
    world = Tabletop(policy, options.views, seed=dist.get_rank())
    size = (1, policy.config.chunk_size, policy.config.max_action_dim)
    made: list[dict[str, Tensor]] = []
    for _ in range(options.steps):
        actions = torch.tanh(torch.randn(size)).to(world.state)
        made.append({**world.observe(), "actions": actions})
        world.advance(actions)
    return made


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--views", type=int, default=2)
    parser.add_argument("--attention", choices=("eager", "sdpa"), default="eager")
    parser.add_argument("--out", type=Path, help="where rank 0 writes what came out")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    device = torch.device(options.device)
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    plain, graphed = (Trainer(options, device, graphed=which) for which in (False, True))
    equal, times = 0, ([], [])
    for number, batch in enumerate(batches(plain, options)):
        (one, eager_s), (other, rote_s) = plain.play(batch, number), graphed.play(batch, number)
        equal += all([torch.equal(*pair) for pair in zip(one, other, strict=True)])
        times[0].append(eager_s)
        times[1].append(rote_s)
    report = graphed.call.report()
    last = options.steps // 2
    mine = {
        "rank": dist.get_rank(), "steps": options.steps, "equal": equal, "replayed": report.replayed,
        "eager_ms": statistics.median(times[0][-last:]) * 1e3,
        "rote_ms": statistics.median(times[1][-last:]) * 1e3,
        "reasons": [str(each) for each in report.reasons],
    }  # fmt: skip
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    if dist.get_rank() == 0:
        for row in everyone:
            print(
                f"rank {row['rank']}: {row['replayed']} of {row['steps']} steps replayed, "
                f"{row['eager_ms']:.1f} ms plainly, {row['rote_ms']:.1f} ms through rote, "
                f"bitwise equal: {'yes' if row['equal'] == row['steps'] else 'no'}"
            )
        if options.out:
            name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
            found = {"device": name, "torch": torch.__version__, "ranks": everyone}
            options.out.write_text(json.dumps(found, indent=1))
    dist.destroy_process_group()
    return not all([row["equal"] == row["steps"] and row["replayed"] for row in everyone])


if __name__ == "__main__":
    sys.exit(main())
