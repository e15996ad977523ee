"""A recording as text: its operations, and what its calls found outside.

No text depends on the process: tensors are told by where they come from and what they look like, objects are
left out. No text gives content away: strings over ``LONGEST`` characters, values of environment variables and
strings with one in them, and bytes that became tensors are told by a digest with a key
(:meth:`.FactStore.hide`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from enum import Enum
from itertools import islice
from types import BuiltinFunctionType, FunctionType
from typing import Any, NamedTuple

import torch

from ....base import ENVIRONMENT
from ...arguments import PARAMETER, PLAIN, TENSOR, Call, describe_key
from ...conditions import Guard
from ...numbers import Computed
from ...objects import Itself
from ...program import Operation, Token
from ...program.operations import (
    ArrayMemory,
    Drawn,
    HostBytes,
    HostValues,
    Number,
    NumpyScalar,
    Opaque,
    Reference,
)
from ...pytorch import plain_functions
from ...recording import Node, Recording
from .facts import StateFacts

LONGEST = 32
"""Characters of a string that is shown as it is."""
LEAST_SECRET = 6
"""Characters of an environment variable's value that is not shown wherever it comes."""
MOST_OPERATIONS, MOST_CONDITIONS, MOST_WAYS = 256, 1024, 16

_QUOTED = re.compile(r"""(?<!\w)b?'(?:[^'\\]|\\.)*(?:'|$)|(?<!\w)b?"(?:[^"\\]|\\.)*(?:"|$)""")
_NUMBERED = re.compile(r"\b0x[0-9a-f]+\b")
_READ = re.compile(r" gave .*?(, which was not seen before)?( \(before: .*\))")
_PLAIN = (int, float, complex, bool, type(None), torch.dtype, torch.device, torch.Size)
_TYPES = frozenset({*_PLAIN, str, bytes})
_ENVIRONMENT = re.compile(r"environ|getenv", re.IGNORECASE)

Hide = Callable[[str], str]
"""Gives what stands for a text that is not to be kept."""


def hide_strings(text: str, hide: Hide) -> str:
    """A text of rote's, without the long strings of the user's that it quotes, and without addresses.

    Nor does it say what the host has read of a tensor.
    """
    text = _READ.sub(" gave a value that was not seen before", text)
    of_environment = _ENVIRONMENT.search(text) is not None

    def hidden(match: re.Match[str]) -> str:
        quoted = match[0]
        in_brackets = text[: match.start()].endswith("[")
        shown = not _is_secret(quoted[1:-1]) and (in_brackets or not of_environment)
        return quoted if shown else hide(quoted)

    return _NUMBERED.sub("0x...", _QUOTED.sub(hidden, text))


def _is_secret(text: str | bytes) -> bool:
    """Whether a text is long, or has the value of an environment variable in it."""
    if len(text) > LONGEST or type(text) is not str:
        return len(text) > LONGEST
    return any([len(each) >= LEAST_SECRET and each in text for each in ENVIRONMENT.values()])


class KeyName(NamedTuple):
    """The name of a key for the store.

    Attributes:
        text: All that tells it from other keys, in any process. It is not to be kept.
        shown: What people read.
    """

    text: str
    shown: str

    @classmethod
    def of(cls, call: Call, hide: Hide, *, numbers: bool = True) -> KeyName:
        """The name of a call's key; without ``numbers`` those among the arguments are left open."""
        key = call.key
        leaves, changing = zip(call.leaves, call.kinds, key.tokens, strict=True), call.changing
        parts = [_leaf(*each, numbers=numbers and place not in changing) for place, each in enumerate(leaves)]
        around = [_told(each) for each in (key.spec, *key[2:])]
        return cls("\n".join([*parts, *around]), hide_strings(describe_key(call), hide))


def _leaf(leaf: Any, kind: str, token: Any, *, numbers: bool) -> str:
    if kind == PARAMETER:
        return f"parameter {leaf.dtype}{list(leaf.shape)} {leaf.device}"
    if kind == PLAIN and not numbers and type(leaf) in (int, float):
        return f"any {type(leaf).__name__}"
    return _told(token) if kind in (TENSOR, PLAIN) else _told(type(leaf))


def _told(value: Any) -> str:
    """A part of a key, without running code of the user's."""
    if isinstance(value, (tuple, list)):
        parts: Iterable[Any] = value
        return f"({', '.join([_told(each) for each in parts])})"
    if type(value) in (str, bytes, *_PLAIN, torch.layout, torch.memory_format):
        return repr(value)
    if isinstance(value, Enum):
        return f"{_told(type(value))}.{value._name_}"
    if isinstance(value, (type, FunctionType, BuiltinFunctionType)):
        return f"{value.__module__}.{value.__qualname__}"
    return _told(value.value if type(value) is Itself else type(value))


def facts_of(recording: Recording, hide: Hide, known: StateFacts | None = None) -> StateFacts:
    """What one recording is, as facts; ``known`` are those of its operations, if they were written down."""
    figures, tiers = recording.contest.figures, recording.tiers
    fused = [each.fused for each in tiers.newest if each.fused is not None]
    parts = (*recording.islands(), *recording.branches())
    return replace(
        known or _of_operations(recording, hide),
        islands=tuple([f"{part.operation} at {part.site} ({part.code})" for part in parts[:MOST_OPERATIONS]]),
        segments=len(recording.segments()),
        exact=bool(tiers.settled),
        kernels=sum([each.launches for each in fused]),
        replay_us=figures.replay_s * 1e6 if figures is not None else None,
        plain_us=figures.plain_s * 1e6 if figures is not None else None,
    )


def _of_operations(recording: Recording, hide: Hide) -> StateFacts:
    with plain_functions():  # to look at a tensor of the user's class is not to use it
        conditions = _conditions(recording.guard.python, hide)
    writer = _OperationTexts(hide)
    texts = [[*writer.of(way)] for way in islice(_ways(recording.root), MOST_WAYS)]
    return StateFacts(
        ways=tuple([hide("\n".join(lines)) for lines in texts]),
        operations=tuple(texts[0][:MOST_OPERATIONS]),
        count=len(texts[0]),
        conditions=conditions,
    )


def _ways(root: Node) -> Iterator[list[tuple[Any, Node]]]:
    """The ways to each end that is known: what the host has read, and the stretch that it leads to."""
    left: list[list[tuple[Any, Node]]] = [[(None, root)]]
    while left:
        way = left.pop()
        node = way[-1][1]
        if node.template is not None or not node.edges:
            yield way
        left.extend([[*way, further] for further in reversed(node.edges.items())])


def _conditions(guard: Guard, hide: Hide) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in guard.plainly(_TYPES):
        found[hide_strings(name, hide)] = _value(name, value, hide)
        if len(found) >= MOST_CONDITIONS:
            break
    return found


def _value(name: str, value: Any, hide: Hide) -> str:
    if isinstance(value, torch.Tensor):
        return f"{_short(value.dtype)}{list(value.shape)} on {value.device.type}"
    if type(value) in (str, bytes):
        hidden = _is_secret(value) or _ENVIRONMENT.search(name) is not None
        return hide(repr(value)) if hidden else repr(value)
    return repr(value) if type(value) in _TYPES else f"a {type(value).__name__}"


class _OperationTexts:
    """Operations as text; what tensors look like is written once for those that look alike."""

    def __init__(self, hide: Hide) -> None:
        self._hide = hide
        self._looks: dict[int, str] = {}

    def of(self, way: Iterable[tuple[Any, Node]]) -> Iterator[str]:
        """The operations on a way, in order, and what the host has read between them as digests."""
        for number, (edge, node) in enumerate(way):
            if number:
                yield f"read {self._hide(self._operand(edge))}"
            for operation in node.operations:
                text = self._operation(operation)
                if number and any([each.kind is float for each in operation.numbers]):
                    text = f"{operation.name}({self._hide(text)})"  # what the host has read is content
                yield text

    def _operation(self, operation: Operation) -> str:
        given = [self._operand(each) for each in operation.operands]
        given += [f"{name}={self._operand(each)}" for name, each in operation.named]
        made = ", ".join([self._operand(each) for each in operation.results])
        return f"{operation.name}({', '.join(given)}) -> {made}"

    def _operand(self, operand: Any) -> str:
        if type(operand) is Token:
            return self._token(operand)
        if isinstance(operand, (Number, *_PLAIN)):
            return repr(operand)
        if isinstance(operand, Reference):
            changed = f" as {self._token(operand.token)}" if operand.token is not None else ""
            return f"operand {operand.operand}{changed}"
        if isinstance(operand, (HostBytes, NumpyScalar)) and isinstance(operand.content, bytes):
            return self._hide(operand.content.hex())
        if isinstance(operand, HostValues):
            return f"values {self._operand(operand.values)} {_short(operand.dtype)}"
        if isinstance(operand, ArrayMemory):
            return f"an array {operand.dtype}{list(operand.shape)}"
        if isinstance(operand, (str, bytes)):
            return self._hide(repr(operand)) if _is_secret(operand) else repr(operand)
        if isinstance(operand, (tuple, list)):
            parts: Iterable[Any] = operand
            return f"[{', '.join([self._operand(each) for each in parts])}]"
        known = {
            Computed: "a computed number",
            HostBytes: "a computed array",
            Drawn: "a generator",
            Opaque: "an object",
        }
        return known.get(type(operand), type(operand).__name__)

    def _token(self, token: Token) -> str:
        (kind, number), look, offset = token
        text = self._looks.get(id(look))  # the program keeps it alive
        if text is None:
            text = self._looks[id(look)] = _look(token)
        return f"{kind} {number}+{offset} {text}" if offset else f"{kind} {number} {text}"


def _look(token: Token) -> str:
    stride = "" if _is_dense(token) else f" by {list(token.stride)}"
    return f"{_short(token.dtype)}{list(token.shape)}{stride}{'' if token.on_host else ' away'}"


def _is_dense(token: Token) -> bool:
    step = 1
    for size, stride in zip(reversed(token.shape), reversed(token.stride), strict=True):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def _short(kind: Any) -> str:
    return str(kind).removeprefix("torch.")
