"""Functions of TorchScript: tensors of one number that they make where no dispatch mode sees it.

``torch.tensor(n)`` in a script makes a tensor past the dispatcher. What it holds follows from the code, from
the numbers and sizes that the script is given, and from values that it reads, each of which is seen. So such
a tensor is a constant like one that Python code makes. What a script does not make it is given, or it is a
constant of its code: the call of its class is replaced while calls are traced, and says when a script runs.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from ..pytorch import REPLACEMENTS, DispatchMode, calls_python, constants_of, dispatch_modes, has_memory

_SCRIPT: type = torch.jit.ScriptFunction
CALL_OF_SCRIPT: Any = _SCRIPT.__call__
"""What runs a function of TorchScript."""
_PLAIN = (int, float, bool, str, complex, type(None), torch.dtype, torch.device)


class ScriptCall(NamedTuple):
    """A call of a function of TorchScript."""

    script: Any
    args: tuple[Any, ...]
    named: dict[str, Any]

    def run(self) -> Any:
        """What it gives."""
        return CALL_OF_SCRIPT(self.script, *self.args, **self.named)

    def given(self) -> set[int] | None:
        """Handles of the memory that it has from elsewhere; None if that is not known."""
        handles, left = set[int](), [self.args, self.named]
        while left:
            part: Any = left.pop()
            if isinstance(part, (tuple, list)):
                left.extend(part)
            elif isinstance(part, dict):
                left.extend(part.values())
            elif isinstance(part, torch.Tensor):
                if has_memory(part):
                    handles.add(part.untyped_storage()._cdata)
            elif not isinstance(part, _PLAIN):
                return None
        return None if calls_python(self.script) else handles | constants_of(self.script)


def made_by_script(tensor: Any) -> bool:
    """Whether a tensor is of the kind that scripts make unseen: one number on the host."""
    plain = type(tensor) is torch.Tensor and not tensor.dim() and not tensor.requires_grad
    return plain and tensor.is_cpu and has_memory(tensor)


def replaced_in(value: Any, tensors: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> Any:
    """What a script gives, with other tensors in the place of some."""
    for was, now in tensors:
        if value is was:
            return now
    if type(value) in (tuple, list):
        return type(value)([replaced_in(each, tensors) for each in value])
    return value


@contextmanager
def seeing_scripts() -> Generator[None]:
    """A context in which functions of TorchScript are handed to a mode of this thread that meets them."""
    with REPLACEMENTS.replaced(_SCRIPT, "__call__", _call):
        yield


def _call(script: Any, *args: Any, **named: Any) -> Any:
    for mode in dispatch_modes():
        if isinstance(mode, DispatchMode) and mode.meets_compiled:
            return mode.meet_script(ScriptCall(script, args, named))
    return CALL_OF_SCRIPT(script, *args, **named)
