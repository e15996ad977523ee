"""Programs that later processes run again: ``python -m tests.plans.programs NAME DIRECTORY CALLS [WORD...]``.

They print what became of each call, as one line of JSON. Words: ``strict``, ``warmup=3``, ``keep``.
"""

from __future__ import annotations

import json
import os
import sys

import torch

import rote

SEEN = []


def mlp():
    layers = [part for _ in range(4) for part in (torch.nn.Linear(16, 16), torch.nn.ReLU())]
    return torch.nn.Sequential(*layers), lambda number: (torch.randn(2, 16),)


class Schedule:
    def __init__(self):
        self.step = 0

    def rate(self):
        self.step += 1
        return 0.1 / (1 + self.step)


def training():
    model, schedule = torch.nn.Linear(4, 4), Schedule()

    def step(x):
        loss = model(x).square().mean()
        gradients = torch.autograd.grad(loss, [*model.parameters()])
        rate = schedule.rate()
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter.sub_(gradient * rate)
        return loss.detach()

    return step, lambda number: (torch.randn(2, 4),)


def numbers():
    return (lambda x, n: x * n + 1), lambda number: (torch.randn(4), 2.0 + number)


def giving_up():
    def grows(x):
        SEEN.insert(0, float(x.sum()))
        return x * sum(SEEN)

    return grows, lambda number: (torch.randn(4),)


def secrets():
    table = {"password": os.environ["SECRET"], "text": "a long text that nobody is to find " * 2, "n": 1}

    def reads(x, prompt):
        table["n"] += len(os.environ["SECRET"]) > 1000
        if x.sum().item() > 1e9 or table["password"] == table["text"] == prompt:
            return x
        return x * torch.tensor(12345.678) * table["n"]

    return reads, lambda number: (torch.full((4,), 7654.321), "another long text that nobody is to find")


def fused():
    def function(x, w):
        for number in range(4):
            mask = torch.ones(16, 16).tril().bool()
            scores = (x @ x.t()).masked_fill(~mask, -1.0)
            x = (x + scores.clamp(-3, 3) * 0.1).abs() * torch.arange(16).float() * number - w
        return x

    x, w = torch.randn(16, 16), torch.randn(16)
    return function, lambda number: (x, w)


def main(name, directory, calls, *words):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    function, arguments = globals()[name]()
    options = {"warmup": 3} if "warmup=3" in words else {}
    options |= {word: True for word in words if word in ("strict", "keep")}
    graphed = rote.graph(function, plans=directory or None, **options)
    happened, raised, results = [], "", []
    with torch.set_grad_enabled(name == "training"):
        for number in range(int(calls)):
            before = graphed.report()
            try:
                results.append(graphed(*arguments(number)))
            except rote.NotReplayedError as error:
                raised = str(error)
                break
            if "wait" in words:
                graphed.wait_until_optimized(timeout_s=60)
            after = graphed.report()
            kind = "replayed" if after.replayed > before.replayed else "plain"
            happened.append("recorded" if after.recorded > before.recorded else kind)
    report = graphed.report()
    tier = report.recordings[0].tier if report.recordings else None
    told = {
        "happened": happened,
        "raised": raised,
        "result": [float(result.double().sum()) for result in results],
        "notes": report.plan.notes if report.plan is not None else None,
        "reasons": report.plan.reasons if report.plan is not None else None,
        "fused": tier is not None and tier.fused is not None,
        "text": graphed.explain(),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
