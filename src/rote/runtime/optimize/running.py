"""Runs operations and kernels: into a session, or at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..backends.protocol import KernelLaunch, NumberCell, Segment, Session, raw_call, replaced
from ..compiling import KernelSource
from ..fusion import DeviceKernels
from ..operators import composite_call
from ..program import Operation, Token
from ..pytorch import undispatched
from .alternatives import Alternative, JointAlternative, Operands, memory_for
from .effects import LeftAloneError


class RanOperation(NamedTuple):
    """An operation that has run, by its index: with what, and what it gave."""

    number: int
    operation: Operation
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    result: Any


class RunningSession(Session):
    """Takes the place of a session: what it is given runs at once, into memory of its own."""

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operation."""
        args, kwargs = replaced(NumberCell, "value", args, kwargs)
        return raw_call(func)(*args, **kwargs)

    def end(self) -> Segment | None:
        """Nothing was captured."""
        return None

    def launch(self, launch: KernelLaunch) -> None:
        """Launch a kernel."""
        launch.kernel(launch.tensors, launch.reals, launch.integers)


class _Handing(TorchDispatchMode):
    """Hands each operation to a runner, so that what PyTorch code calls is captured."""

    def __init__(self, run: AlternativeRunner) -> None:
        super().__init__()
        self._run = run

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._run(func, args, kwargs or {})


@dataclass(frozen=True)
class AlternativeRunner:
    """Runs what an alternative consists of."""

    session: Session
    device: DeviceKernels

    def __call__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one operation. One without a kernel of its own is taken apart: no mode sees its parts below."""
        apart = composite_call(func)
        if apart is not None:
            with _Handing(self):
                return apart(*args, **kwargs)
        with undispatched():
            return self.session.run(func, args, kwargs)

    def launch(
        self, source: KernelSource, given: Sequence[torch.Tensor], made: Sequence[torch.Tensor]
    ) -> None:
        """Launch a kernel.

        Raises:
            LeftAloneError: It is not loaded.
        """
        kernel = self.device.loaded(source)
        if kernel is None:
            raise LeftAloneError("a kernel of an alternative is not that which was tried")
        with undispatched():
            self.session.launch(KernelLaunch(kernel, given, made))

    def calculated(
        self, alternative: Alternative, operation: Operation, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> list[Any]:
        """What an alternative gives in the place of an operation, laid out as that lays out its result."""
        with _Handing(self):
            found = alternative.calculate(self, *args, **kwargs)
        return [self._laid_out(found, operation), *[None for _ in operation.results[1:]]]

    def together(
        self, joint: JointAlternative, operations: Sequence[Operation], given: Sequence[Operands]
    ) -> list[torch.Tensor]:
        """What an alternative gives in the place of several operations, laid out likewise."""
        with _Handing(self):
            found = joint.calculate(self, given)
        return [self._laid_out(each, operation) for each, operation in zip(found, operations, strict=True)]

    def _laid_out(self, found: torch.Tensor, operation: Operation) -> torch.Tensor:
        """A result as the operation lays it out."""
        token = operation.results[0]
        wanted = (token.stride, token.offset) if isinstance(token, Token) else None
        if not isinstance(token, Token) or (found.stride(), found.storage_offset()) == wanted:
            return found
        target = memory_for(self, found, token.shape, token.stride, token.dtype)
        self(torch.ops.aten.copy_.default, (target, found), {})
        return target
