"""Environment variables; no other file reads any."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

ENVIRONMENT = os.environ
"""All variables, as they are now."""

_TRUE = frozenset({"1", "true", "yes", "on"})


@dataclass(frozen=True)
class Settings:
    """Settings of the process.

    Attributes:
        disable: ``ROTE_DISABLE=1``: every wrapper is a plain call.
        strict: ``ROTE_STRICT=1``: every wrapper is strict.
        plans: ``ROTE_PLANS=DIR``: the directory of plans of wrappers whose options name none; empty for none.
        untried_versions: ``ROTE_UNTRIED_VERSIONS=1``: versions of Python and PyTorch that nobody has tried
            are not refused.
        rank: ``RANK``, as ``torchrun`` sets it; None if it says nothing.
    """

    disable: bool = False
    strict: bool = False
    plans: str = ""
    untried_versions: bool = False
    rank: int | None = None


def read_settings() -> Settings:
    """Read the environment now."""
    rank = os.environ.get("RANK", "").strip()
    return Settings(
        disable=_flag("ROTE_DISABLE"),
        strict=_flag("ROTE_STRICT"),
        plans=os.environ.get("ROTE_PLANS", "").strip(),
        untried_versions=_flag("ROTE_UNTRIED_VERSIONS"),
        rank=int(rank) if rank.isdecimal() else None,
    )


def may_read_words() -> bool:
    """``ROTE_READ_WORDS=0``: guards ask each tensor instead of reading many of them in memory."""
    return _flag("ROTE_READ_WORDS", default="1")


@dataclass(frozen=True)
class CompileSettings:
    """How kernels are compiled, by the environment.

    Attributes:
        most: ``ROTE_COMPILE_WORKERS``: how many kernels are compiled at once at most, 0 for none at all; None
            if it says nothing.
        compiler: ``CXX``: the command of the C++ compiler; empty if it says nothing.
        variables: The environment of a process that compiles. Variables by which Triton and ``ptxas`` make
            another kernel of the same text, or write elsewhere, are left out.
    """

    most: int | None
    compiler: str
    variables: Mapping[str, str]


_TOOLS = frozenset({"TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH", "TRITON_LIBDEVICE_PATH"})
"""Where Triton's tools are, on machines where they are not with Triton."""

_CHANGING = ("TRITON_", "PTXAS_OPTIONS", "DISABLE_PTXAS_OPT", "NVPTX_", "MLIR_", "LLVM_", "USE_IR_LOC")


def read_compile_settings() -> CompileSettings:
    """Read the environment now. What is no number counts as not set."""
    most = os.environ.get("ROTE_COMPILE_WORKERS", "").strip()
    return CompileSettings(
        most=int(most) if most.isdecimal() else None,
        compiler=os.environ.get("CXX", "").strip(),
        variables={
            name: value
            for name, value in os.environ.items()
            if name in _TOOLS or not name.startswith(_CHANGING)
        },
    )


def captures_apart() -> bool:
    """Whether NCCL lets one rank capture a collective while another one runs it plainly.

    ``NCCL_GRAPH_REGISTER=0``: memory of captured collectives is not registered with all ranks at once.
    ``NCCL_GRAPH_MIXING_SUPPORT=0`` takes back what lets a graph and plain calls share a communicator.
    """
    return not _flag("NCCL_GRAPH_REGISTER", "1") and _flag("NCCL_GRAPH_MIXING_SUPPORT", "1")


def _flag(name: str, default: str = "") -> bool:
    return os.environ.get(name, default).strip().lower() in _TRUE


def read_api_key() -> str | None:
    """``ROTE_API_KEY``: the key that clients of a server have to present; None if it is not set."""
    return os.environ.get("ROTE_API_KEY")


def read_duquant() -> dict[str, str]:
    """The variables of the quantization by full name: ``ROTE_DUQUANT_*``, and ``OPENPI_DUQUANT_*``.

    Public scripts for policies set the latter. The quantization checks them.
    """
    prefixes = ("ROTE_DUQUANT_", "OPENPI_DUQUANT_")
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith(prefixes)}
