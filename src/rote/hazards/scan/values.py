"""What an expression is, as far as a reader can tell: a tensor, a number, a module."""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import NamedTuple


class Kind(Enum):
    """What an expression gives.

    MAYBE is the result of an unknown function of tensors: probably a tensor. NUMBER is any Python value.
    """

    UNKNOWN = auto()
    TENSOR = auto()
    MAYBE = auto()
    NUMBER = auto()
    SHAPE = auto()
    LIST = auto()
    CONTAINER = auto()
    ARRAY = auto()
    DEVICE = auto()
    DTYPE = auto()
    MODULE = auto()
    OPTIMIZER = auto()
    SCHEDULER = auto()
    SCALER = auto()
    STREAM = auto()
    EVENT = auto()
    GENERATOR = auto()
    DICE = auto()
    GRAPH = auto()
    MIXER = auto()
    AUGMENT = auto()
    NORMALIZER = auto()
    COUNTER = auto()
    CACHE = auto()
    ITERATOR = auto()


class Value(NamedTuple):
    """What is known of an expression.

    Attributes:
        kind: What it is.
        mask: A tensor of truth values.
        host: A tensor that was made on the default device, without ``device=``.
        drawn: Random numbers were drawn for it.
        constant: It was made by ``torch.tensor`` of Python values.
        argument: Name of the argument that it still is.
        counting: An optimizer that keeps its step count on the host.
        local: It was made in the function.
        number: It was made by ``torch.tensor`` of a single number, on the default device.
    """

    kind: Kind = Kind.UNKNOWN
    mask: bool = False
    host: bool = False
    drawn: bool = False
    constant: bool = False
    argument: str = ""
    counting: bool = False
    local: bool = False
    number: bool = False

    @property
    def is_tensor(self) -> bool:
        """Whether it is known to be a tensor."""
        return self.kind is Kind.TENSOR

    @property
    def on_device(self) -> bool:
        """Whether it is a tensor that may lie on the device."""
        return self.kind is Kind.TENSOR and not self.host


UNKNOWN = Value()
NUMBER = Value(Kind.NUMBER)
TENSOR = Value(Kind.TENSOR, local=True)
MASK = Value(Kind.TENSOR, mask=True, local=True)
MAYBE = Value(Kind.MAYBE)
SHAPE = Value(Kind.SHAPE)

HOST_ATTRIBUTES = frozenset({
    "dtype", "device", "ndim", "requires_grad", "is_cuda", "is_cpu", "layout", "names", "itemsize",
    "nbytes", "is_leaf", "is_sparse", "is_nested", "is_meta", "is_quantized", "grad_fn", "_version",
    "name",
})  # fmt: skip
HOST_METHODS = frozenset({
    "dim", "ndimension", "numel", "nelement", "stride", "element_size", "storage_offset", "data_ptr",
    "get_device", "is_contiguous", "is_floating_point", "is_complex", "is_inference", "is_pinned",
    "is_shared", "has_names", "is_same_size", "is_signed", "is_set_to", "untyped_storage", "storage",
    "register_hook", "type",
})  # fmt: skip
HOST_FUNCTIONS = frozenset({
    "is_tensor", "is_grad_enabled", "is_inference_mode_enabled", "is_floating_point", "is_complex",
    "numel", "finfo", "iinfo", "Size", "dtype", "get_default_dtype", "get_default_device",
    "broadcast_shapes", "promote_types", "result_type", "can_cast", "is_autocast_enabled",
    "get_autocast_dtype", "no_grad", "inference_mode", "enable_grad", "set_grad_enabled", "autocast",
    "compile", "is_storage", "typename", "get_rng_state", "are_deterministic_algorithms_enabled",
    "initial_seed", "Generator", "Stream", "Event", "get_num_threads", "get_float32_matmul_precision",
    "is_autocast_cache_enabled", "get_autocast_gpu_dtype", "manual_seed", "seed", "load", "save",
    "set_default_dtype", "set_default_device", "get_device_module", "equal", "allclose", "is_nonzero",
    "is_same_size", "is_distributed", "is_conj", "is_neg",
})  # fmt: skip
"""Functions of ``torch`` whose results are no tensors."""

MASKS = frozenset({
    "eq", "ne", "gt", "lt", "ge", "le", "greater", "less", "greater_equal", "less_equal", "not_equal",
    "isnan", "isinf", "isfinite", "isposinf", "isneginf", "isclose", "isin", "logical_not",
    "logical_and", "logical_or", "logical_xor", "bool", "signbit",
})  # fmt: skip
"""Functions and methods that give truth values."""

FACTORIES = frozenset({
    "zeros", "ones", "full", "empty", "arange", "linspace", "logspace", "eye", "rand", "randn",
    "randint", "randperm", "tensor", "hann_window", "hamming_window", "blackman_window",
    "bartlett_window", "kaiser_window", "tril_indices", "triu_indices", "range", "scalar_tensor",
    "normal", "Tensor", "FloatTensor", "LongTensor", "BoolTensor", "from_numpy", "frombuffer",
    "as_tensor", "complex", "polar", "vander",
})  # fmt: skip
"""Functions of ``torch`` that make a tensor on the default device."""

DRAWS = frozenset({"rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "poisson"})
SIZED = frozenset({"arange", "zeros", "ones", "empty", "rand", "randn", "full", "linspace"})
"""Factories whose sizes and bounds are read on the host."""

TENSOR_NAMES = frozenset({
    "shape", "size", "dtype", "device", "view", "reshape", "permute", "transpose", "sum", "mean",
    "softmax", "unsqueeze", "squeeze", "flatten", "contiguous", "expand", "masked_fill", "clone",
    "detach", "relu", "exp", "log", "abs", "sqrt", "amax", "amin", "argmax", "argmin", "cumsum",
    "chunk", "unbind", "gather", "scatter", "index_select", "item", "tolist", "numpy", "cpu", "to",
    "float", "half", "bfloat16", "long", "bool", "type_as", "new_zeros", "new_tensor", "new_full",
    "new_empty", "new_ones", "ndim", "dim", "numel", "norm", "clamp", "clamp_", "mul_", "add_", "copy_",
    "zero_", "fill_", "square", "pow", "sigmoid", "tanh", "matmul", "mm", "bmm", "nonzero",
    "masked_select", "unique", "std", "var", "is_cuda", "requires_grad", "T", "mT", "t", "t_",
    "unsqueeze_", "squeeze_", "split", "repeat", "repeat_interleave", "topk", "sort", "argsort", "tril",
    "max", "min", "any", "all", "to_sparse", "register_hook", "isnan", "isinf", "isfinite", "backward",
    "sin", "cos", "round", "bincount",
})  # fmt: skip
"""Attributes and methods that speak for a tensor."""

SHARED_NAMES = frozenset(
    {"split", "sort", "size", "to", "log", "max", "min", "float", "round", "name", "type"}
)
"""Of those, the ones that text, lists, files and modules have too: they speak for nothing by themselves."""

COUNTING = frozenset({
    "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "ASGD", "Adadelta", "Adagrad",
})  # fmt: skip
"""Optimizers that keep a step count, on the host unless told otherwise."""

_MASK_NAME = re.compile(r"(^|_)masks?$")


def is_mask_name(name: str) -> bool:
    """Whether a name says that the value is a mask."""
    return _MASK_NAME.search(name) is not None


def join(one: Value, other: Value) -> Value:
    """What a name is after two branches."""
    if one == other:
        return one
    if one.kind is other.kind:
        same = one.argument if one.argument == other.argument else ""
        return Value(
            one.kind, one.mask and other.mask, one.host and other.host, one.drawn or other.drawn,
            one.constant and other.constant, same, one.counting or other.counting, one.local and other.local,
        )  # fmt: skip
    for value, rest in ((one, other), (other, one)):
        if value.is_tensor and rest.kind in (Kind.UNKNOWN, Kind.MAYBE):
            return value._replace(host=False, argument="")
    return UNKNOWN
