"""Which of PyTorch's distributed code acts on other processes, and which only reads the process groups.

All of ``torch.distributed`` and ``torch.nn.parallel`` counts as acting, except for known readers: much of it
works past the dispatcher (the reducer of ``DistributedDataParallel``, stores, handles of work). A replay
would leave that out on one rank while the other ranks wait for it.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import torch

from ...base import Site

_HOME = Path(torch.__file__).parent
_DISTRIBUTED, _PARALLEL = f"{_HOME}/distributed/", f"{_HOME}/nn/parallel/"
_WRAPPERS = (_PARALLEL, f"{_DISTRIBUTED}fsdp/", f"{_DISTRIBUTED}_composable")
_PASSING_ON = frozenset({f"{_PARALLEL}data_parallel.py", f"{_DISTRIBUTED}c10d_logger.py"})
"""Files that only call acting code: ``DataParallel`` on several devices, the wrapper around collectives."""

_READERS = frozenset({
    "is_available", "is_initialized", "is_gloo_available", "is_mpi_available", "is_nccl_available",
    "is_ucc_available", "is_xccl_available", "is_backend_available", "get_rank", "get_world_size",
    "get_backend", "get_group_rank", "get_global_rank", "get_process_group_ranks", "_get_default_group",
    "_get_group_size", "_rank_not_in_group", "_WorldMeta.WORLD", "_World.default_pg", "_World.pg_map",
    "_World.pg_group_ranks", "Backend.__new__",
})  # fmt: skip
_READERS_IN = (f"{_DISTRIBUTED}__init__.py", f"{_DISTRIBUTED}distributed_c10d.py")

_QUIET = frozenset({
    *("__eq__", "__ne__", "__hash__", "__int__", "__index__", "__repr__", "__str__"),
    *("rank", "size", "name", "group_name", "group_desc", "bound_device_id", "get_debug_level"),
    *("allgather", "allgather_coalesced", "allgather_into_tensor_coalesced", "allreduce"),
    *("allreduce_coalesced", "alltoall", "alltoall_base", "barrier", "broadcast", "gather", "recv"),
    *("recv_anysource", "reduce", "reduce_scatter", "reduce_scatter_tensor_coalesced", "scatter", "send"),
    *("ReduceOp", "RedOpType", "OpType", "BackendType", "ErrorType", "DebugLevel"),
})  # fmt: skip
"""Comparisons, constants of a process group, its methods that are operators and seen where they run, and
classes of options."""


class Contact(NamedTuple):
    """Code that acts on other processes.

    Attributes:
        what: Its name.
        site: The user's line.
        wraps: It belongs to a wrapper around modules, as ``DistributedDataParallel``.
    """

    what: str
    site: Site
    wraps: bool


@lru_cache(maxsize=4096)
def is_acting(code: CodeType) -> bool:
    """Whether code of PyTorch's may act on other processes."""
    name = code.co_filename
    if not name.startswith((_DISTRIBUTED, _PARALLEL)) or name in _PASSING_ON or code.co_name == "<module>":
        return False
    return not _is_reader(code)


@lru_cache(maxsize=4096)
def _is_reader(code: CodeType) -> bool:
    """Whether code of PyTorch's reads which process groups there are, and does nothing else."""
    return code.co_qualname in _READERS and code.co_filename in _READERS_IN


def contact(code: CodeType, site: Site) -> Contact:
    """Describe acting code that the user's line has called."""
    return Contact(code.co_qualname, site, code.co_filename.startswith(_WRAPPERS))


def is_quiet(function: Any) -> bool:
    """Whether a function of PyTorch's distributed code in C acts on no other process by itself."""
    name = function.__name__
    return name in _QUIET or (isinstance(function, type) and name.endswith("Options"))
