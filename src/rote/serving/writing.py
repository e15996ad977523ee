"""Messages to clients, written: what a policy returns, as the clients of openpi read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch

from ..base import EnvironmentError_, MisuseError
from .arrays import ARRAY, DATA, GENERIC, SHAPE, TYPE, is_known
from .reading import NO_SERVE

_DEEPEST = 32


def encode(value: Any, name: str = "result") -> bytes:
    """A value as a message: numbers, texts, bytes, lists, mappings, numpy arrays, and tensors on any device.

    Args:
        value: What is written. Tensors become numpy arrays.
        name: What errors call it.

    Raises:
        MisuseError: Something in it cannot be written; the message names its place.
        EnvironmentError_: msgpack is not installed.
    """
    try:
        import msgpack
    except ModuleNotFoundError as error:
        raise EnvironmentError_(NO_SERVE) from error
    try:
        return cast("bytes", msgpack.packb(plain(value, name)))
    except OverflowError as error:
        raise MisuseError(
            f"{name} has an integer of more than 64 bits, which a message cannot hold"
        ) from error


def plain(value: Any, name: str = "result") -> Any:
    """A copy of a value in what msgpack knows, on the host. It waits for the devices of tensors.

    Raises:
        MisuseError: Something in it cannot be written.
    """
    return _plain(value, name, _DEEPEST)


def _plain(value: Any, name: str, deep: int) -> Any:
    """The value in lists, dicts and what msgpack knows."""
    if value is None or isinstance(value, (bool, int, float, str, bytes, bytearray)):
        return value
    if not deep:
        raise MisuseError(
            f"{name} lies deeper than {_DEEPEST} in lists and dicts; a message cannot hold that"
        )
    if isinstance(value, torch.Tensor):
        value = _array(value, name)
    if isinstance(value, Mapping):
        members = cast("Mapping[Any, Any]", value)
        return {_key(key, name): _plain(each, f"{name}[{key!r}]", deep - 1) for key, each in members.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each, f"{name}[{i}]", deep - 1) for i, each in enumerate(cast("list[Any]", value))]
    if isinstance(value, (np.ndarray, np.generic)):
        return _of_numpy(value, name)
    raise MisuseError(
        f"{name} is a {type(value).__name__}, which a message cannot hold; return numbers, texts, bytes, "
        "lists, dicts, arrays and tensors"
    )


def _key(key: Any, name: str) -> str | bytes:
    if isinstance(key, (str, bytes)):
        return key
    raise MisuseError(f"{name} has the key {key!r}; a message has texts and bytes as keys")


def _array(tensor: torch.Tensor, name: str) -> np.ndarray[Any, Any]:
    try:
        return tensor.detach().resolve_conj().resolve_neg().cpu().numpy()
    except (TypeError, RuntimeError) as error:
        raise MisuseError(
            f"{name} is a tensor of {tensor.dtype} ({tensor.layout}), which numpy does not have: return "
            ".float() or .to_dense() of it"
        ) from error


def _of_numpy(value: np.ndarray[Any, Any] | np.generic, name: str) -> dict[bytes, Any]:
    if not is_known(value.dtype):
        raise MisuseError(
            f"{name} has the type {value.dtype}, which a message cannot hold; convert it to booleans, "
            "integers, floats of 2, 4 or 8 bytes, or texts"
        )
    if isinstance(value, np.ndarray):
        return {ARRAY: True, DATA: value.tobytes(), TYPE: value.dtype.str, SHAPE: value.shape}
    return {GENERIC: True, DATA: value.item(), TYPE: value.dtype.str}
