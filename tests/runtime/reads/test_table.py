"""The table of C callables: its names are those of something, and callables find their row."""

from __future__ import annotations

import collections
import contextvars
import functools
import heapq
import math
import operator
import os
import pkgutil
import random
import re
import resource
import select
import struct
import sys
import time
import tomllib
from pathlib import Path

import numpy
import pytest
import torch

import rote
from rote.runtime.reads.handlers import handlers
from rote.runtime.reads.handlers.calls import called
from rote.runtime.reads.table import table

ROWS = tomllib.loads(Path(table.__file__).with_name("calls.toml").read_text())
HANDLERS = ROWS.pop("handlers")
KNOWN = {
    "pure", "fixed", "none", "reads", "writes", "argument", "ask", "clock", "environment", "thread", "shared", "io", "address",
    "process", "setting", "ambient", "members", "acting", "stream",
}  # fmt: skip

OF_OTHER_VERSIONS = {
    "_thread.start_joinable_thread", "_sha256.*", "_sha2.*", "_bisect.insort",
    "posix._path_splitroot", "posix.getenv", "_posixsubprocess.fork_exec_", "_abc._abc_register_",
    "torch._C._get_num_threads", "_asyncio.current_task",
    "torch._C._autograd._make_saved_tensor", "torch._C._cuda_getDriverVersion", "torch._C._get_all_dtypes",
    "torch._C._get_cudnn_depthwise_kernel", "torch._C._set_cudnn_depthwise_kernel", "torch._C._remove_obj_from_tls",
    "torch._C._xpu_isInBadFork", "torch._C._cuda_lock_mutex", "torch._C._cuda_unlock_mutex",
}  # fmt: skip
"""Names that not every Python and PyTorch has."""
OF_CUDA = ("torch._C._cuda_", "torch._C._Cuda", "torch._C._nvtx.", "torch._C._xpu_")

UNNAMED = (
    "builtins.GenericAlias", "builtins.mappingproxy", "builtins.module", "builtins.method", "builtins.function",
    "builtins.generator", "builtins.coroutine", "builtins.list_iterator", "builtins.tuple_iterator",
    "builtins.dict_keyiterator", "builtins.dict_valueiterator", "builtins.dict_itemiterator",
    "builtins.set_iterator", "builtins.range_iterator", "builtins.str_iterator", "builtins.dict_keys",
    "builtins.dict_values", "builtins.dict_items", "builtins.traceback", "builtins.code", "builtins.frame",
    "builtins.weakproxy", "builtins.weakcallableproxy", "builtins.AccumulateGrad", "torch._C._TensorBase",
    "torch._C._VariableFunctionsClass", "pybind11_builtins", "_thread.RLock", "_thread.lock", "builtins.instancemethod", "_contextvars", "_contextvars.Context",
    "_contextvars.ContextVar", "_functools._lru_cache_wrapper", "_collections._tuplegetter", "_cython_", "optree",
    "torch._C.Event", "torch._C.Stream", "torch.Future", "torch._C.__call__", "torch._C.__enter__", "torch._C.__exit__", "torch._C._autograd.unpack",
    "builtins.weakref", "builtins.member_descriptor",
    "builtins.getset_descriptor", "builtins.wrapper_descriptor", "builtins.method-wrapper", "_json.Encoder",
    "torch._C._distributed",
    "_json.Scanner", "numpy._ArrayFunctionDispatcher", "torch.nn.attention._SDPBackend",
)  # fmt: skip
"""Types and modules that cannot be reached by their names."""


def names():
    return [(row, name) for row, content in ROWS.items() for name in content["names"]]


def test_rows_are_known():
    assert set(ROWS) == KNOWN
    assert set(table.REFUSED) < KNOWN


def test_of_several_rows_the_last_counts():
    """Only where each of them is harmless may a name be in two rows."""
    found = collections.defaultdict(list)
    for row, name in names():
        if "*" not in name:
            found[name].append(row)
    for name, rows in found.items():
        assert len(rows) == 1 or set(rows) <= {"pure", "fixed", "none"}, (name, rows)
        assert table.row_of(name) == rows[-1]


@pytest.mark.parametrize("name", sorted({name for _, name in names()}))
def test_a_name_is_of_something(name):
    plain = name.removesuffix(".*")
    if plain.startswith(OF_CUDA) and not torch.backends.cuda.is_built():
        return
    if name in OF_OTHER_VERSIONS or plain in UNNAMED or plain.rpartition(".")[0] in UNNAMED:
        return
    if "*" in plain:
        assert plain.startswith(("builtins.", "_cython_")), "a pattern ends with .*"
        return
    found = pkgutil.resolve_name(plain)
    assert callable(found) or name.endswith(".*") or name == "sys.flags"


def test_each_setting_of_a_backend_has_a_row():
    """Contexts such as ``torch.backends.cudnn.flags`` set them, and put them back."""
    files = Path(torch.backends.__file__).parent.rglob("*.py")
    asked = set(re.findall(r"torch\._C\._\w*[gs]et_\w+", "".join([file.read_text() for file in files])))
    assert len(asked) > 40
    of_others = {name for name in asked if "_mps_" in name}
    assert asked - of_others <= {name for _, name in names()}


@pytest.mark.parametrize(("function", "row"), [
    (abs, "pure"), (math.sqrt, "pure"), (operator.add, "pure"), (struct.pack, "pure"), ("text".upper, "pure"),
    ((1, 2).count, "pure"), (numpy.zeros, "pure"), (torch.zeros, "pure"), (torch.add, "pure"),
    (torch.ones(1).add_, "pure"), (torch.Tensor.mul, "pure"), (torch._C._nn.gelu, "pure"), (functools.partial, "pure"),
    (callable, "none"), (id, "none"), (object.__new__, "none"), (sys.exc_info, "none"), (type.mro, "none"),
    ([].copy, "members"), ([].count, "reads"), ({}.items, "members"), (set().union, "members"), (dict.keys, "members"),
    (collections.deque().count, "reads"), (bytearray().decode, "reads"),
    ([].append, "writes"), (list.sort, "writes"), ({}.update, "writes"), (set().add, "writes"),
    (collections.deque().popleft, "writes"), (collections.OrderedDict().move_to_end, "writes"),
    (random.Random().random, "writes"), (numpy.random.default_rng().random, "writes"),
    (heapq.heappush, "argument"),
    (torch.get_num_threads, "ask"), (sys.getrecursionlimit, "ask"),
    (time.time, "clock"), (time.perf_counter, "clock"), (time.sleep, "clock"),
    (os.getpid, "environment"), (os.getcwd, "environment"),
    (contextvars.copy_context, "ambient"), (sys.getrefcount, "address"),
    (torch.Event.query, "clock"), (torch.Event.elapsed_time, "clock"), (torch.Stream.query, "clock"),
    (torch.futures.Future().done, "clock"), (torch.Event.record, "stream"),
    (os.listdir, "io"), (select.select, "io"),
    (resource.getpagesize, "unknown"), (torch.Tensor._make_subclass, "pure"),
    (functools.lru_cache(len).cache_clear, "writes"), (functools.lru_cache(len).cache_info, "unknown"),
    (functools._lru_cache_wrapper, "none"),
], ids=lambda value: value if isinstance(value, str) else table.name_of(value))  # fmt: skip
def test_the_row_of_a_callable(function, row):
    name = table.name_of(function)
    rows = table.Rows(handlers.HANDLERS, called)
    assert rows.of(function).row == table.row_of(name) == row, name


def test_a_longer_name_goes_first():
    assert table.row_of("builtins.list.append") == "writes"
    assert table.row_of("builtins.list.index") == "reads"
    assert table.row_of("torch._C.Generator.initial_seed") == "ask"
    assert table.row_of("torch._C.anything") == "fixed"


SETTINGS = {
    torch.get_num_threads: "ask", torch.get_autocast_dtype: "ask", torch._C._get_warnAlways: "ask",
    torch._C._get_nnpack_enabled: "ask", torch.set_num_threads: "setting", torch._C._set_warnAlways: "setting",
    torch.is_grad_enabled: "none", torch._C._len_torch_dispatch_stack: "process", torch.add: "pure",
    torch._C._autograd._profiler_enabled: "none",
    torch._C._group_tensors_by_device_and_dtype: "pure", torch._C._functorch.maybe_current_level: "pure",
}  # fmt: skip


@pytest.mark.parametrize(("function", "row"), SETTINGS.items(), ids=table.name_of)
def test_functions_of_pytorch_by_what_they_tell(function, row):
    assert table.Rows(handlers.HANDLERS, called).of(function).row == row


def test_a_function_of_pytorch_in_no_row_is_unknown():
    """What is said of types is not said of functions beside them."""
    rows = table.Rows(handlers.HANDLERS, called)
    for function in (torch._C._storage_Use_Count, torch._C._current_graph_task_execution_order):
        assert rows.of(function).row == table.UNKNOWN


def test_a_class_is_what_is_said_of_its_methods():
    assert table.row_of("functools.partial") == "pure"
    assert table.row_of("builtins.frozenset") == "pure"


def test_what_is_in_no_row_is_unknown():
    assert table.row_of("some_extension.read") == table.UNKNOWN
    assert table.row_of("builtins.listing") == table.UNKNOWN


def test_handlers_are_of_something():
    for name in handlers.HANDLERS:
        plain = name.removesuffix("()")
        if not any(plain == each or plain.startswith(f"{each}.") for each in UNNAMED):
            assert pkgutil.resolve_name(plain) is not None


class Library:
    @staticmethod
    def static(x):
        return x

    def method(self, x):
        return x


@pytest.mark.parametrize(("declared", "function"), [
    (resource.getpagesize, resource.getpagesize), (resource, resource.getpagesize), (Library, Library().method),
    (Library.method, Library().method), (Library.static, Library.static), (math, math.sqrt),
])  # fmt: skip
def test_what_is_declared_is_pure(declared, function):
    rows = table.Rows({}, called)
    assert not rows.is_pure(function)
    rows.declare([declared])
    assert rows.is_pure(function)
    assert not rows.is_pure(select.select)


def test_only_callables_and_modules_are_declared():
    with pytest.raises(rote.MisuseError, match=r"argument 1 is 3, which is no callable and no module"):
        rote.pure(math.sqrt, 3)


def test_a_declaration_gives_the_function_back():
    @rote.pure
    def function(x):
        return x

    assert function(3) == 3
