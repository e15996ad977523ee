"""What PyTorch offers only under private names, seen in 2.11 and 2.13: the structured log for tlparse."""

from __future__ import annotations

import json
from typing import Any

import torch._logging._internal as internal

_log: Any = getattr(internal, "trace_log", None)
_write: Any = getattr(internal, "trace_structured", None)


def structured_log_is_open() -> bool:
    """Whether somebody keeps the structured log (``TORCH_TRACE``); False where there is none.

    A handler is always there: PyTorch's own, which has a folder if the log is kept. Handlers of others do not
    count; a test framework has one on each logger.
    """
    handlers = getattr(_log, "handlers", ())
    return _write is not None and any([getattr(each, "root_dir", None) for each in handlers])


def write_artifact(name: str, content: Any) -> None:
    """Add an artifact in JSON to the structured log, if somebody keeps it."""
    if not structured_log_is_open():
        return
    _write(
        "artifact",
        metadata_fn=lambda: {"name": name, "encoding": "json"},
        payload_fn=lambda: json.dumps(content, indent=1),
        expect_trace_id=False,
    )
