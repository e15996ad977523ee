"""Which of PyTorch's distributed code acts on other processes past the dispatcher, and what a call waits by.

A collective is an operation: the dispatcher sees it, and so do traced calls. The Python around it (checks of
operands, options, the choice of the group) is followed like any other code. The rest of
``torch.distributed`` and ``torch.nn.parallel`` counts as acting, except for known readers: much of it works
past the dispatcher (the reducer of ``DistributedDataParallel``, stores, objects). A replay would leave that
out on one rank while the other ranks wait for it.

Handles of work wait past the dispatcher as well. So a traced call is given :class:`SeenWork` in their place.
"""

from __future__ import annotations

import atexit
import gc
import sys
import weakref
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import lru_cache, wraps
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import torch
from torch.nn.parallel import DistributedDataParallel

from ...base import Site, is_instance

_HOME = Path(torch.__file__).parent
_DISTRIBUTED, _PARALLEL = f"{_HOME}/distributed/", f"{_HOME}/nn/parallel/"
_WRAPPERS = (_PARALLEL, f"{_DISTRIBUTED}fsdp/", f"{_DISTRIBUTED}_composable")
_PASSING_ON = (
    f"{_PARALLEL}data_parallel.py", f"{_DISTRIBUTED}c10d_logger.py", f"{_DISTRIBUTED}_mesh_layout.py",
    f"{_DISTRIBUTED}_pycute/", f"{_DISTRIBUTED}tensor/", f"{_DISTRIBUTED}_local_tensor/",
    f"{_DISTRIBUTED}fsdp/_fully_shard/", f"{_DISTRIBUTED}fsdp/_common_utils.py",
    f"{_DISTRIBUTED}_composable_state.py", f"{_DISTRIBUTED}algorithms/_checkpoint/",
)  # fmt: skip
"""Files that only call acting code, as ``DataParallel`` on several devices, sharded tensors and the wrapper
around collectives do; arithmetic of meshes; FSDP, whose collectives are operations."""

_READERS = frozenset({
    "_get_object_coll_device",
    "is_available", "is_initialized", "is_gloo_available", "is_mpi_available", "is_nccl_available",
    "is_ucc_available", "is_xccl_available", "is_backend_available", "get_rank", "get_world_size",
    "get_backend", "get_group_rank", "get_global_rank", "get_process_group_ranks", "_get_default_group",
    "_get_group_size", "_rank_not_in_group", "_WorldMeta.WORLD", "_World.default_pg", "_World.pg_map",
    "_World.pg_group_ranks", "Backend.__new__",
})  # fmt: skip
_READERS_IN = (f"{_DISTRIBUTED}__init__.py", f"{_DISTRIBUTED}distributed_c10d.py")
_OF_MESHES = frozenset({
    "get_group", "get_all_groups", "size", "ndim", "shape", "device_type", "mesh_dim_names", "get_rank",
    "get_local_rank", "get_coordinate", "_get_mesh_dim_by_name", "_get_root_mesh", "_hash_key", "__hash__",
    "__eq__", "_is_current_rank_part_of_mesh", "_sym_get_coordinate", "_MeshEnv.num_devices_per_host",
    "_MeshEnv.num_hosts", "_MeshEnv.get_current_mesh",
})  # fmt: skip
"""Methods of a mesh of devices that read what it is."""

_CALLING = frozenset({
    "all_reduce", "all_reduce_coalesced", "all_gather", "all_gather_single", "all_gather_into_tensor",
    "_all_gather_base", "all_gather_coalesced", "reduce_scatter", "reduce_scatter_single",
    "reduce_scatter_tensor", "_reduce_scatter_base", "all_to_all", "all_to_all_single", "broadcast", "reduce",
    "gather", "scatter", "send", "recv", "isend", "irecv", "batch_isend_irecv", "barrier", "_check_op",
    "P2POp.__init__", "P2POp.__new__", "_check_single_tensor", "_check_tensor_list", "_check_p2p_op_list",
    "_check_not_self_rank", "_ensure_all_tensors_same_dtype", "_validate_output_list_for_rank",
    "_as_iterable", "_group_or_default_group", "_canonicalize_group_rank", "_warn_not_in_group",
    "supports_complex", "_is_fp8", "_is_barrier_after_init", "_World.pg_coalesce_state",
    "_World.pg_names", "_World.tags_to_pg", "_World.pg_to_tag", "_get_group_tag",
    "_get_process_group_name", "_get_group_size_by_name", "_find_pg_by_ranks_and_tag",
    "_resolve_group_name_by_ranks_and_tag", "_get_pg_default_device", "_device_capability",
    "_use_torchcomms_enabled", "_reduce_op.__getattribute__",
})  # fmt: skip
"""Functions that call collectives, and what they look at for that."""
_CALLING_IN = frozenset({
    f"{_DISTRIBUTED}_functional_collectives.py", f"{_DISTRIBUTED}nn/functional.py",
})  # fmt: skip
"""Files that do nothing else."""

_QUIET = frozenset({
    *("__eq__", "__ne__", "__hash__", "__int__", "__index__", "__repr__", "__str__", "boxed", "unbox"),
    *("rank", "size", "name", "group_name", "group_desc", "bound_device_id", "get_debug_level"),
    *("_resolve_process_group", "_allow_inflight_collective_as_graph_input", "_get_backend"),
    *("ReduceOp", "RedOpType", "OpType", "BackendType", "ErrorType", "DebugLevel"),
})  # fmt: skip
"""Comparisons, constants of a process group, and classes of options."""
_OF_GROUPS = frozenset({
    "allgather", "allgather_coalesced", "allgather_into_tensor_coalesced", "allreduce",
    "allreduce_coalesced", "alltoall", "alltoall_base", "barrier", "broadcast", "gather", "recv",
    "recv_anysource", "reduce", "reduce_scatter", "reduce_scatter_tensor_coalesced", "scatter", "send",
    "all_gather_single", "reduce_scatter_single", "all_to_all_single", "_allgather_base",
    "_reduce_scatter_base",
})  # fmt: skip
"""Methods of a process group that are operators and seen where they run. Those of its backend are not."""


_OF_WRAPPERS = frozenset({
    "DistributedDataParallel.no_sync", "DistributedDataParallel._clear_grad_buffer",
    "DistributedDataParallel._get_active_ddp_module", "DistributedDataParallel._inside_ddp_forward",
    "DistributedDataParallel._run_ddp_forward", "DistributedDataParallel._pre_forward",
    "DistributedDataParallel._post_forward", "DistributedDataParallel._lazy_init",
    "DistributedDataParallel._setup_in_backward_optimizers", "DistributedDataParallel.forward",
    "DistributedDataParallel._check_sync_bufs_pre_fwd", "DistributedDataParallel._check_sync_bufs_post_fwd",
    "DistributedDataParallel.will_sync_module_buffers", "DistributedDataParallel._sync_buffers",
    "DistributedDataParallel._assign_modules_buffers", "DistributedDataParallel._sync_module_buffers",
    "DistributedDataParallel._default_broadcast_coalesced", "Join.notify_join_context",
    "DistributedDataParallel._distributed_broadcast_coalesced",
    "_to_kwargs", "_recursive_to", "_apply_to_tensors", "_is_namedtuple",
})  # fmt: skip
"""Steps of a wrapper's call; what they call in C is met by :class:`.Reducers`."""
_OF_WRAPPERS_IN = (
    f"{_PARALLEL}distributed.py", f"{_DISTRIBUTED}utils.py", f"{_DISTRIBUTED}algorithms/join.py",
    f"{_PARALLEL}scatter_gather.py",
)  # fmt: skip


def is_wrapper(value: Any) -> bool:
    """Whether a value is a module in ``DistributedDataParallel``."""
    return torch.distributed.is_available() and isinstance(value, DistributedDataParallel)


def calls_wrapped(code: CodeType) -> bool:
    """Whether this is the code of ``DistributedDataParallel`` that calls the module in it."""
    return code.co_filename == f"{_PARALLEL}distributed.py"


class Contact(NamedTuple):
    """Code that acts on other processes.

    Attributes:
        wraps: It belongs to a wrapper around modules, as ``DistributedDataParallel``.
        soon: Later calls do not do it.
    """

    what: str
    site: Site
    wraps: bool
    soon: bool = False


@lru_cache(maxsize=4096)
def is_acting(code: CodeType) -> bool:
    """Whether code of PyTorch's may act on other processes."""
    name = code.co_filename
    if (
        not name.startswith((_DISTRIBUTED, _PARALLEL))
        or name.startswith(_PASSING_ON)
        or code.co_name == "<module>"
    ):
        return False
    return not _is_reader(code)


@lru_cache(maxsize=4096)
def _is_reader(code: CodeType) -> bool:
    """Whether code of PyTorch's reads which groups there are, or calls collectives, and no more."""
    name, file = code.co_qualname.partition(".<locals>")[0], code.co_filename
    if file == f"{_DISTRIBUTED}device_mesh.py":
        return (
            name in ("_get_pg_from_name", "_get_device_handle")
            or name.removeprefix("DeviceMesh.") in _OF_MESHES
        )
    if file in _OF_WRAPPERS_IN:
        return name in _OF_WRAPPERS
    return file in _CALLING_IN or (file in _READERS_IN and (name in _READERS or name in _CALLING))


def contact(code: CodeType, site: Site) -> Contact:
    """Describe acting code that the user's line has called."""
    return Contact(code.co_qualname, site, code.co_filename.startswith(_WRAPPERS))


def is_quiet(function: Any, owner: Any) -> bool:
    """Whether a function of PyTorch's distributed code in C acts on no other process by itself.

    ``owner`` is the object whose method it is.
    """
    name = function.__name__
    if name in _OF_GROUPS:
        return isinstance(owner, ProcessGroup)
    return name in _QUIET or (isinstance(function, type) and name.endswith("Options"))


_GROUP = "ProcessGroup"
"""The class of a process group, as TorchScript has it."""
_FUNCTIONAL, _LAZY = "torch.distributed._functional_collectives", "AsyncCollectiveTensor"

if TYPE_CHECKING or torch.distributed.is_available():
    from torch.distributed import ProcessGroup, Work
else:
    Work = ProcessGroup = object

_CAN_UNBOX = hasattr(Work, "unbox") and hasattr(ProcessGroup, "unbox")
"""Seen in torch 2.11 and 2.13. Without, calls with collectives that give handles of work run eagerly."""


def _asked(name: str) -> Any:
    """A method that says that a handle of work is asked for more than to wait."""

    def method(self: SeenWork, *given: Any) -> Any:
        self._ask(f"Work.{name}")
        return getattr(self._work, name)(*given)

    return method


class SeenWork(Work):
    """A handle of work that says when it is waited for, and what it is asked.

    C++ may hold it, and asks the methods here. So it has to be kept alive as long as the call.
    """

    def __init__(self, work: Work, wait: Callable[[], None], ask: Callable[[str], None]) -> None:
        super().__init__()
        self._work, self._wait, self._ask = work, wait, ask

    @property
    def handed(self) -> Any:
        """The handle as operators return it."""
        return self.boxed()

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait, as an operation of the call."""
        if timeout:
            self._ask("Work.wait with a time limit")
            return self._work.wait(timeout)
        self._wait()
        return True

    synchronize, block_current_stream = _asked("synchronize"), _asked("block_current_stream")
    is_completed, is_success, exception = _asked("is_completed"), _asked("is_success"), _asked("exception")
    result, source_rank, _source_rank = _asked("result"), _asked("source_rank"), _asked("_source_rank")
    get_future, get_future_result = _asked("get_future"), _asked("get_future_result")


def was_destroyed(value: Any) -> bool:
    """Whether a value is a process group that PyTorch knows no more."""
    if ProcessGroup is object or not is_instance(value, ProcessGroup):
        return False
    try:
        torch.distributed.get_process_group_ranks(value)
    except (KeyError, ValueError):
        return True
    return False


def work_in(value: Any) -> Any:
    """The handle of work that an operator has returned; None if it has returned none."""
    found = value[-1] if type(value) is tuple and value else value
    return Work.unbox(found) if isinstance(found, torch.ScriptObject) else None


def waits_itself(kinds: Iterable[type]) -> bool:
    """Whether a tensor is one that waits for a collective where it is used first."""
    return any([each.__module__ == _FUNCTIONAL and each.__name__ == _LAZY for each in kinds])


LOCAL, SPREAD_AS = "_local_tensor", "_spec"
"""The attributes of a sharded tensor: this process's part, and how it is spread over processes."""
SPREAD_BY = ("mesh", "placements", "tensor_meta", "shard_order")
"""What says how it is spread."""
_SHARDED = "torch.distributed.tensor"
"""Their module, which PyTorch does not import by itself."""


def is_sharded(kind: type) -> bool:
    """Whether this is the class of tensors of which each process has a part."""
    return kind.__name__ == "DTensor" and kind.__module__ == _SHARDED


def may_shard() -> bool:
    """Whether there may be sharded tensors in this process."""
    return _SHARDED in sys.modules


def part_of(tensor: torch.Tensor) -> torch.Tensor:
    """This process's part of a sharded tensor, finished by its collective or not; another tensor itself."""
    part: Any = getattr(tensor, LOCAL) if is_sharded(type(tensor)) else tensor
    return part.elem if waits_itself([type(part)]) else part


def sharded_as(part: torch.Tensor, spread: Any) -> torch.Tensor:
    """A sharded tensor of which this process has a part, spread as another one is."""
    return _module_of_sharded().DTensor(part, spread, requires_grad=False)


def _module_of_sharded() -> Any:
    """It is there where a sharded tensor is."""
    return sys.modules[_SHARDED]


def sharding_settings() -> str:
    """What PyTorch's settings say of operations on sharded tensors, besides how the operands are spread."""
    dispatcher = _module_of_sharded().DTensor._op_dispatcher
    utilities = sys.modules.get(f"{_SHARDED}._utils")
    refusing: Any = getattr(utilities, "ExplicitRedistributionContext", None)
    active = getattr(refusing._local, "_active", None) if refusing is not None else None
    replicates = "replicated" if dispatcher._allow_implicit_replication else "refused"
    handled = len(dispatcher._custom_op_handlers)
    return f"other tensors {replicates}, {handled} operators handled apart, redistributed as {active} says"


class WeakGroup:
    """A process group as an operand, held weakly: whoever destroys it may count on nobody else to have it."""

    def __init__(self, group: ProcessGroup) -> None:
        self.name = group.group_name
        self._group = weakref.ref(group)

    @staticmethod
    def instead(operand: Any) -> Any:
        """A group held weakly in the place of an operand that is one; another operand as it is."""
        kind: Any = operand._type() if isinstance(operand, torch.ScriptObject) else None
        return operand if kind is None or kind.name() != _GROUP else WeakGroup(ProcessGroup.unbox(operand))

    def alive(self) -> ProcessGroup:
        """The group.

        Raises:
            RuntimeError: It is gone. Conditions say so before: this is for those that only C holds.
        """
        group = self._group()
        if group is None:
            raise RuntimeError(f"the process group {self.name} of a recorded collective was destroyed")
        return group

    @staticmethod
    def again(operand: Any) -> Any:
        """The operand that :meth:`instead` was given."""
        return operand.alive().boxed() if type(operand) is WeakGroup else operand


class GroupCall(NamedTuple):
    """A call of a process group's method by Python code.

    To make it once more takes a fifth of the time that its operator takes, which has its operands converted.

    Attributes:
        repeats: It can be made once more: PyTorch's own code makes the options anew in each call.
    """

    name: str
    group: ProcessGroup
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    repeats: bool

    @classmethod
    def of(
        cls, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType | None
    ) -> Self | None:
        """Such a call, that a frame makes; None if it is another one."""
        if not (
            _CAN_UNBOX and function.__name__ in _OF_GROUPS and args and isinstance(args[0], ProcessGroup)
        ):
            return None
        ours = frame is not None and frame.f_code.co_filename.startswith(_DISTRIBUTED)
        return cls(function.__name__, args[0], args[1:], kwargs, ours)

    def gives_handle(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether somebody has to wait for it, by its operator; NCCL puts others on the current stream."""
        places = {each.name: n for n, each in enumerate(func._schema.arguments)}
        at = places.get("async_op", places.get("asyncOp"))
        return at is None or kwargs.get("async_op", args[at] if at < len(args) else True)

    def again(self, keep: Callable[[Any], Any]) -> Callable[[], Any]:
        """What makes it again; ``keep`` says how operands are held, and the group is held weakly."""
        group, name, args = WeakGroup(self.group), self.name, keep(self.args)
        kwargs = {key: keep(value) for key, value in self.kwargs.items()}
        return lambda: getattr(group.alive(), name)(*args, **kwargs)


def nccl_limit_s(group: ProcessGroup) -> float | None:
    """The time limit of a group in seconds; None if it is not one of NCCL, or does not say."""
    try:
        backend = group._get_backend(torch.device("cuda"))
        return backend.options._timeout.total_seconds() if backend.name() == _NCCL else None
    except (AttributeError, RuntimeError):  # it has none for CUDA
        return None


def group_named(name: str) -> ProcessGroup | None:
    """The group of a functional collective."""
    resolve: Any = getattr(torch.distributed.distributed_c10d, "_resolve_process_group", None)
    return None if resolve is None else resolve(name)


_NCCL = "nccl"
_ENDING = ("shutdown", "abort")
"""Methods of a process group that end its communicators. Seen in torch 2.11 and 2.13."""


class Releasing(Protocol):
    """Whoever can let go of all that it holds."""

    def release(self) -> None:
        """Let go of it."""


class Departure:
    """The end of the interpreter, before which nobody may hold a process group any more.

    A group over gloo has threads, and C++ aborts where they are destroyed with the interpreter. Conditions
    hold the groups that calls have read, also those that were destroyed since.

    A communicator of NCCL waits for ever to be destroyed while there are graphs with its collectives. So once
    there is one, the methods of groups that end communicators have all such graphs released before.
    """

    def __init__(self) -> None:
        self._holders = weakref.WeakSet[Releasing]()
        self._capturing = weakref.WeakSet[Releasing]()
        self._is_told = False

    def add(self, holder: Releasing, *, captured: bool) -> None:
        """Somebody may hold groups from now on; ``captured`` if graphs have collectives in them."""
        if not self._holders:
            atexit.unregister(self._release)
            atexit.register(self._release)
        self._holders.add(holder)
        if captured:
            self._capturing.add(holder)
            self._be_told()

    def _be_told(self) -> None:
        """The names of groups' methods are replaced for good: nobody is told of a group's end otherwise."""
        if self._is_told:
            return
        self._is_told = True
        for name in _ENDING:
            original = getattr(ProcessGroup, name, None)
            if original is not None:
                setattr(ProcessGroup, name, self._behind_release(original))

    def _behind_release(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def ended(group: Any, *given: Any, **named: Any) -> Any:
            for holder in list(self._capturing):
                holder.release()
            self._capturing.clear()
            return original(group, *given, **named)

        return ended

    def _release(self) -> None:
        for holder in list(self._holders):
            holder.release()
        gc.collect()


DEPARTURE = Departure()
"""There is one interpreter."""
