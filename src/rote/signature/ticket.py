"""A short cut for calls like the last one: compare the arguments with it instead of computing a key.

Only for the plain case (tensors and plain values given directly, nothing nested, nothing opaque), which is
the usual one on the hot path. A ticket that does not match says nothing; the key is computed then.
"""

from __future__ import annotations

from typing import Any

import torch

from .ambient import read_ambient
from .key import PLAIN, TENSOR, Call, describe, describe_tensor, is_plain

_EXACT = (int, bool, str, float, type(None))


class Ticket:
    """Recognises calls that have the key of an earlier one.

    Args:
        call: The earlier call.
        positional: How many of its leaves were positional.
        names: The keywords, in the order they were given.
    """

    def __init__(self, call: Call, positional: int, names: tuple[str, ...]) -> None:
        self._call = call._replace(leaves=(), given=None)  # a ticket keeps no argument alive
        self._positional = positional
        self._names = names
        self._tokens = call.key[1]
        self._ambient = call.key[3]
        self._tensors = [position for position, kind in enumerate(call.kinds) if kind is TENSOR]

    @classmethod
    def of(cls, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ticket | None:
        """A ticket for calls like this one, or None if it is not of the plain kind."""
        if len(call.leaves) != len(args) + len(kwargs) or call.key[2] or call.foreign:
            return None
        given = (*args, *kwargs.values())
        for leaf, own, kind in zip(given, call.leaves, call.kinds, strict=True):
            plain = kind is PLAIN and type(leaf) in _EXACT
            if leaf is not own or not (plain or type(leaf) is torch.Tensor):
                return None
        return cls(call, len(args), tuple(kwargs))

    def admit(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        """The call, if it has the ticket's key."""
        if len(args) != self._positional or ((kwargs or self._names) and tuple(kwargs) != self._names):
            return None
        leaves = (*args, *kwargs.values()) if kwargs else args
        for leaf, token in zip(leaves, self._tokens, strict=True):
            if type(leaf) is torch.Tensor:
                if not is_plain(leaf) or describe_tensor(leaf) != token:
                    return None
            elif type(leaf) not in _EXACT or describe(leaf)[1] != token:
                return None
        if len(self._tensors) > 1:
            handles = {leaves[position].untyped_storage()._cdata for position in self._tensors}
            if len(handles) != len(self._tensors):
                return None
        if read_ambient() != self._ambient:
            return None
        known = self._call
        return Call(known.spec, leaves, known.kinds, known.key, (args, kwargs), openings=known.openings)
