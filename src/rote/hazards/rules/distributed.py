"""Distributed: collectives and wrappers of several processes."""

from __future__ import annotations

from ..finding import Severity
from .rule import Finder, Group, Rule

COLLECTIVE = Rule(
    "RT801",
    "collective inside the call",
    "Keep collectives between graphs, or capture them with NCCL on all ranks in the same order.",
    Severity.UNKNOWN,
    Group.DISTRIBUTED,
    Finder.SCAN | Finder.RUNTIME,
    """
    ``torch.distributed.all_reduce`` and its kin inside the call.

    Why: NCCL collectives can be captured, if every rank captures the same ones in the same order; a rank that
    falls back to eager, or records at another moment, hangs the others. Other backends (gloo) run on the host
    and stop a capture. rote runs a callable with a collective in it eagerly, on each rank for itself.

    Limits: The scan does not see collectives inside of libraries, nor which backend is used. rote sees those
    of PyTorch, not those that other libraries make in C (MPI, Horovod).

    Bad::

        dist.all_reduce(y)
        return y

    Good::

        return y
    """,
)
OBJECT_COLLECTIVE = Rule(
    "RT802",
    "collective that waits on the host",
    "Exchange Python objects and wait outside of the call.",
    Severity.STOPS,
    Group.DISTRIBUTED,
    Finder.SCAN,
    """
    ``barrier``, ``monitored_barrier``, ``all_gather_object``, ``broadcast_object_list``, ``gather_object``.

    Why: They pickle objects through host memory or wait for other processes; nothing of that can be captured.

    Limits: None known.

    Bad::

        dist.barrier()
        return x * 2

    Good::

        return x * 2
    """,
)
WRAPPED = Rule(
    "RT803",
    "data-parallel wrapper made around a graph's work",
    "Graph the module inside of the wrapper, DistributedDataParallel(rote.graph(model)); leave FSDP eager.",
    Severity.UNKNOWN,
    Group.DISTRIBUTED,
    Finder.SCAN | Finder.RUNTIME,
    """
    ``DistributedDataParallel``, ``FullyShardedDataParallel``, ``fully_shard`` in a file that captures graphs.

    Why: DDP's forward prepares a reducer in C++ that averages the gradients; a replay would leave that out.
    A capture by hand needs eleven warm-up steps on a side stream before. FSDP gathers parameters into memory
    that it frees, so addresses move.

    Limits: The scan does not know whether the wrapped model is the one that is captured.

    Bad::

        model = DistributedDataParallel(model)
        g = rote.graph(model)

    Good::

        g = rote.graph(model)
    """,
)
