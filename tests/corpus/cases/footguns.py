"""Programs of the footgun suite whose hazard is in the callable; the labels stand beside their lines there."""

from __future__ import annotations

import functools
from typing import Any

import torch

from ...footguns.case import Case as Footgun
from ...footguns.cases import host_values, modes, state
from ..case import Built, Case


class _Met(BaseException):
    """The program has called what it graphs."""


def taken(footgun: Footgun) -> Case:
    """The callable of a program, with the arguments of the first call."""

    @functools.wraps(footgun.program)
    def build(device: Any) -> Built:
        met: list[Any] = []

        def wrap(fn: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                met.append((functools.partial(fn, **kwargs) if kwargs else fn, args))
                raise _Met

            return call

        try:
            next(footgun.program(wrap, torch.device(device)))
        except _Met:
            pass
        return met[0]

    return Case(build)
