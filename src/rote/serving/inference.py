"""One inference: an observation comes in, a message goes out. It runs on the thread of the policy."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .policy import Served
from .writing import encode, plain


@dataclass(frozen=True)
class Reply:
    """The answer to a request.

    Attributes:
        waited_s: From the request to the beginning of the inference.
        infer_s: What the policy took, its results on the host.
    """

    message: bytes
    waited_s: float
    infer_s: float


def inference(served: Callable[[], Served], observation: Any, came: float, last_s: float | None) -> Reply:
    """Ask the policy, and write its answer.

    The answer is written here, before the next call: a policy may use the memory of its results again. It has
    ``server_timing``, and ``policy_timing`` where the policy has none itself, in milliseconds.

    Args:
        served: What is asked; whatever is served when the call begins.
        came: When, by ``time.monotonic()``.
        last_s: What the last request of this client took altogether.

    Raises:
        MisuseError: The result cannot be sent.
        Exception: Whatever the policy raises.
    """
    begun = time.monotonic()
    result: Mapping[Any, Any] = plain(served().infer(observation))
    infer_s = time.monotonic() - begun
    timing = {"infer_ms": infer_s * 1e3, "wait_ms": (begun - came) * 1e3}
    if last_s is not None:
        timing["prev_total_ms"] = last_s * 1e3
    policy_timing = {"policy_timing": {"infer_ms": infer_s * 1e3}}
    message = encode({**policy_timing, **result, "server_timing": timing})
    return Reply(message, begun - came, infer_s)
