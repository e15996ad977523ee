"""Operations count the versions of what they write as in eager, whatever layer of PyTorch does that."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import rote

CALLS = 5
_MADE = {"Scalar": 1.0, "float": 1.0, "int": 1, "bool": False, "number": 1.0}


def operands(func: Any, device: torch.device) -> list[Any] | None:
    """Operands of an overload that may be meant; None where that cannot be said."""
    found: list[Any] = []
    for each in func._schema.arguments:
        kind = str(each.type)
        if kind == "Tensor":
            result = each.kwarg_only and each.is_out
            found.append(torch.empty(0, device=device) if result else torch.ones(2, device=device))
        elif kind == "List[Tensor]":
            found.append([torch.ones(2, device=device) for _ in range(2)])
        elif kind.startswith("List["):
            found.append([_MADE.get(kind[5:-1], 1)] * 2)
        elif each.has_default_value():
            found.append(each.default_value)
        elif kind in _MADE:
            found.append(_MADE[kind])
        else:
            return None
    return found


def call(func: Any, given: list[Any]) -> Any:
    arguments = func._schema.arguments
    named = {each.name: value for each, value in zip(arguments, given, strict=True) if each.kwarg_only}
    return func(
        *[value for each, value in zip(arguments, given, strict=True) if not each.kwarg_only], **named
    )


def versions(given: list[Any]) -> list[int]:
    parts = [part for each in given for part in (each if isinstance(each, list) else [each])]
    return [part._version for part in parts if isinstance(part, torch.Tensor)]


def names(device: torch.device) -> list[str]:
    """The names of PyTorch's own overloads; on a GPU of those that work on lists: others may crash there."""
    start = "aten::" if device.type == "cpu" else "aten::_foreach_"
    return sorted(name for name in torch._C._dispatch_get_all_op_names() if name.startswith(start))


def overload_of(name: str) -> Any:
    packet, _, which = name.removeprefix("aten::").partition(".")
    found = getattr(getattr(torch.ops.aten, packet, None), which or "default", None)
    return found if found is not None and found._schema.is_mutable else None


_ODD = ("record_stream", "resize", "set_", "sparse", "rename", "_thnn", "_cudnn", "mkldnn", "xpu")
_TOGETHER = 20


def meant(name: str, device: torch.device) -> tuple[Any, list[Any]] | None:
    """An overload that writes, with operands, its results of the right size; None if it takes others."""
    func = overload_of(name)
    given = operands(func, device) if func is not None and not any(map(name.__contains__, _ODD)) else None
    if given is None:
        return None
    try:
        call(func, given)
    except (RuntimeError, IndexError, TypeError, ValueError):
        return None
    return func, given


def all_of(todo: list[tuple[Any, list[Any]]]) -> None:
    for func, given in todo:
        call(func, given)


@pytest.mark.filterwarnings("ignore")
def test_observed_calls_count_versions_as_eager_does(device):
    found = [each for name in names(device) if (each := meant(name, device)) is not None]
    assert len(found) > (300 if device.type == "cpu" else 50)
    for first in range(0, len(found), _TOGETHER):
        todo = found[first : first + _TOGETHER]
        counts: list[Any] = []
        for step in (all_of, rote.graph(all_of)):
            before = [versions(given) for _, given in todo]
            step(todo)
            counts.append([
                (str(func), [now - was for now, was in zip(versions(given), start, strict=True)])
                for (func, given), start in zip(todo, before, strict=True)
            ])  # fmt: skip
        assert counts[0] == counts[1]


OWN = torch.library.Library("rote_versions", "DEF")
OWN.define("grow(Tensor(a!) x) -> ()")


def grow(x: torch.Tensor) -> None:
    x.add_(1.0)


for _key in ("CPU", "CUDA"):
    OWN.impl("grow", grow, _key)

STEPS = {
    "an operation of one's own": lambda kept, x: torch.ops.rote_versions.grow(kept),
    "foreach": lambda kept, x: torch._foreach_add_([kept], 1.0),
    "foreach of tensors": lambda kept, x: torch._foreach_copy_([kept], [x]),
    "foreach into": lambda kept, x: torch.ops.aten._foreach_exp.out([x], out=[kept]),
}


@pytest.mark.parametrize("step", STEPS)
def test_an_older_graph_is_refused_after_each_call(device, step):
    kept, weight = torch.ones(2, device=device), nn.Parameter(torch.ones(2, device=device))

    def run(x):
        STEPS[step](kept, x)
        return x * 2

    graphed = rote.graph(run)
    for _ in range(CALLS):
        loss = (weight * kept).sum()
        graphed(torch.ones(2, device=device))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def into(tensor: torch.Tensor) -> None:
    tensor.mul_(2.0)


WAYS = {
    "it": lambda each: into(each),
    "a part": lambda each: into(each[1:]),
    "what is detached": lambda each: into(each.detach()),
    "its data": lambda each: into(each.data),
    "a part of its data": lambda each: into(each.data[1:]),
    "data of a part": lambda each: into(each[1:].data),
    "its data, then it": lambda each: (into(each.data), into(each)),
    "data of a list": lambda each: torch._foreach_mul_([each.data], 2.0),
    "data as a result": lambda each: torch.exp(each * 1.0, out=each.data),
    "no version": lambda each: kept_version(each),
}
NAMES = "whole", "data", "detached", "part", "leaf", "given"


def kept_version(tensor: torch.Tensor) -> None:
    with torch.autograd._unsafe_preserve_version_counter(tensor):
        into(tensor)


@pytest.mark.parametrize("first", [None, "whole", "data"])
@pytest.mark.parametrize("way", WAYS)
def test_what_is_written_tells_whose_version_changes(device, way, first):
    def changes(name: str, wrap: Any) -> list[list[int]]:
        whole = torch.ones(3, device=device)
        held = {"whole": whole, "data": whole.data, "detached": whole.detach(), "part": whole[:2]}
        held["leaf"] = nn.Parameter(torch.ones(3, device=device))

        @torch.no_grad()
        def run(given: torch.Tensor) -> torch.Tensor:
            start = held[first] * 2.0 if first else given * 2.0
            WAYS[way](held.get(name, given))
            return start

        graphed, found = wrap(run), list[list[int]]()
        for _ in range(CALLS):
            tensors = [*held.values(), torch.ones(3, device=device)]
            before = versions(tensors)
            graphed(tensors[-1])
            found.append([now - was for now, was in zip(versions(tensors), before, strict=True)])
        return found

    for name in NAMES:
        assert changes(name, lambda run: run) == changes(name, rote.graph), name


def test_who_waits_for_a_backward_is_not_refused_for_a_write_past_versions(device):
    layer = nn.Linear(3, 3, device=device)
    other = nn.Linear(3, 3, device=device)

    def decay(rate: torch.Tensor) -> None:
        for parameter in layer.parameters():
            parameter.data.mul_(rate)

    graphed, rate = rote.graph(decay), torch.full((), 0.9, device=device)
    for _ in range(CALLS):
        loss = other(layer(torch.ones(2, 3, device=device).requires_grad_())).sum()
        graphed(rate)
        loss.backward()
    assert graphed.report().replayed
