"""Optimizers that cannot replay as they are, and the line to change.

An optimizer made without ``capturable`` or ``fused`` reads its step count on the host, computes the bias
corrections in Python, and hands its kernels other numbers at every step. A graph would repeat the first ones.
Such a read happens inside ``step()`` and reads a tensor of the optimizer's state that the same call has
changed. The call then stays eager from its first observation, instead of making a recording for each value.

Hyperparameters are Python numbers under guard: a schedule that changes one at every call leads to a new state
at every call. A learning rate in a tensor is changed in place, if the optimizer takes a tensor.

The line to change is the one that makes the optimizer. PyTorch does not remember it. It is looked up in the
sources of the functions at hand, and taken if they mention the class in one call and nowhere else.
"""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Iterable
from functools import lru_cache
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch.optim.swa_utils import AveragedModel

from ...base import Site, is_internal
from ...hazards import rules
from ...hazards.rules import Reason, reason
from ..state import Difference

_NO_FUSED_ON_CUDA = frozenset({"Adagrad"})
_OUTSIDE = "leave backward() and optimizer.step() outside of the graphed callable"


class Stepping(NamedTuple):
    """An optimizer in ``step()``, and the source files of the functions on the stack, innermost first."""

    optimizer: torch.optim.Optimizer
    files: list[str]


def stepping() -> Stepping | None:
    """The optimizer whose ``step()`` is running, if one is."""
    frame: FrameType | None = sys._getframe(1)
    found: torch.optim.Optimizer | None = None
    files: list[str] = []
    while frame is not None:
        code = frame.f_code
        if found is None and code.co_name == "step" and code.co_varnames[:1] == ("self",):
            owner = frame.f_locals.get("self")
            found = owner if isinstance(owner, torch.optim.Optimizer) else None
        if not is_internal(code.co_filename) and code.co_filename not in files:
            files.append(code.co_filename)
        frame = frame.f_back
    return Stepping(found, files) if found is not None else None


def count_reason(running: Stepping, tensor: torch.Tensor, site: Site) -> Reason | None:
    """Why a call cannot be recorded whose optimizer reads a state tensor that changes at every step."""
    optimizer = running.optimizer
    handle = tensor.untyped_storage()._cdata
    for index, group in enumerate(optimizer.param_groups):
        for parameter in group["params"]:
            for key, value in optimizer.state.get(parameter, {}).items():
                dense = isinstance(value, torch.Tensor) and value.layout is torch.strided
                if dense and value.untyped_storage()._cdata == handle:
                    return _count_reason(running, index, key, parameter.device, site)
    return None


def _count_reason(running: Stepping, index: int, key: str, device: torch.device, site: Site) -> Reason:
    optimizer = running.optimizer
    group = optimizer.param_groups[index]
    flags = "".join(f", {name}={group[name]}" for name in ("capturable", "fused") if name in group)
    made = construction(optimizer, running.files)
    text = f"{_name(optimizer)}.step() reads state['{key}'] on the host at every step (group {index}{flags})"
    if made is not None:
        text += f"; step() is called at {site}"
    return Reason(rules.OPTIMIZER_COUNT.code, text, made or site, _count_remedy(optimizer, index, device))


def _flag(optimizer: torch.optim.Optimizer, group: dict[str, Any], device: torch.device) -> str | None:
    """The option that keeps an optimizer's numbers on the device; None if it has none there."""
    on_cuda = device.type == "cuda"
    if on_cuda and "capturable" in group:
        return "capturable"
    has_fused = "fused" in group and not (on_cuda and type(optimizer).__name__ in _NO_FUSED_ON_CUDA)
    return "fused" if has_fused else None


def _count_remedy(optimizer: torch.optim.Optimizer, index: int, device: torch.device) -> str:
    """The line that makes the optimizer, as it has to be."""
    name, group = _name(optimizer), optimizer.param_groups[index]
    flag = _flag(optimizer, group, device)
    if flag is None:
        usual = "capturable" if device.type == "cuda" else "fused"
        return (
            f"{name} has no {usual}=True on this device: use an optimizer that has, as "
            f"torch.optim.AdamW(params, ..., {usual}=True), or {_OUTSIDE}."
        )
    if optimizer.defaults.get(flag):  # the group does not have what the optimizer was made with
        return (
            f'Set state_dict["param_groups"][{index}]["{flag}"] = True before load_state_dict, or give the '
            f"group {flag}=True: the optimizer has it, the group has not."
        )
    return f"{name}(params, ..., {flag}=True)"


def rate_read_reason(running: Stepping, site: Site) -> Reason | None:
    """The reason for too many values of a host read in ``step()``, if it can be a learning rate."""
    optimizer = running.optimizer
    for index, group in enumerate(optimizer.param_groups):
        if isinstance(group.get("lr"), torch.Tensor):
            text = f"{_name(optimizer)}.step() reads param_groups[{index}]['lr'] on the host, and it changes"
            made = construction(optimizer, running.files)
            remedy = _rate_remedy(optimizer, index, "lr")
            return Reason(rules.HYPERPARAMETER.code, text, made or site, remedy)
    return None


def average_reason(site: Site) -> Reason | None:
    """The reason for too many values of a host read in ``AveragedModel.update_parameters()``."""
    frame: FrameType | None = sys._getframe(1)
    known = AveragedModel.update_parameters.__code__
    while frame is not None:
        # By name: what runs may be code made of it, which notes reads, or which Dynamo has compiled.
        code = frame.f_code
        if code.co_qualname == known.co_qualname and code.co_filename == known.co_filename:
            text = "AveragedModel.update_parameters() reads 1 / (n_averaged + 1) on the host at every call"
            return reason(rules.AVERAGE_COUNT, text, site)
        frame = frame.f_back
    return None


def rate_reason(difference: Difference, files: Iterable[str], site: Site | None) -> Reason | None:
    """Why a recording does not fit when a hyperparameter has changed; None if something else has."""
    group, key = difference.group, difference.key
    optimizer = group.optimizer() if group is not None else None
    if group is None or optimizer is None or not isinstance(key, str) or key == "params":
        return None
    value: Any = optimizer.param_groups[group.number].get(key)
    what = f"{difference.name} was replaced by {value}" if isinstance(value, (tuple, list)) else difference
    text = f"{what} ({_name(optimizer)}, group {group.number})"
    made = construction(optimizer, files)
    remedy = _rate_remedy(optimizer, group.number, key)
    return Reason(rules.HYPERPARAMETER.code, text, made or site, remedy)


def _rate_remedy(optimizer: torch.optim.Optimizer, index: int, key: str) -> str:
    """The line that makes the optimizer so that its learning rate can change without a new recording."""
    group = optimizer.param_groups[index]
    if key != "lr":
        cycle = " (OneCycleLR and CyclicLR: cycle_momentum=False)" if key in ("momentum", "betas") else ""
        return f"Keep {key} constant{cycle}, change it seldom (each value needs a recording), or {_OUTSIDE}."
    device = next((parameter.device for parameter in group["params"]), torch.device("cpu"))
    rate = group.get("initial_lr", optimizer.defaults.get("lr", group["lr"]))
    place = f', device="{device.type}"' if device.type != "cpu" else ""
    shown = "..." if isinstance(rate, torch.Tensor) else f"torch.tensor({rate:.6g}{place})"
    flag = _flag(optimizer, group, device)
    if flag is None:
        return f"{_name(optimizer)} takes its learning rate as a number; keep it constant, or {_OUTSIDE}."
    line = f"{_name(optimizer)}(params, lr={shown}, {flag}=True)"
    by_hand = f'set it by hand with optimizer.param_groups[{index}]["lr"].fill_(...)'
    return f"{line}: schedulers then change it in place, and it is read on the device ({by_hand})."


# ---------------------------------------------------------------------- where an optimizer is made


def construction(optimizer: torch.optim.Optimizer, files: Iterable[str]) -> Site | None:
    """The line that makes an optimizer, if the files mention its class nowhere but in one call."""
    found = [site for file in dict.fromkeys(files) for site in _mentions(file, type(optimizer).__name__)]
    return found[0] if len(found) == 1 else None


@lru_cache(maxsize=256)
def _mentions(file: str, name: str) -> tuple[Site | None, ...]:
    """The calls of a class in a source file; None for each other mention of it."""
    source = "".join(linecache.getlines(file))
    if name not in source:
        return ()
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ()
    nodes = list(ast.walk(tree))
    called = {id(node.func): node.lineno for node in nodes if isinstance(node, ast.Call)}
    mentions = [node for node in nodes if _mentioned(node) == name]
    return tuple(Site(file, called[id(node)], "") if id(node) in called else None for node in mentions)


def _mentioned(node: ast.AST) -> object:
    """The name that an expression mentions: of a variable, of an attribute, or as a string."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    return node.value if isinstance(node, ast.Constant) else None


def _name(optimizer: torch.optim.Optimizer) -> str:
    kind = type(optimizer)
    public = getattr(torch.optim, kind.__name__, None) is kind
    return f"torch.optim.{kind.__name__}" if public else kind.__name__
