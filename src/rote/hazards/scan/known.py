"""Calls that are findings by their names: synchronisation, clocks, seeds, files, collectives, libraries."""

from __future__ import annotations

import ast
from typing import NamedTuple

from .. import rules
from ..rules import Rule, Severity
from .program import Reach
from .scope import Scope
from .syntax import is_literal, last_name, self_attribute, text_of
from .values import Inferred, Type


class KnownCall(NamedTuple):
    """A function that is always worth a finding.

    Attributes:
        rule: Its rule.
        message: What it does; the call stands before it.
    """

    rule: Rule
    message: str


_FUNCTIONS: dict[str, KnownCall] = {
    name: KnownCall(rule, message)
    for rule, message, names in (
        (rules.SYNCHRONIZE, "waits for the device", (
            "torch.cuda.synchronize", "torch.accelerator.synchronize", "torch.mps.synchronize",
            "torch.xpu.synchronize")),
        (rules.EMPTY_CACHE, "empties the allocator or collects garbage", (
            "torch.cuda.empty_cache", "torch.cuda.ipc_collect", "torch.accelerator.empty_cache",
            "gc.collect")),
        (rules.MEMORY_ASKED, "gives the number of the capture in every replay", (
            "torch.cuda.memory_allocated", "torch.cuda.max_memory_allocated", "torch.cuda.memory_reserved",
            "torch.cuda.max_memory_reserved", "torch.cuda.mem_get_info", "torch.cuda.memory_stats")),
        (rules.STREAM_INSIDE, "makes or switches a stream", (
            "torch.cuda.Stream", "torch.Stream", "torch.cuda.stream", "torch.cuda.set_stream",
            "torch.cuda.ExternalStream")),
        (rules.EVENT_INSIDE, "makes an event", ("torch.cuda.Event", "torch.Event")),
        (rules.THREAD_INSIDE, "starts threads or processes", (
            "threading.Thread", "concurrent.futures.ThreadPoolExecutor", "asyncio.run", "threading.Timer",
            "concurrent.futures.ProcessPoolExecutor", "multiprocessing.Process", "subprocess.run")),
        (rules.PROFILED, "marks the capture and no replay", (
            "torch.profiler.profile", "torch.profiler.record_function", "torch.autograd.profiler.profile",
            "torch.autograd.profiler.record_function", "torch.cuda.nvtx.range_push", "torch.cuda.nvtx.range",
            "torch.cuda.nvtx.mark", "nvtx.annotate")),
        (rules.CLOCK, "is taken once, at the capture", (
            "time.time", "time.perf_counter", "time.monotonic", "time.time_ns", "time.perf_counter_ns",
            "time.process_time", "datetime.datetime.now", "datetime.datetime.utcnow", "uuid.uuid4",
            "uuid.uuid1", "time.monotonic_ns")),
        (rules.RANDOM_STATE_SET, "sets the random state, which a replay does not", (
            "torch.manual_seed", "torch.seed", "torch.cuda.manual_seed", "torch.cuda.manual_seed_all",
            "torch.set_rng_state", "torch.cuda.set_rng_state", "torch.random.fork_rng",
            "torch.random.manual_seed", "torch.random.set_rng_state")),
        (rules.GENERATOR_INSIDE, "is a generator that no graph knows", ("torch.Generator",)),
        (rules.AMBIENT_CHANGES, "stays set after the call", (
            "torch.set_default_dtype", "torch.set_default_device", "torch.use_deterministic_algorithms",
            "torch.set_float32_matmul_precision", "torch.set_num_threads", "torch.set_default_tensor_type",
            "torch.set_flush_denormal")),
        (rules.AUTOCAST_CLEARED, "sets the state of autocast by hand", (
            "torch.clear_autocast_cache", "torch.set_autocast_enabled", "torch.set_autocast_dtype",
            "torch.set_autocast_cache_enabled", "torch.set_autocast_gpu_dtype",
            "torch.set_autocast_cpu_enabled")),
        (rules.ANOMALY, "reads after each backward operation whether a NaN came out", (
            "torch.autograd.detect_anomaly", "torch.autograd.set_detect_anomaly",
            "torch.autograd.anomaly_mode.detect_anomaly")),
        (rules.SAVED_HOOKS, "runs Python in the backward pass", (
            "torch.utils.checkpoint.checkpoint", "torch.utils.checkpoint.checkpoint_sequential",
            "torch.autograd.graph.saved_tensors_hooks", "torch.autograd.graph.save_on_cpu")),
        (rules.BOXES_KEPT, "keeps as many boxes as the values say", (
            "torchvision.ops.nms", "torchvision.ops.batched_nms", "torchvision.ops.remove_small_boxes",
            "torchvision.ops.boxes.nms", "torchvision.ops.boxes.batched_nms",
            "torchvision.ops.boxes.remove_small_boxes")),
        (rules.NORMALIZED, "makes tensors of the mean and the deviation", (
            "torchvision.transforms.functional.normalize", "torchvision.transforms.v2.functional.normalize",
            "torchvision.transforms.v2.functional.normalize_image")),
        (rules.PACKED, "needs the lengths on the host", (
            "torch.nn.utils.rnn.pack_padded_sequence", "torch.nn.utils.rnn.pad_packed_sequence",
            "torch.nn.utils.rnn.pack_sequence")),
        (rules.SPARSE, "makes a sparse tensor", (
            "torch.sparse_coo_tensor", "torch.sparse_csr_tensor", "torch.sparse_csc_tensor",
            "torch.sparse_bsr_tensor", "torch.sparse_compressed_tensor")),
        (rules.SAVED, "writes to a file", (
            "torch.save", "numpy.save", "numpy.savez", "numpy.savetxt", "pickle.dump", "pickle.dumps",
            "torchvision.utils.save_image", "imageio.imwrite", "cv2.imwrite")),
        (rules.OBJECT_COLLECTIVE, "waits for other processes on the host", (
            "torch.distributed.barrier", "torch.distributed.monitored_barrier",
            "torch.distributed.all_gather_object", "torch.distributed.gather_object",
            "torch.distributed.broadcast_object_list", "torch.distributed.scatter_object_list",
            "torch.distributed.send_object_list", "torch.distributed.recv_object_list")),
        (rules.COLLECTIVE, "is a collective", (
            "torch.distributed.all_reduce", "torch.distributed.all_gather", "torch.distributed.reduce",
            "torch.distributed.all_gather_into_tensor", "torch.distributed.reduce_scatter",
            "torch.distributed.reduce_scatter_tensor", "torch.distributed.broadcast",
            "torch.distributed.all_to_all", "torch.distributed.all_to_all_single", "torch.distributed.send",
            "torch.distributed.recv", "torch.distributed.isend", "torch.distributed.irecv",
            "torch.distributed.gather", "torch.distributed.scatter",
            "torch.distributed.nn.functional.all_reduce", "torch.distributed.nn.all_reduce")),
        (rules.NESTED_CAPTURE, "captures a graph inside of a call that is captured itself", (
            "torch.cuda.graph", "torch.cuda.CUDAGraph", "torch.cuda.make_graphed_callables")),
        (rules.COMPILED_INSIDE, "compiles in every call", ("torch.jit.trace", "torch.jit.script")),
        (rules.MEMORY_ESCAPE, "hands the memory to another library", (
            "torch.utils.dlpack.to_dlpack", "torch.to_dlpack", "jax.dlpack.from_dlpack", "cupy.from_dlpack",
            "cupy.asarray")),
    )
    for name in names
}  # fmt: skip
_WAITS = ("wait_stream", "wait_event")
_GRIDS = frozenset({"grid_thw", "image_grid_thw", "video_grid_thw"})
_COUNTERS = frozenset({
    "AdaBelief", "Adafactor", "AdafactorBigVision", "Adan", "AdamP", "Lamb", "LaProp", "MADGRAD", "Mars",
    "NAdam", "NvNovoGrad", "RAdam",
})  # fmt: skip
_AUGMENTS = ("Random", "ColorJitter", "AutoAugment", "RandAugment", "TrivialAugment", "AugMix", "ScaleJitter")


def known_function(scope: Scope, node: ast.Call, dotted: str) -> None:
    """A function or class that is called by its name."""
    known, name = _FUNCTIONS.get(dotted), dotted.rpartition(".")[2]
    if known is not None and (known.rule is not rules.NESTED_CAPTURE or scope.reach >= Reach.FORWARD):
        joined = known.rule is rules.STREAM_INSIDE and _joins_streams(scope)
        shown = name if known.rule in (rules.BOXES_KEPT, rules.NORMALIZED) else text_of(node.func)
        text = f"{shown}() {known.message}"
        scope.report(known.rule, node, text, severity=Severity.ISLAND if joined else None)
    if dotted.startswith(("transformers.", ".")) and (
        ("masking_utils." in dotted and name.startswith("create_")) or "modeling_attn_mask_utils." in dotted
    ):
        scope.report(rules.MASK_INSIDE, node, f"{name}() asks on the host whether anything is masked")


def known_method(
    scope: Scope, node: ast.Call, func: ast.Attribute, base: Inferred, values: list[Inferred]
) -> None:
    """A method of a library that is called by its name."""
    name = func.attr
    if name == "generate" and not self_attribute(func, scope.self_name) and (node.args or node.keywords):
        if base.type in (Type.MODULE, Type.UNKNOWN) and not ast.unparse(func.value).startswith("super("):
            scope.found(rules.GENERATE, node, "reads after each token whether to stop")
    elif name == "set_timesteps":
        scope.found(rules.TIMESTEPS_SET, node, "makes new tensors from numpy")
    elif name == "step" and len(values) >= 2 and "scheduler" in last_name(func.value).lower():
        scope.found(rules.SCHEDULER_STEP, node, "counts its position in Python")


def known_keywords(scope: Scope, node: ast.Call) -> None:
    """Keyword arguments that mean the same to every model of a library."""
    for each in node.keywords:
        if each.arg == "past_key_values":
            value = scope.evaluate(each.value)
            if value.type is Type.CACHE and not value.local:
                scope.report(rules.DYNAMIC_CACHE, node, f"{text_of(each.value)} grows with every call")
        elif each.arg in _GRIDS and not is_literal(each.value, None):
            scope.report(rules.GRID, node, f"{each.arg} is turned into lists")


def known_object(scope: Scope, node: ast.Call, kind: Type, draws: str = "on the host") -> None:
    """A call of an object of a library."""
    if kind is Type.NORMALIZER:
        scope.found(rules.NORMALIZED, node, "makes tensors of the mean and the deviation")
    elif kind in (Type.MIXER, Type.AUGMENT):
        rule = rules.MIXUP if kind is Type.MIXER else rules.RANDOM_TRANSFORM
        scope.found(rule, node, f"draws {draws}")


def made_by_library(dotted: str) -> Type | None:
    """What a constructor of a library makes, if it matters."""
    name = dotted.rpartition(".")[2]
    if dotted.startswith("transformers.") and name == "DynamicCache":
        return Type.CACHE
    if dotted.startswith("timm.data.") and name == "Mixup":
        return Type.MIXER
    if dotted.startswith("timm.optim.") and name in _COUNTERS:
        return Type.COUNTER
    if dotted.startswith("torchvision.transforms.") and name == "Normalize":
        return Type.NORMALIZER
    if dotted.startswith("torchvision.transforms.") and name.startswith(_AUGMENTS):
        return Type.AUGMENT
    return None


def _joins_streams(scope: Scope) -> bool:
    """Whether the function forks a stream and joins it again."""
    nodes = scope.function.nodes() if scope.function is not None else ()
    waits = [node for node in nodes if isinstance(node, ast.Attribute) and node.attr in _WAITS]
    return len(waits) >= 2
