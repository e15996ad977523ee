"""The plain callable and the graphed one, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Unpack

import numpy
import torch

from ..api import Graphed, OptionKeywords, graph, shows_options
from ..base import cut
from ..runtime.arguments import TENSOR, bind, flatten, leaves_of, paths, sharing, unflatten
from ..runtime.pytorch import is_lazy_zero
from ..runtime.verify import compare_tensors

_Array = numpy.ndarray[Any, Any]
_FLOATING = frozenset({"float16", "float32", "float64", "complex64", "complex128"})
"""Types of numpy's that PyTorch has as well, and that have more than one zero."""


def assert_same(actual: Any, expected: Any, what: str = "result", *, tolerance: float = 0.0) -> None:
    """Check that two nested values are equal.

    Tensors have to agree in shape, stride, dtype, device, ``requires_grad`` and, bit for bit, in their
    values, where a NaN equals any other; tensors that share a storage in one value have to share one in the
    other. Arrays of numpy have to agree in shape, dtype and values, likewise.

    Args:
        actual: A tensor, an array, a plain value, or a nested structure of them.
        expected: The value to compare it with.
        what: Its name in messages.
        tolerance: Allowed absolute and relative difference; 0 compares bits.

    Raises:
        AssertionError: A leaf differs; the message names it, its value and the expected one.
    """
    ours: list[Any] = []
    theirs: list[Any] = []
    spec, wanted = flatten(actual, ours), flatten(expected, theirs)
    if spec != wanted:
        given, outline = cut(repr(actual), 60), cut(repr(expected), 60)
        raise AssertionError(f"{what} has another structure: {given} instead of {outline}")
    for name, mine, other in zip(paths(spec, what), ours, theirs, strict=True):
        _assert_leaf(name, mine, other, tolerance)
    if sharing(ours) != sharing(theirs):
        shared = f"{sharing(ours)} instead of {sharing(theirs)}"
        raise AssertionError(f"other tensors of {what} share memory: {shared}")


def _assert_leaf(name: str, actual: Any, expected: Any, tolerance: float) -> None:
    if isinstance(actual, numpy.ndarray) and isinstance(expected, numpy.ndarray):
        _assert_array(name, actual, expected, tolerance)
    elif not isinstance(actual, torch.Tensor) or not isinstance(expected, torch.Tensor):
        if type(actual) is not type(expected) or not _equal(actual, expected):
            raise AssertionError(f"{name} is {actual!r} and should be {expected!r}")
    else:
        for found in compare_tensors(name, actual, expected, tolerance):
            raise AssertionError(str(found).replace(" in the plain call", " was expected"))
        if actual.layout is not torch.strided:
            _assert_leaf(name, actual.to_dense(), expected.to_dense(), tolerance)


def _assert_array(name: str, actual: _Array, expected: _Array, tolerance: float) -> None:
    for aspect in ("shape", "dtype"):
        mine, other = getattr(actual, aspect), getattr(expected, aspect)
        if mine != other:
            raise AssertionError(f"{name}.{aspect} is {mine} and should be {other}")
    if actual.dtype.name in _FLOATING:
        mine, other = (torch.from_numpy(numpy.array(each)) for each in (actual, expected))
        _assert_leaf(name, mine, other, tolerance)
    elif not numpy.array_equal(actual, expected):
        raise AssertionError(f"{name} is {actual!r} and should be {expected!r}")


def _equal(actual: Any, expected: Any) -> bool:
    if isinstance(actual, float):
        return actual.hex() == expected.hex()
    return actual is expected or bool(actual == expected)


_COPIED = (torch.Tensor, int, float, bool, str, bytes, complex, type(None))


class Arguments(NamedTuple):
    """The arguments of one call, positional and by keyword."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}  # noqa: RUF012  (never written)


class _Ran(NamedTuple):
    """The outcome of one call."""

    value: Any
    error: Exception | None
    inputs: list[Any]
    random: list[torch.Tensor]


@shows_options
def compare(
    fn: Callable[..., Any],
    calls: Iterable[Any],
    *,
    plain: Callable[..., Any] | None = None,
    states: tuple[Callable[[], Any], Callable[[], Any]] | None = None,
    seed: int = 0,
    tolerance: float = 0.0,
    **options: Unpack[OptionKeywords],
) -> Graphed:
    """Make calls to a callable twice, as it is and through ``rote.graph``, and check that they do the same.

    Both get copies of the arguments and the same seed. Each call is compared by its result, its arguments (it
    may change them), the random number generators, and an exception's type and text. At the end every result
    is compared once more: none may have changed since it was returned.

    A callable that changes state of its own needs a second one with state of its own: ``plain``.

    Args:
        fn: The callable to graph.
        calls: One entry for each call: a tuple of positional arguments, a dict of keyword arguments, or
            :class:`Arguments`. Tensors are copied for each side; parameters and other objects are not.
        plain: The callable to compare with, if ``fn`` notices that it is called twice.
        states: Two functions that return (nested) state to compare after each call: of ``fn``, of ``plain``.
        seed: Seed of the first call; each later call has the next one.
        tolerance: See :func:`assert_same`.
        **options: Options of :func:`..graph`.

    Returns:
        The graphed callable, to ask for its report.

    Raises:
        AssertionError: Something differed; the message names the call and the difference.
    """
    graphed = graph(fn, **options)
    kept: list[tuple[str, Any, Any]] = []
    for number, arguments in enumerate(calls):
        args, kwargs = _arguments(arguments)
        expected = _run(plain or fn, args, kwargs, seed + number)
        actual = _run(graphed, args, kwargs, seed + number)
        what = f"call {number}"
        _assert_error(what, actual.error, expected.error)
        assert_same(actual.inputs, expected.inputs, f"{what}: inputs", tolerance=tolerance)
        assert_same(actual.random, expected.random, f"{what}: random state")
        if states is not None:
            assert_same(states[0](), states[1](), f"{what}: state", tolerance=tolerance)
        if expected.error is None:
            assert_same(actual.value, expected.value, f"{what}: result", tolerance=tolerance)
            if _is_held(expected.value):
                kept.append((what, actual.value, _snapshot(actual.value)))
    for what, value, then in kept:
        now = _mapped(value, torch.Tensor.detach)
        assert_same(now, then, f"{what}: result, looked at again after the last call")
    return graphed


def _arguments(arguments: Any) -> Arguments:
    if isinstance(arguments, Arguments):
        return arguments
    if isinstance(arguments, dict):
        return Arguments((), arguments)
    if isinstance(arguments, tuple):
        return Arguments(arguments)
    raise TypeError(
        f"a call is a tuple, a dict or rote.testing.Arguments, not a {type(arguments).__name__}: "
        "write (x,) for one positional argument"
    )


def _run(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], seed: int) -> _Ran:
    call = bind(args, kwargs)
    storages: dict[int, torch.UntypedStorage] = {}
    leaves = [
        _copy(leaf, storages) if kind == TENSOR else leaf
        for leaf, kind in zip(call.leaves, call.kinds, strict=True)
    ]
    copied_args, copied_kwargs = call.rebuild(leaves)[:2]
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_available():  # of devices without a driver PyTorch would keep a traceback each time
        torch.cuda.manual_seed_all(seed)
    value, error = None, None
    try:
        value = fn(*copied_args, **copied_kwargs)
    except Exception as raised:  # the user's own, whatever it is
        error = raised
    inputs = [leaf for leaf, kind in zip(leaves, call.kinds, strict=True) if kind == TENSOR]
    return _Ran(value, error, inputs, _random_state())


def _random_state() -> list[torch.Tensor]:
    states = [torch.get_rng_state()]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states.append(torch.cuda.get_rng_state())
    return states


def _copy(tensor: torch.Tensor, storages: dict[int, torch.UntypedStorage]) -> torch.Tensor:
    """A copy of a tensor; copies share memory where tensors do: ``storages`` are those copied so far."""
    if tensor.layout is not torch.strided or tensor.is_meta or is_lazy_zero(tensor):
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)
    storage = tensor.untyped_storage()
    if storage._cdata not in storages:
        storages[storage._cdata] = storage.clone()
    with torch.inference_mode(tensor.is_inference()):
        fresh = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        fresh.set_(storages[storage._cdata], tensor.storage_offset(), tensor.shape, tensor.stride())
    return fresh.requires_grad_(tensor.requires_grad)


def _assert_error(what: str, actual: Exception | None, expected: Exception | None) -> None:
    mine, other = _describe(actual), _describe(expected)
    if mine != other:
        raise AssertionError(f"{what} {mine} and should have: {other}") from actual


def _describe(error: Exception | None) -> str:
    return "returned" if error is None else f"raised {type(error).__name__}: {error}"


def _snapshot(value: Any) -> Any:
    """The value with copies of its tensors, out of autograd."""
    storages: dict[int, torch.UntypedStorage] = {}
    return _mapped(value, lambda tensor: _copy(tensor.detach(), storages))


def _mapped(value: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The value with a function applied to its tensors."""
    leaves: list[Any] = []
    spec = flatten(value, leaves)
    return unflatten(
        spec, iter([function(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves])
    )


def _is_held(value: Any) -> bool:
    """Whether a result consists of tensors and plain values, so that it can be kept and copied."""
    return all(isinstance(leaf, _COPIED) for leaf in leaves_of(value))
