"""A policy of lerobot, graphed in place.

The policy stays the object that it was: its queue, ``reset``, ``state_dict`` and training scripts know
nothing of it. Observations, their transforms and the queue run as Python code.

lerobot compiles ``sample_actions`` and ``forward`` of pi0, pi0.5 and SmolVLA where the configuration says
``compile_model``. What is recorded is the method as it is written, with the results of eager, and the log
says so. The U-Net of a diffusion policy that is compiled lies inside of what is recorded, and stays compiled.
"""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar, Unpack

from ...api import Graphed, OptionKeywords, graph
from ...base import MisuseError
from ..methods import Hook, held_by
from .kinds import KINDS, LEROBOT, PolicyKind

_T = TypeVar("_T")
_CALLER = "graph_policy"
_TYPE = Hook(LEROBOT, "name", "the type of a policy", str)


def graph_policy(policy: _T, **options: Unpack[OptionKeywords]) -> _T:
    """Graph the action chunks and the losses of a policy, in place.

    Every way to them goes through it: ``select_action`` with its queue, ``predict_action_chunk`` with
    real-time chunking, lerobot's servers and scripts, and ``forward`` of a training step, whose ``backward``
    replays too. What is not called is not recorded. Weights may be loaded, quantized or trained later.

    Args:
        policy: A policy of type ``act``, ``diffusion``, ``pi0``, ``pi05`` or ``smolvla``.
        **options: See :class:`rote.Options`.

    Returns:
        The same object.

    Raises:
        MisuseError: The policy is of another type, lacks an attribute that lerobot's have, or is graphed.
        OptionError: An option is unknown or has an impossible value.
    """
    kind = _kind_of(policy)
    network = kind.network.of(policy, _CALLER)
    for part in kind.parts:  # all of them before the first is replaced
        part.hook.plain(network, _CALLER)
    for part in kind.parts:
        part.hook.replace(network, partial(part.put, network, partial(graph, **options)), _CALLER)
    return policy


def graphed(policy: Any) -> list[Graphed]:
    """The graphed callables of a policy, each with ``report()``, ``explain()`` and ``reset()``.

    Args:
        policy: What :func:`graph_policy` was given.

    Raises:
        MisuseError: The policy is of another type, or lacks an attribute that lerobot's have.
    """
    kind = _kind_of(policy)
    return held_by([kind.network.of(policy, "graphed")], [part.hook.name for part in kind.parts])


def _kind_of(policy: Any) -> PolicyKind:
    """What of this policy is graphed.

    Raises:
        MisuseError: As above.
    """
    name = _TYPE.of(policy, _CALLER)
    if name not in KINDS:
        raise MisuseError(
            f"{_CALLER} knows policies of type {', '.join(KINDS)}, and this {type(policy).__name__} is of "
            f"type {name}; {LEROBOT.remedy(policy)}"
        )
    return KINDS[name]
