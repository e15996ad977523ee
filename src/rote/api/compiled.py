"""What a compiler says of the callable that it hands over to be graphed."""

from __future__ import annotations

from dataclasses import dataclass

from ..runtime.arguments import CompiledInput


@dataclass(frozen=True)
class CompiledFrom:
    """Where compiled code comes from. Such code gets at no tensor that is an argument in another way.

    Attributes:
        kernels: Whose kernels it runs: ``"inductor"`` or ``"aten"``.
        inputs: What its arguments are in the program that was compiled; empty where that is not known.
        max_parameter_sets: Calls that differ in their parameters alone have a recording for each set of
            parameters, up to so many sets that are alive.
    """

    kernels: str
    inputs: tuple[CompiledInput, ...]
    max_parameter_sets: int
