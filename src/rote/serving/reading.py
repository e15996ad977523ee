"""Messages from clients, read.

msgpack reads each number and text. The lists and maps are walked here, since their headers decide how much is
allocated: a header of five bytes announces four billion members, and each byte of a message can be an empty
map of sixty-four. So a size is held against what is left of the message and of the limit before a list is
begun, and values are counted over the whole message.

What does not work: ``msgpack.unpackb`` with its own limits. They hold for each list by itself, nothing counts
values over all of them, and what it calls for a finished map is called after the members have been made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base import EnvironmentError_
from .arrays import ARRAY, GENERIC, MessageError, WireLimits, array_of, generic_of

NO_SERVE = "serving needs websockets and msgpack: pip install 'rote[serve]'"

_EXTENSIONS = frozenset({0xC7, 0xC8, 0xC9, *range(0xD4, 0xD9)})
_LISTS = frozenset({*range(0x90, 0xA0), 0xDC, 0xDD})
_MAPS = frozenset({*range(0x80, 0x90), 0xDE, 0xDF})
_NO_SCALARS = _EXTENSIONS | _LISTS | _MAPS


def decode(message: bytes, limits: WireLimits) -> Any:
    """The value of a message; arrays and numbers of numpy's are made anew.

    Raises:
        MessageError: The message is malformed, over a limit, or has something in it that is not accepted.
        EnvironmentError_: msgpack is not installed.
    """
    if len(message) > limits.message_bytes:
        raise MessageError(
            f"a message has {len(message):,} bytes, and {limits.message_bytes:,} are the limit"
        )
    walk = _Walk(message, limits)
    value = walk.value(0)
    if walk.left_over:
        raise MessageError(f"{walk.left_over:,} bytes follow behind the value of a message")
    return value


class _Walk:
    """A way through one message, from value to value."""

    def __init__(self, message: bytes, limits: WireLimits) -> None:
        try:
            import msgpack
        except ModuleNotFoundError as error:
            raise EnvironmentError_(NO_SERVE) from error
        self._message = message
        self._limits = limits
        self._values = 0
        self._malformed = (msgpack.UnpackException, ValueError)
        self._unpacker: Any = msgpack.Unpacker(max_buffer_size=max(len(message), 1), strict_map_key=True)
        self._unpacker.feed(message)

    @property
    def left_over(self) -> int:
        """How many bytes have not been read."""
        return len(self._message) - self._unpacker.tell()

    def value(self, depth: int) -> Any:
        """The next value, at a depth."""
        first = self._first()
        if first in _EXTENSIONS:
            raise MessageError("extension types of msgpack are not accepted")
        if first in _LISTS:
            members = self._size(self._read(self._unpacker.read_array_header), depth, 1)
            return [self.value(depth + 1) for _ in range(members)]
        if first not in _MAPS:
            return self._read(self._unpacker.unpack)
        found = self._map(depth)
        if ARRAY in found:
            return array_of(found, self._limits)
        return generic_of(found) if GENERIC in found else found

    def _map(self, depth: int) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for _ in range(self._size(self._read(self._unpacker.read_map_header), depth, 2)):
            key = self._key()
            if key in found:
                raise MessageError("a key of a map comes twice")
            found[key] = self.value(depth + 1)
        return found

    def _key(self) -> str | bytes:
        key = None if self._first() in _NO_SCALARS else self._read(self._unpacker.unpack)
        if not isinstance(key, (str, bytes)):
            raise MessageError("a key of a map is neither a text nor bytes")
        return key

    def _first(self) -> int:
        """The byte that says what comes next; that is counted."""
        self._values += 1
        if self._values > self._limits.values:
            raise MessageError(f"a message has more than {self._limits.values:,} values, which are the limit")
        if not self.left_over:
            raise MessageError("a message ends in the middle")
        return self._message[self._unpacker.tell()]

    def _size(self, members: int, depth: int, bytes_each: int) -> int:
        """The number of members of a list or map, which has to be possible."""
        if depth >= self._limits.depth:
            raise MessageError(f"lists and maps lie deeper than {self._limits.depth} in each other")
        if members * bytes_each > self.left_over:
            raise MessageError("a message ends in the middle")
        if members > self._limits.values:
            raise MessageError(f"a message has more than {self._limits.values:,} values, which are the limit")
        return members

    def _read(self, what: Callable[[], Any]) -> Any:
        try:
            return what()
        except self._malformed as error:
            why = str(error) or type(error).__name__
            raise MessageError(f"a message is no msgpack: {why}") from error
