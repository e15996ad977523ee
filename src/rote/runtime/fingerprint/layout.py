"""Finds the words in memory that describe a tensor, and the length of a container.

Nothing is assumed. The words are found by samples whose every property is known: sizes, strides
and addresses no two of which are the same. A place has to be the only one that fits all samples, and every
kind of change to a tensor (:data:`CHANGES`) has to show in the places found. Otherwise there is no layout.
"""

from __future__ import annotations

import sys
from abc import ABC, get_cache_token
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from functools import cache, partial
from types import CellType, FunctionType, MemberDescriptorType, ModuleType
from typing import Any, NamedTuple

import numpy
import torch

from ..pytorch import Sizes, negative_view, sizes_of_objects
from .words import BYTES, Layout, Owners, WatchedWords, Words, is_readable, places, read, word


@cache
def find_layout() -> Layout | None:
    """Find where the words lie; None where not all of them are found, or a change does not show in them."""
    sizes = sizes_of_objects()
    if sizes is None:
        return None
    with torch.inference_mode(False), torch.enable_grad():
        layout = _search(sizes)
        return layout if layout is not None and shows_changes(layout) else None


def watch(tensors: list[torch.Tensor]) -> WatchedWords | None:
    """Note what tensors are, without keeping them alive; None where that cannot be read."""
    layout = find_layout()
    if layout is None or not all([is_readable(layout, tensor) for tensor in tensors]):
        return None
    return WatchedWords(Words(layout, tensors), tensors)


@cache
def find_owners() -> Owners | None:
    """Find the words that say who holds a tensor and its gradient; None where not all are found."""
    layout, sizes = find_layout(), sizes_of_objects()
    if layout is None or sizes is None:
        return None
    with torch.inference_mode(False), torch.enable_grad():
        return _search_owners(layout, sizes)


@cache
def find_lengths() -> dict[type, int]:
    """For each type of container, the word of its object that is the length, where that is found."""
    found: dict[type, int] = {}
    for kind in (dict, OrderedDict, defaultdict, list, set) if sizes_of_objects() is not None else ():
        make: Any = partial(defaultdict, None) if kind is defaultdict else kind
        samples: list[Any] = [make([(n, n) for n in range(length)]) for length in (1, 2, 37, 105)]
        for sample in samples:  # or the number of changes would be the length as well
            sample.remove((0, 0)) if kind is set else sample.__delitem__(0)
        heads = [read(id(sample), kind.__basicsize__ // BYTES) for sample in samples]
        place = _place(heads, [[len(sample)] for sample in samples])
        if place is not None:
            found[kind] = place
    return found


@cache
def find_cell() -> int | None:
    """The word of a closure's cell that is the address of what it holds; None where that is not found."""
    if sizes_of_objects() is None:
        return None
    held = [object() for _ in range(4)]
    cells = [CellType(each) for each in held]
    heads = [read(id(cell), CellType.__basicsize__ // BYTES) for cell in cells]
    return _place(heads, [[id(each)] for each in held])


@cache
def find_attributes() -> dict[tuple[type, str], int]:
    """The words of objects that are the addresses of attributes, where they are found."""
    found: dict[tuple[type, str], int] = {}
    for (kind, name), make in _WITH.items() if sizes_of_objects() is not None else ():
        samples = [make(_Held(number)) for number in range(4)]
        heads = [read(id(sample), kind.__basicsize__ // BYTES) for sample in samples]
        place = _place(heads, [[id(getattr(sample, name))] for sample in samples])
        if place is not None:
            found[kind, name] = place
    return found


class _Held:
    """What a sample holds, another one in each."""

    def __init__(self, number: int) -> None:
        self.name = f"_Held{number}"

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Nothing is made: a factory has to be callable."""


def _function(name: str, value: Callable[[_Held], Any]) -> Callable[[_Held], Any]:
    """A sample of functions, with one attribute set."""

    def make(held: _Held) -> Any:
        function = FunctionType((lambda: None).__code__.replace(co_name=held.name), {})
        setattr(function, name, value(held))
        return function

    return make


def _class(held: _Held) -> type:
    return type(held.name, (), {"__qualname__": f"{held.name} of a sample"})


def _partial(held: _Held) -> Any:
    return partial(held, held.name, held=held)


_WITH: dict[tuple[type, str], Callable[[_Held], Any]] = {
    (FunctionType, "__defaults__"): _function("__defaults__", lambda held: (held,)),
    (FunctionType, "__kwdefaults__"): _function("__kwdefaults__", lambda held: {"held": held}),
    (FunctionType, "__code__"): _function("__module__", lambda held: held.name),
    (FunctionType, "__doc__"): _function("__doc__", lambda held: (held,)),
    (FunctionType, "__name__"): _function("__name__", lambda held: f"{held.name} of a sample"),
    (FunctionType, "__qualname__"): _function("__qualname__", lambda held: f"{held.name} of a sample"),
    (FunctionType, "__annotations__"): _function("__annotations__", lambda held: {"held": held}),
    (FunctionType, "__globals__"): lambda held: FunctionType((lambda: None).__code__, {"held": held}),
    (type, "__mro__"): _class,
    (type, "__name__"): _class,
    (type, "__qualname__"): _class,
    (partial, "func"): _partial,
    (partial, "args"): _partial,
    (partial, "keywords"): _partial,
    (defaultdict, "default_factory"): defaultdict,
}


def place_of_slot(kind: type, name: str) -> int | None:
    """The word of an instance that is the address of an attribute with a slot; None where that is not found.

    Instances are made for it, without their ``__init__``. Nothing of the user's code runs.
    """
    found = [vars(each)[name] for each in kind.__mro__ if name in vars(each)]
    if sizes_of_objects() is None or type(kind) is not type or hasattr(kind, "__del__"):
        return None
    if kind.__getattribute__ is not object.__getattribute__:
        return None
    if not found or type(found[0]) is not MemberDescriptorType:
        return None
    held = [object() for _ in range(3)]
    try:
        samples = [object.__new__(kind) for _ in held]
        for sample, each in zip(samples, held, strict=True):
            found[0].__set__(sample, each)
    except (TypeError, AttributeError):  # it is more than an object with slots, or the slot is C's own
        return None
    heads = [read(id(sample), kind.__basicsize__ // BYTES) for sample in samples]
    return _place(heads, [[id(each)] for each in held])


class SetWords(NamedTuple):
    """Words of a set, by their number.

    Attributes:
        mask: One less than the number of places in its table, of two words each.
    """

    mask: int
    table: int


_BEFORE_MEMBERS = range(2, 7)
"""Words of a set that are numbers and the address of its table; then follow members of small ones."""


@cache
def find_sets() -> SetWords | None:
    """Find where the table of a set lies, and how large it is; None where that is not found."""
    if sizes_of_objects() is None:
        return None
    samples = [{object() for _ in range(length)} for length in (2, 5, 9, 40)]
    heads = [read(id(sample), _BEFORE_MEMBERS.stop) for sample in samples]
    masks = [
        n for n in _BEFORE_MEMBERS if all(6 < head[n] < 256 and not head[n] & head[n] + 1 for head in heads)
    ]
    tables = [n for n in _BEFORE_MEMBERS if all(head[n] >> 20 and not head[n] >> 60 for head in heads)]
    if len(masks) != 1 or len(tables) != 1 or any(head[tables[0]] % BYTES for head in heads):
        return None
    found = SetWords(masks[0], tables[0])
    for sample, head in zip(samples, heads, strict=True):
        keys = read(head[found.table], 2 * head[found.mask] + 2)[::2]
        if [key for key in keys if key] != list(map(id, sample)):
            return None
    return found


def place_of_table(kind: type) -> int | None:
    """The word that is the address of the dict with the attributes of an instance; None if there is none.

    It may lie before the object (seen in Python 3.11 to 3.13). Each object has to be asked whether the word
    is that address: some keep their attributes elsewhere.
    """
    if sizes_of_objects() is None:
        return None
    if kind.__flags__ & _MANAGED:
        return _BEFORE
    offset = kind.__dictoffset__
    return offset // BYTES if offset > 0 and offset % BYTES == 0 else None


_MANAGED = 1 << 4
"""Of the flags of a type: its instances have their attributes where Python puts them, before the object."""
_BEFORE = -3
"""Which word that is: after it follow a word of weak references and two of the collector."""


@cache
def find_items() -> int | None:
    """The word of a list that is the address of its members' addresses; None where that is not found.

    After the first two words of a list (references and type), all others are numbers of members. A word that
    is too large for that is an address, and may be followed.
    """
    if sizes_of_objects() is None:
        return None
    samples = [[object() for _ in range(length)] for length in (3, 17, 40)]
    heads = [read(id(sample), list.__basicsize__ // BYTES) for sample in samples]
    large = {place for head in heads for place, found in enumerate(head) if place > 1 and found >> 20}
    if len(large) != 1:
        return None
    place = large.pop()
    ids = [[id(each) for each in sample] for sample in samples]
    found = [head[place] for head in heads]
    if any(address % BYTES or address < 1 << 20 for address in found):
        return None
    return place if [read(*each) for each in zip(found, (3, 17, 40), strict=True)] == ids else None


@cache
def find_version() -> int | None:
    """The word of a dict that is another number after every change to it; None where there is none.

    Such a number (PEP 509) is what PyTorch reads before Python 3.12
    (:func:`..pytorch.torch_private.dict_version`). It is kept up in 3.12; in 3.13 not every store to an
    attribute changes it. :func:`state_of` says which part of it concerns the dict.
    """
    if sizes_of_objects() is None or sys.version_info >= (3, 13):
        return None
    size = dict.__basicsize__ // BYTES
    found = set(range(size))
    for change in DICT_CHANGES.values():
        sample: dict[Any, Any] = {"a": 1, "b": 2}
        found &= set(_changed(id(sample), size, lambda sample=sample, change=change: change(sample)))
    return found.pop() if len(found) == 1 else None


@cache
def find_registrations() -> int | None:
    """The index of a word, among all memory, that is another number after each registration with a class.

    It is the token of abstract classes (:func:`abc.get_cache_token`), which lies in the state of their module
    in C (seen in Python 3.11 to 3.13); None where that is not found.
    """
    module = sys.modules.get("_abc")
    if sizes_of_objects() is None or module is None:
        return None
    states = [found for found in read(id(module), ModuleType.__basicsize__ // BYTES)[2:] if found >> 20]
    said = [[word(state, 1) if not state % BYTES else -1 for state in states]]
    numbers = [get_cache_token()]
    for _ in range(3):

        class Sampled(ABC): ...  # noqa: B024

        Sampled.register(_Held)
        said.append([word(state, 1) if not state % BYTES else -1 for state in states])
        numbers.append(get_cache_token())
    found = [state for state, *seen in zip(states, *said, strict=True) if seen == numbers]
    return places(found[0], [1])[0] if len(found) == 1 and len({*numbers}) == len(numbers) else None


def state_of(version: int) -> int:
    """The state of a dict, taken from its version: in 3.12 the last eight bits say who watches it."""
    return version >> 8 if sys.version_info >= (3, 12) else version


# ------------------------------------------------------------------ every kind of change

DICT_CHANGES: dict[str, Callable[[dict[Any, Any]], Any]] = {
    "another value": lambda found: found.__setitem__("a", 2),
    "another key": lambda found: found.__setitem__("c", 1),
    "a value by update": lambda found: found.update(a=2),
    "a value of another dict": lambda found: found.update({"b": 3}),
    "a default": lambda found: found.setdefault("c", 1),
    "one gone": lambda found: found.pop("a"),
    "the last gone": lambda found: found.popitem(),
    "all gone": lambda found: found.clear(),
    "joined": lambda found: found.__ior__({"a": 2}),
}
"""What can be done to a dict that is not empty."""


def _rebind(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], None]:
    def rebind(tensor: torch.Tensor) -> None:
        tensor.data = change(tensor.data)

    return rebind


class _Sub(torch.Tensor):
    pass


CHANGES: dict[str, Callable[[torch.Tensor], Any]] = {
    "class": lambda tensor: setattr(tensor, "__class__", _Sub),
    "implementation": lambda tensor: torch.utils.swap_tensors(tensor, torch.zeros_like(tensor)),
    "storage": _rebind(torch.clone),
    "memory": lambda tensor: tensor.untyped_storage().resize_(2 * tensor.untyped_storage().nbytes()),
    "no memory": lambda tensor: tensor.untyped_storage().resize_(0),
    "dimensions": _rebind(lambda data: data.unsqueeze(0)),
    "sizes": _rebind(lambda data: data[:-1]),
    "strides": _rebind(lambda data: data.as_strided(data.shape, [0] * data.dim(), data.storage_offset())),
    "strides in place": lambda tensor: tensor.as_strided_(tensor.shape, [0] * tensor.dim()),
    "offset": _rebind(lambda data: data.as_strided(data.shape, data.stride(), data.storage_offset() + 1)),
    "type": _rebind(lambda data: data.view(torch.int64)),
    "conjugate": _rebind(torch.conj),
    "negative": _rebind(lambda data: negative_view(data)),
    "gradient required": lambda tensor: tensor.requires_grad_(not tensor.requires_grad),
    "result of an operation": lambda tensor: tensor.add_(torch.ones((), device="cpu", requires_grad=True)),
}
"""What can be done to a tensor of complex numbers that lies where it lay in its dict."""


def shows_changes(layout: Layout) -> bool:
    """Whether the words of samples differ after every kind of change, and not before."""
    for change in CHANGES.values():
        if not _shows(layout, _sample(3), change):
            return False
        if not _shows(layout, _sample(2).requires_grad_().requires_grad_(False), change):
            return False  # autograd keeps something for this one
    return True


def _shows(layout: Layout, tensor: torch.Tensor, change: Callable[[torch.Tensor], Any]) -> bool:
    if not is_readable(layout, tensor):
        return False
    words = Words(layout, [tensor])
    before = words.same()
    change(tensor)
    return before and not words.same()


# ------------------------------------------------------------------ the search


def _search(sizes: Sizes) -> Layout | None:
    """The places at which all samples have what they must have."""
    samples = [_sample(dimensions) for dimensions in range(1, 6)]
    objects = [read(id(sample), type(sample).__basicsize__ // BYTES) for sample in samples]
    bodies = [read(sample._cdata, sizes.body) for sample in samples]
    foreign = [torch.from_numpy(numpy.zeros(8)) for _ in samples]  # freed by another address than their own
    storages = [read(tensor.untyped_storage()._cdata, sizes.storage) for tensor in foreign]
    found = [
        _place(objects, [[sample._cdata] for sample in samples]),
        _place(bodies, [[sample.untyped_storage()._cdata] for sample in samples]),
        _place(bodies, [[sample.dim()] for sample in samples]),
        _place(bodies, [list(sample.shape) for sample in samples]),
        _place(bodies, [list(sample.stride()) for sample in samples]),
        _place(bodies, [[int(sample.storage_offset())] for sample in samples]),
        _place(storages, [[tensor.data_ptr()] for tensor in foreign]),
    ]
    if None in found:
        return None
    body, storage, dimensions, first, strides, offset, memory = [at for at in found if at is not None]
    autograd = _changed_body(sizes, "gradient required")
    if len(autograd) != 1:
        return None
    kinds = {place for name in ("type", "conjugate", "negative") for place in _changed_body(sizes, name)}
    flags: set[int] = set()
    for name in ("gradient required", "result of an operation"):
        tensor = _sample(2).requires_grad_().requires_grad_(False)
        address = word(tensor._cdata, autograd[0])
        flags.update(
            _changed(address, sizes.autograd, lambda name=name, tensor=tensor: CHANGES[name](tensor))
        )
    return Layout(sizes.body, body, storage, autograd[0], dimensions, first, strides, offset,
                  tuple(sorted(kinds)), memory, tuple(sorted(flags)))  # fmt: skip


def _search_owners(layout: Layout, sizes: Sizes) -> Owners | None:
    """The places that change with what they say, and with nothing else."""
    tensor, other = _sample(2).requires_grad_(), _sample(2)
    kept: list[Any] = []
    autograd, size = word(tensor._cdata, layout.autograd), type(tensor).__basicsize__ // BYTES
    gradient = _changed(autograd, sizes.autograd, lambda: setattr(tensor, "grad", other))
    if len(gradient) != 1 or word(autograd, gradient[0]) != other._cdata:
        return None
    hooks = _changed(id(tensor) + BYTES, size - 1, lambda: kept.append(tensor.register_hook(print)))
    after = tensor.register_post_accumulate_grad_hook
    hooks += _changed(id(tensor) + BYTES, size - 1, lambda: kept.append(after(print)))
    holder = _sample(2).requires_grad_()
    body = _changed(other._cdata, sizes.body, lambda: setattr(holder, "grad", other))
    handle = other.untyped_storage()._cdata
    storage = _changed(handle, sizes.storage, lambda: kept.append(other.detach()))
    if len(hooks) != 2 or len(body) != 1 or len(storage) != 1:
        return None
    return Owners(gradient[0], tuple([place + 1 for place in hooks]), body[0], storage[0])


def _sample(dimensions: int) -> torch.Tensor:
    """A tensor without two equal numbers, nor one that another sample has at the same place."""
    storage = torch.zeros(1 << 15, dtype=torch.complex64, device="cpu").untyped_storage()
    sizes = [11 + dimensions + 7 * position for position in range(dimensions)]
    strides = [211 + dimensions - 41 * position for position in range(dimensions)]
    made = torch.empty(0, dtype=torch.complex64, device="cpu")  # no view: autograd keeps nothing of it yet
    return made.set_(storage, 50 + dimensions, sizes, strides)


def _place(found: list[list[int]], wanted: list[list[int]]) -> int | None:
    """Where in each list the wanted words stand; None if nowhere, or at several places."""
    pairs = list(zip(found, wanted, strict=True))
    places = [
        place
        for place in range(len(found[0]))
        if all(words[place : place + len(want)] == want for words, want in pairs)
    ]
    return places[0] if len(places) == 1 else None


def _changed_body(sizes: Sizes, name: str) -> list[int]:
    """Which words of an implementation a change changes."""
    tensor = _sample(2)
    return _changed(tensor._cdata, sizes.body, lambda: CHANGES[name](tensor))


def _changed(address: int, size: int, change: Callable[[], Any]) -> list[int]:
    """Which of the words at an address a change changes."""
    before = read(address, size)
    change()
    after = read(address, size)
    return [place for place, words in enumerate(zip(before, after, strict=True)) if words[0] != words[1]]
