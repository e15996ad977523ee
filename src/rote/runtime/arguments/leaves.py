"""Arguments and results as people write them, taken apart into leaves and put together again.

Dicts, lists, deques, tuples, named tuples and dataclass instances are branches; everything else is a leaf,
and so are named tuples and dataclass instances with further attributes. Instances of a class that is open
(:mod:`.opened`) are branches, too; an array has a tensor over its memory in it. A dict subclass that is also
a dataclass (the output classes of ``transformers``) is rebuilt by its constructor; other dataclasses are
filled field by field, so that ``__post_init__`` does not run twice. The structure is a nested tuple, so it
can be hashed and compared without a class of its own.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from types import MemberDescriptorType
from typing import Any, NamedTuple

import numpy
import torch

from ...base import is_instance
from ..objects import MixedKeys, array_over, form_of, is_hashed_in_c, put, tells_itself, tensor_over, text_of
from ..state import ATTRIBUTE, ITEM
from .bound import SLOT, Bound, Target
from .handed import DEEPEST, SETS, Made
from .opened import Opening, another, made_of, member_of, name_of, put_member, slots_of, table_of

Spec = Any
"""``None`` for a leaf, else a :class:`ArgumentBranch`."""

UnderArray = Callable[[Any], "torch.Tensor | None"]
"""Gives a tensor over the memory of an array that lies over memory of a call's tensors."""

BOUND = "bound"
"""The kind of a branch that is a result with what the call has bound."""
ARRAY = "array"
"""The kind of a branch that is an array; the tensor in it is a leaf."""
LONGEST = 64
"""Members of a deque that is a branch; a longer one is the buffer of something, and a leaf."""
_KEYS, _VALUES, _ITEMS = (type(view) for view in ({}.keys(), {}.values(), {}.items()))
VIEWS = frozenset({_KEYS, _VALUES, _ITEMS})
"""Types of the views of a dict, in which nothing can be stored."""


def keys_of(value: dict[Any, Any]) -> tuple[Any, ...] | None:
    """The keys of a dict, in a form whose equality tells 1 from True; None if their classes compare them."""
    if all([type(key) is str for key in value]):
        return tuple(value)
    return MixedKeys(value) if all(map(is_hashed_in_c, value)) else None


class ArgumentBranch(NamedTuple):
    """The structure of a branch; ``None`` stands for a leaf.

    Attributes:
        kind: Which of :data:`_MAKE` makes it.
        cls: Its class, or what else it is made with.
        names: The keys of its children; where it only counts them, their number.
    """

    kind: str
    cls: Any
    names: Any
    children: tuple[Spec, ...]


def flatten(
    value: Any,
    leaves: list[Any],
    opened: Mapping[type, Opening] | None = None,
    *,
    cuts: bool = False,
    around: tuple[int, ...] = (),
    lent: UnderArray | None = None,
) -> Spec:
    """Append the leaves of ``value`` to ``leaves``, depth first, and return its structure.

    Instances of the ``opened`` classes are branches; where these are given, views of dicts are, too. With
    ``cuts`` a branch that contains itself, or lies too deep, is a leaf; ``around`` has those around it.
    Arrays for which ``lent`` gives a tensor over their memory are branches.

    Raises:
        RecursionError: There is such a branch, and it is not to be a leaf.
    """
    endless = len(around) > DEEPEST or id(value) in around
    parts = None if endless and cuts else _parts(value, opened, lent)
    if parts is None:
        leaves.append(value)
        return None
    if endless:
        raise RecursionError("a container contains itself, or holds too many in each other")
    kind, cls, names, values = parts
    inner = (*around, id(value))
    children = [flatten(each, leaves, opened, cuts=cuts, around=inner, lent=lent) for each in values]
    return ArgumentBranch(kind, cls, names, tuple(children))


def leaves_by(spec: Spec, value: Any) -> list[Any]:
    """The leaves of a value of a known structure, depth first; None for each that is not there."""
    if spec is None:
        return [value]
    if spec.kind == ARRAY:
        return leaves_by(spec.children[0], value)
    found: list[Any] = []
    for position, child in enumerate(spec.children):
        try:
            inner = _inside(spec, value, position)
        except (LookupError, AttributeError, TypeError):
            inner = None
        found += leaves_by(child, inner)
    return found


def leaves_of(value: Any) -> list[Any]:
    """The leaves of a value, depth first."""
    leaves: list[Any] = []
    flatten(value, leaves, cuts=True)
    return leaves


def _parts(
    value: Any, opened: Mapping[type, Opening] | None, lent: UnderArray | None
) -> tuple[str, Any, Any, Iterable[Any]] | None:
    """Kind, class, names and children of a branch; None for a leaf."""
    kind = type(value)
    if kind is tuple or kind is list:
        return kind.__name__, kind, len(value), value
    if kind is dict or kind is OrderedDict or kind is defaultdict:
        names, of_default = keys_of(value), kind is defaultdict
        made: Any = ("defaultdict", value.default_factory) if of_default else ("dict", kind)
        return None if names is None else (*made, names, value.values())
    if not tells_itself(type(kind)):  # two structures would be equal because their classes say so
        return None
    if opened is not None and kind in VIEWS:
        return ("view", kind, *_parts_of_view(value, kind))
    if kind is numpy.ndarray:
        return _parts_of_array(value, opened, lent)
    if opened and (opening := opened.get(kind)) is not None:
        return ("object", kind, *opening.look(value))
    if dataclasses.is_dataclass(kind):
        held = fields_of(value, kind)
        return None if held is None else ("dataclass", kind, tuple(held), held.values())
    if kind is Bound:
        return BOUND, Bound, value.targets, (value.value, *value.parts)
    if kind is Made:
        return "set" if value.kind in SETS else "made", value.kind, value.names, value.values
    if is_instance(value, tuple) and hasattr(kind, "_fields") and not table_of(value):
        return _parts_of_named(value, kind._fields)
    if is_instance(value, tuple) and hasattr(kind, "n_sequence_fields"):  # torch.return_types
        return "structseq", kind, len(value), value
    if kind is deque and isinstance(value, deque) and len(value) <= LONGEST:  # to ask others runs their code
        return "deque", value.maxlen, len(value), value
    return None


def _parts_of_array(
    value: Any, opened: Mapping[type, Opening] | None, lent: UnderArray | None
) -> tuple[str, Any, Any, Iterable[Any]] | None:
    tensor = lent(value) if lent is not None else None
    form = form_of(value) if tensor is not None or (opened and numpy.ndarray in opened) else None
    if form is None:
        return None
    return ARRAY, numpy.ndarray, (form,), (tensor if tensor is not None else tensor_over(value),)


def _parts_of_view(value: Any, kind: type) -> tuple[Any, Iterable[Any]]:
    """Of a view of values the keys are not seen, of one of keys there is nothing else."""
    if kind is _KEYS:
        return MixedKeys(value), ()
    if kind is _VALUES:
        return len(value), value
    return MixedKeys([key for key, _ in value]), [item for _, item in value]


def _parts_of_named(value: tuple[Any, ...], names: Any) -> tuple[str, Any, Any, Iterable[Any]] | None:
    """A named tuple as it lies in memory, whatever its class says by now of names and of iteration."""
    known = type(names) is tuple and len(names) == tuple.__len__(value)
    return ("namedtuple", type(value), names, tuple.__iter__(value)) if known else None


def fields_of(value: Any, kind: type[Any]) -> dict[str, Any] | None:
    """What lies in the fields of a dataclass instance; None if they are not all there is to it.

    A field that the class gives by a property or the like lies elsewhere.
    """
    names = [field.name for field in dataclasses.fields(kind)]
    if isinstance(value, dict):
        found = {name: getattr(value, name) for name in names if hasattr(value, name) and name in value}
        return found if len(found) == len(value) else None
    table, found = table_of(value) or {}, dict[str, Any]()
    for name in names:
        descriptor = _in_class(kind, name)
        if type(descriptor) is MemberDescriptorType:
            with suppress(AttributeError):
                found[name] = descriptor.__get__(value)
        elif hasattr(type(descriptor), "__set__"):
            return None
        elif name in table:
            found[name] = table[name]
    return found if table.keys() <= found.keys() else None


def _in_class(kind: type[Any], name: str) -> Any:
    """What a class has under a name, as it lies there; None if there is nothing."""
    return next((vars(each)[name] for each in kind.__mro__ if name in vars(each)), None)


def repeated(spec: Spec, value: Any, *, tuples: bool = False) -> tuple[tuple[int, int], ...]:
    """Which branches are one object with an earlier one: the numbers of both, outermost first.

    Branches that cannot change are left out of arguments: that two equal ``tuples`` are one object says
    nothing of what a call does. Dicts in which objects have their attributes stand there by the complements
    of the objects' numbers.
    """
    first: dict[int, int] = {}
    pairs: list[tuple[int, int]] = []
    for number, each in enumerate(containers(spec, value)):
        kind = type(each)
        if not (is_mutable(kind) or (tuples and each)):
            continue
        pairs.append((number, first.setdefault(id(each), number)))
        if kind not in _WITHOUT_TABLE and (table := table_of(each)) is not None:
            pairs.append((~number, first.setdefault(id(table), ~number)))
    return tuple([pair for pair in pairs if pair[0] != pair[1]])


_WITHOUT_TABLE = frozenset({list, deque, dict, OrderedDict, defaultdict})


def is_mutable(kind: type) -> bool:
    """Whether branches of a type can be changed."""
    return kind is Made or not (issubclass(kind, tuple) or kind in VIEWS)


@lru_cache(maxsize=64)
def arrays_in(spec: Spec) -> tuple[int, ...]:
    """The numbers of the leaves that are tensors over the memory of arrays."""
    return tuple(_arrays_in(spec, [0]))


def _arrays_in(spec: Spec, count: list[int]) -> Iterator[int]:
    if spec is None:
        count[0] += 1
        return
    if spec.kind == ARRAY:
        yield count[0]
    for child in spec.children:
        yield from _arrays_in(child, count)


def has_branches(spec: Spec) -> bool:
    """Whether there is a branch among the arguments of a call."""
    return any([child is not None for part in spec.children for child in part.children])


def _make_view(cls: type[Any], names: Any, values: list[Any]) -> Any:
    """A view of a dict of its own."""
    if cls is _VALUES:
        return dict(enumerate(values)).values()
    return dict.fromkeys(names).keys() if cls is _KEYS else dict(zip(names, values, strict=True)).items()


def _make_dataclass(cls: type[Any], names: tuple[str, ...], values: list[Any]) -> Any:
    """An instance with these fields, without running ``__init__`` and ``__post_init__`` again."""
    if issubclass(cls, dict):
        return cls(**dict(zip(names, values, strict=True)))
    made = object.__new__(cls)
    for name, value in zip(names, values, strict=True):
        object.__setattr__(made, name, value)
    return made


_MAKE: dict[str, Callable[[Any, Any, list[Any]], Any]] = {
    "list": lambda cls, names, values: values,
    "tuple": lambda cls, names, values: tuple(values),
    "deque": lambda cls, names, values: deque(values, cls),
    "namedtuple": lambda cls, names, values: tuple.__new__(cls, values),
    "structseq": lambda cls, names, values: cls(values),
    "dict": lambda cls, names, values: cls(zip(names, values, strict=True)),
    "defaultdict": lambda cls, names, values: defaultdict(cls, zip(names, values, strict=True)),
    "view": _make_view,
    ARRAY: lambda cls, names, values: array_over(values[0], names[0]),
    "dataclass": _make_dataclass,
    BOUND: lambda cls, names, values: Bound(values[0], names, tuple(values[1:])),
    "made": made_of,
    "set": lambda cls, names, values: names.build(cls),
}
"""Makes a branch of each kind, but of objects: these are made beside others."""


def replaceable_in(spec: Spec) -> list[tuple[Spec, range]]:
    """For each argument, by position and then by name, its structure, and the leaves that others can replace.

    These are all of an argument that is a leaf or a tuple: an equal tuple is as good. A list or an object is
    the one that it is; see :func:`slots_of_leaves`.
    """
    found: list[tuple[Spec, range]] = []
    count = 0
    for each in (each for part in spec.children for each in part.children):
        size = _leaves_in(each)
        found.append((each, range(count, count + size if _is_of_tuples(each) else count)))
        count += size
    return found


def _is_of_tuples(spec: Spec) -> bool:
    tuples = spec is not None and (spec.cls is tuple or spec.kind == "namedtuple")
    return spec is None or (tuples and all(map(_is_of_tuples, spec.children)))


class LeafSlot(NamedTuple):
    """Where a leaf, or a tuple of leaves, lies whose container is the caller's.

    Attributes:
        target: A slot of a list, a dict or an object.
    """

    spec: Spec
    leaves: range
    target: Target


def slots_of_leaves(spec: Spec, given: Sequence[Any]) -> Iterator[LeafSlot]:
    """The leaves of a call's arguments that lie in containers in which others can be put in their place."""
    count = 0
    for part, holder in zip(spec.children, given, strict=True):
        values = holder if type(holder) is tuple else holder.values()
        for child, value in zip(part.children, values, strict=True):
            yield from _slots_in(child, value, count)
            count += _leaves_in(child)


def _slots_in(spec: Spec, value: Any, count: int) -> Iterator[LeafSlot]:
    if spec is None:
        return
    keys = range(len(spec.children)) if type(spec.names) is int else spec.names
    for position, (child, key) in enumerate(zip(spec.children, keys, strict=True)):
        size = _leaves_in(child)
        if not _is_of_tuples(child):
            yield from _slots_in(child, _inside(spec, value, position), count)
        elif (target := _slot_in(spec.kind, value, key)) is not None:
            yield LeafSlot(child, range(count, count + size), target)
        count += size


def _slot_in(kind: str, value: Any, name: Any) -> Target | None:
    """Where in a branch a child lies; None if nothing can be put there."""
    if kind == "dataclass" and not isinstance(value, dict):
        return Target(ATTRIBUTE, value, name, "")
    if kind != "object":
        return Target(ITEM, value, name, "") if type(value) in _WITHOUT_TABLE else None
    if type(name) is tuple:
        return Target(ITEM, value, name[1], "")
    if (slot := slots_of(type(value)).get(name)) is not None:
        return Target(SLOT, value, slot, "")
    table = table_of(value)
    return Target(ITEM, table, name, "") if table is not None and name in table else None


def _leaves_in(spec: Spec) -> int:
    return 1 if spec is None else sum([_leaves_in(each) for each in spec.children])


def containers(spec: Spec, value: Any) -> Iterator[Any]:
    """The branches of a value, outermost first."""
    if spec is None:
        return
    yield value
    for position, child in enumerate(spec.children):
        if child is not None:
            yield from containers(child, _inside(spec, value, position))


_NOTHING: Any = object()
"""The value beside which nothing is built."""


class _Builder:
    """Builds a value of a structure from leaves in the order of :func:`flatten`.

    ``again`` are the branches that are one object with an earlier one (:func:`repeated`).
    """

    def __init__(self, leaves: Iterator[Any], again: Iterable[tuple[int, int]] = ()) -> None:
        self._leaves = leaves
        self._again = dict(again)
        self._made: dict[int, Any] = {}
        self._number = -1

    def build(self, spec: Spec, value: Any = _NOTHING) -> Any:
        """The value; beside another one of its structure, if that is given."""
        if spec is None:
            return next(self._leaves)
        self._number += 1
        number = self._number
        children = [
            self.build(child, _inside(spec, value, position) if child is not None else None)
            for position, child in enumerate(spec.children)
        ]
        made = self._branch(spec, value, children)
        made = self._made[number] = self._made.get(self._again.get(number, number), made)
        return made

    def _branch(self, spec: ArgumentBranch, value: Any, children: list[Any]) -> Any:
        return _MAKE[spec.kind](spec.cls, spec.names, children)


class _Rebuilder(_Builder):
    """Takes from the other value what the structure does not tell of objects."""

    def _branch(self, spec: ArgumentBranch, value: Any, children: list[Any]) -> Any:
        if spec.cls is torch.Generator:
            return value
        if spec.kind != "object":
            return super()._branch(spec, value, children)
        made = another(value)
        for name, child in zip(spec.names, children, strict=True):
            put_member(made, name, child)
        return made


class _Filler(_Builder):
    """Lays other leaves into the branches that are there; those that cannot change are made anew."""

    def build(self, spec: Spec, value: Any = _NOTHING) -> Any:
        """The value of a structure; what is bound beside the other one is made."""
        if spec is not None and spec.kind == BOUND and value is not _NOTHING:
            return super().build(spec, Bound(value, spec.names, tuple([_NOTHING for _ in spec.names])))
        return super().build(spec, value)

    def _branch(self, spec: ArgumentBranch, value: Any, children: list[Any]) -> Any:
        if (spec.kind == ARRAY and children[0] is value) or spec.cls is torch.Generator:
            return value
        if value is _NOTHING or type(value) is Bound or spec.kind == ARRAY:
            return super()._branch(spec, value, children)
        changed = [
            (name, child)
            for position, (name, child) in enumerate(zip(_names(spec), children, strict=True))
            if child is not _inside(spec, value, position)
        ]
        if changed and (isinstance(value, tuple) or spec.kind == "view"):
            return super()._branch(spec, value, children)
        for name, child in changed:
            _lay(spec, value, name, child)
        return value


def unflatten(spec: Spec, leaves: Iterator[Any], again: Iterable[tuple[int, int]] = ()) -> Any:
    """Build a value of the given structure; arguments as in :class:`_Builder`."""
    return _Builder(leaves, again).build(spec)


def rebuilt(spec: Spec, value: Any, leaves: Iterator[Any], again: Iterable[tuple[int, int]] = ()) -> Any:
    """A value with other leaves, and branches of its own; arguments as in :class:`_Builder`."""
    return _Rebuilder(leaves, again).build(spec, value)


def filled(spec: Spec, value: Any, leaves: Iterator[Any], again: Iterable[tuple[int, int]] = ()) -> Any:
    """A value with other leaves, laid into the containers and objects that it consists of.

    The structure may have values bound beside it, which are made. The value has the objects themselves that
    :class:`~.handed.Made` stands for.
    """
    return _Filler(leaves, again).build(spec, value)


def _names(spec: ArgumentBranch) -> Iterable[Any]:
    """The keys of a branch's children."""
    named = spec.kind in ("dict", "defaultdict", "dataclass", "made", "object")
    return spec.names if named else range(len(spec.children))


def _lay(spec: Spec, value: Any, name: Any, child: Any) -> None:
    """Lay something into a branch, past its class's own ways to set it."""
    if spec.kind in ("made", "object"):
        put_member(value, name, child)
        return
    if spec.kind == "dataclass":
        object.__setattr__(value, name, child)
    if isinstance(value, (list, deque, dict)):
        put(value, name, child)


def _inside(spec: Spec, value: Any, position: int) -> Any:
    """What lies in a branch at a position of its structure."""
    kind, _, names, _ = spec
    if value is _NOTHING:
        return value
    if kind == "namedtuple":
        return tuple.__getitem__(value, position)
    if kind in ("list", "tuple", "deque", "structseq"):
        return value[position]
    if kind in ("dict", "defaultdict"):
        return value[names[position]]
    if kind == BOUND:
        return (value.value, *value.parts)[position]
    if kind == "view":
        inner = [*value][position]
        return inner[1] if type(value) is _ITEMS else inner
    if kind == "made":
        return value.values[position] if type(value) is Made else member_of(value, names[position])
    if kind == "object":
        return member_of(value, names[position])
    return object.__getattribute__(value, names[position])


def branch_names(spec: Spec, prefix: str) -> list[str]:
    """Name every branch, as :func:`paths` names the leaves, in the order of :func:`containers`."""
    if spec is None:
        return []
    parts = zip(spec.children, _labels(spec, prefix), strict=True)
    return [prefix, *[name for child, label in parts for name in branch_names(child, label)]]


def beside_leaves(spec: Spec, prefix: str) -> Iterator[tuple[str, Any]]:
    """What a structure itself holds, with names: keys that are not all text, what a ``defaultdict`` calls."""
    if spec is None:
        return
    if spec.kind == "defaultdict":
        yield f"{prefix}.default_factory", spec.cls
    if type(spec.names) is MixedKeys:
        yield from [(f"{prefix} (its key {text_of(key)})", key) for key in spec.names]
    for child, label in zip(spec.children, _labels(spec, prefix), strict=True):
        yield from beside_leaves(child, label)


def paths(spec: Spec, prefix: str) -> list[str]:
    """Name every leaf, as a user would write it: ``kwargs['mask'][0].logits``."""
    if spec is None:
        return [prefix]
    parts = zip(spec.children, _labels(spec, prefix), strict=True)
    return [name for child, label in parts for name in paths(child, label)]


def _labels(spec: Spec, prefix: str) -> list[str]:
    """The names of what lies in a branch."""
    kind, _, names, children = spec
    if kind == ARRAY:
        return [prefix]
    if kind in ("list", "tuple", "deque", "structseq", "view"):
        return [f"{prefix}[{index}]" for index in range(len(children))]
    if kind in ("dict", "defaultdict"):
        return [f"{prefix}[{text_of(name)}]" for name in names]
    if kind == "set":
        return []
    if kind == BOUND:
        return [prefix, *[target.name for target in names]]
    return [name_of(name, prefix) for name in names]
