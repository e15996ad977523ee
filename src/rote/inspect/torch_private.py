"""What PyTorch offers only under private names, seen in 2.11 and 2.13: the structured log for tlparse."""

from __future__ import annotations

import json
from typing import Any

import torch._logging._internal as internal


def structured_log_is_open() -> bool:
    """Whether somebody keeps the structured log (``TORCH_TRACE``).

    A handler is always there: PyTorch's own, which has a folder if the log is kept. Handlers of others do not
    count; a test framework has one on each logger.
    """
    return any([getattr(each, "root_dir", None) for each in internal.trace_log.handlers])


def write_artifact(name: str, content: Any) -> None:
    """Add an artifact in JSON to the structured log, if somebody keeps it."""
    if not structured_log_is_open():
        return
    internal.trace_structured(
        "artifact",
        metadata_fn=lambda: {"name": name, "encoding": "json"},
        payload_fn=lambda: json.dumps(content, indent=1),
        expect_trace_id=False,
    )
