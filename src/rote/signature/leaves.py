"""Arguments and results as people write them, taken apart into leaves and put together again.

Dicts, lists, tuples, named tuples and dataclass instances are branches; everything else is a leaf, and so are
named tuples and dataclass instances with further attributes. Instances of a class that is open
(:mod:`.opened`) are branches, too.
A dict subclass that is also a dataclass (the output classes of ``transformers``) is rebuilt by its
constructor; other dataclasses are filled field by field, so that ``__post_init__`` does not run twice.
The structure is a nested tuple, so that it can be hashed and compared without a class of its own.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from .bound import Bound
from .exact import exact
from .handed import Made
from .members import put
from .opened import Opening, another, made_of, member_of, name_of, put_member, table_of

Spec = Any
"""``None`` for a leaf, else ``(kind, type, names, children)``."""


_KEYS, _VALUES, _ITEMS = (type(view) for view in ({}.keys(), {}.values(), {}.items()))
VIEWS = frozenset({_KEYS, _VALUES, _ITEMS})
"""Types of the views of a dict, in which nothing can be stored."""


class MixedKeys(tuple[Any, ...]):
    """Keys of a dict that are not all text: 1, 1.0 and True are equal, and three different keys."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return (
            type(other) is MixedKeys
            and tuple.__eq__(self, other)
            and [*map(exact, self)] == [*map(exact, other)]
        )

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple[Any, ...].__hash__


def keys_of(value: dict[Any, Any]) -> tuple[Any, ...]:
    """The keys of a dict, in a form whose equality tells 1 from True."""
    return tuple(value) if all([type(key) is str for key in value]) else MixedKeys(value)


def flatten(value: Any, leaves: list[Any], opened: Mapping[type, Opening] | None = None) -> Spec:
    """Append the leaves of ``value`` to ``leaves``, depth first, and return its structure.

    Args:
        value: The value.
        leaves: Where its leaves go.
        opened: Classes whose instances are branches; where it is given, views of dicts are such, too.
    """
    kind = type(value)
    if kind is tuple or kind is list:
        return (kind.__name__, kind, len(value), tuple([flatten(item, leaves, opened) for item in value]))
    if kind is dict or kind is OrderedDict:
        children = tuple([flatten(item, leaves, opened) for item in value.values()])
        return ("dict", kind, keys_of(value), children)
    if kind is defaultdict:
        children = tuple([flatten(item, leaves, opened) for item in value.values()])
        return ("defaultdict", value.default_factory, keys_of(value), children)
    if opened is not None and kind in VIEWS:
        return _flatten_view(value, kind, leaves, opened)
    if opened and (opening := opened.get(kind)) is not None:
        names, values = opening.look(value)
        return ("object", kind, names, tuple([flatten(each, leaves, opened) for each in values]))
    if dataclasses.is_dataclass(kind):
        return _flatten_dataclass(value, kind, leaves, opened)
    if kind is Bound:
        parts = tuple([flatten(part, leaves) for part in (value.value, *value.parts)])
        return ("bound", Bound, value.targets, parts)
    if kind is Made:
        return ("made", value.kind, value.names, tuple([flatten(part, leaves) for part in value.values]))
    if isinstance(value, tuple) and hasattr(kind, "_fields") and not getattr(value, "__dict__", None):
        children = tuple([flatten(item, leaves, opened) for item in value])
        return ("namedtuple", kind, kind._fields, children)
    if isinstance(value, tuple) and hasattr(kind, "n_sequence_fields"):  # torch.return_types
        return ("structseq", kind, len(value), tuple([flatten(item, leaves, opened) for item in value]))
    leaves.append(value)
    return None


def _flatten_view(value: Any, kind: type, leaves: list[Any], opened: Mapping[type, Opening]) -> Spec:
    """Of a view of values the keys are not seen, of one of keys there is nothing else."""
    if kind is _KEYS:
        return ("view", kind, MixedKeys(value), ())
    if kind is _VALUES:
        return ("view", kind, len(value), tuple([flatten(item, leaves, opened) for item in value]))
    names = MixedKeys([key for key, _ in value])
    return ("view", kind, names, tuple([flatten(item, leaves, opened) for _, item in value]))


def _flatten_dataclass(
    value: Any, kind: type[Any], leaves: list[Any], opened: Mapping[type, Opening] | None
) -> Spec:
    """A dataclass instance is a branch if its fields are all there is to it."""
    names = tuple(field.name for field in dataclasses.fields(kind) if hasattr(value, field.name))
    if isinstance(value, dict):
        names = tuple(name for name in names if name in value)
        if len(names) != len(value):
            leaves.append(value)
            return None
    elif not set(getattr(value, "__dict__", ())) <= set(names):
        leaves.append(value)
        return None
    children = tuple([flatten(getattr(value, name), leaves, opened) for name in names])
    return ("dataclass", kind, names, children)


def repeated(spec: Spec, value: Any) -> tuple[tuple[int, int], ...]:
    """Which branches are one object with an earlier one: the numbers of both, outermost first.

    Branches that cannot change are left out: whether two equal tuples are one object says nothing. Objects
    that have their attributes in one dict stand there by the complements of their numbers.
    """
    first: dict[int, int] = {}
    pairs: list[tuple[int, int]] = []
    for number, each in enumerate(containers(spec, value)):
        kind = type(each)
        if not is_mutable(kind):
            continue
        pairs.append((number, first.setdefault(id(each), number)))
        if kind not in _WITHOUT_TABLE and (table := table_of(each)) is not None:
            pairs.append((~number, ~first.setdefault(id(table), number)))
    return tuple([pair for pair in pairs if pair[0] != pair[1]])


_WITHOUT_TABLE = frozenset({list, dict, OrderedDict, defaultdict})


def is_mutable(kind: type) -> bool:
    """Whether branches of a type can be changed."""
    return kind is Made or not (issubclass(kind, tuple) or kind in VIEWS)


def has_branches(spec: Spec) -> bool:
    """Whether there is a branch among the arguments of a call."""
    return any([child is not None for part in spec[3] for child in part[3]])


class _Builder:
    """Builds a value again, and its branches as often as there were.

    Args:
        leaves: In the order in which :func:`flatten` met them.
        again: Branches that are one object with an earlier one (:func:`repeated`).
    """

    def __init__(self, leaves: Iterator[Any], again: dict[int, int]) -> None:
        self._leaves = leaves
        self._again = again
        self._made: dict[int, Any] = {}
        self._number = -1

    def build(self, spec: Spec) -> Any:
        """The value of a structure."""
        if spec is None:
            return next(self._leaves)
        self._number += 1
        number = self._number
        made = _make(spec, [self.build(child) for child in spec[3]])
        made = self._made[number] = self._made.get(self._again.get(number, number), made)
        return made


def unflatten(spec: Spec, leaves: Iterator[Any], again: tuple[tuple[int, int], ...] = ()) -> Any:
    """Build a value of the given structure.

    Args:
        spec: The structure.
        leaves: In the order in which :func:`flatten` met them.
        again: Branches that are one object with an earlier one (:func:`repeated`).
    """
    if again:
        return _Builder(leaves, dict(again)).build(spec)
    if spec is None:
        return next(leaves)
    return _make(spec, [unflatten(child, leaves) for child in spec[3]])


def _make(spec: Spec, values: list[Any]) -> Any:
    kind, cls, names, _ = spec
    if kind == "list":
        return values
    if kind == "bound":
        return Bound(values[0], names, tuple(values[1:]))
    if kind == "tuple":
        return tuple(values)
    if kind == "made":
        return made_of(cls, names, values)
    if kind == "view":
        return _make_view(cls, names, values)
    if kind == "dict":
        return cls(zip(names, values, strict=True))
    if kind == "defaultdict":
        return defaultdict(cls, zip(names, values, strict=True))
    if kind == "namedtuple":
        return cls(*values)
    if kind == "structseq":
        return cls(values)
    return _make_dataclass(cls, names, values)


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


def containers(spec: Spec, value: Any) -> Iterator[Any]:
    """The branches of a value, outermost first."""
    if spec is None:
        return
    yield value
    for position, child in enumerate(spec[3]):
        if child is not None:
            yield from containers(child, _inside(spec, value, position))


def rebuilt(spec: Spec, value: Any, leaves: Iterator[Any], again: tuple[tuple[int, int], ...] = ()) -> Any:
    """A value with other leaves, and branches of its own.

    Args:
        spec: Its structure.
        value: The value, for what its structure does not tell of objects.
        leaves: In the order in which :func:`flatten` met them.
        again: Branches that are one object with an earlier one (:func:`repeated`).
    """
    return _Rebuilder(leaves, dict(again)).build(spec, value)


class _Rebuilder:
    """Builds a value again beside another one.

    Args:
        leaves: As :func:`rebuilt` has them.
        again: Likewise.
    """

    def __init__(self, leaves: Iterator[Any], again: dict[int, int]) -> None:
        self._leaves = leaves
        self._again = again
        self._made: dict[int, Any] = {}
        self._number = -1

    def build(self, spec: Spec, value: Any) -> Any:
        """The value of a structure."""
        if spec is None:
            return next(self._leaves)
        self._number += 1
        number = self._number
        children = [
            self.build(child, _inside(spec, value, position) if child is not None else None)
            for position, child in enumerate(spec[3])
        ]
        made = self._branch(spec, value, children)
        made = self._made[number] = self._made.get(self._again.get(number, number), made)
        return made

    def _branch(self, spec: Spec, value: Any, children: list[Any]) -> Any:
        if spec[1] is torch.Generator:
            return value
        if spec[0] != "object":
            return _make(spec, children)
        made = another(value)
        for name, child in zip(spec[2], children, strict=True):
            put_member(made, name, child)
        return made


_NOTHING: Any = object()


class _Filler(_Rebuilder):
    """Lays other leaves into the branches that are there; those that cannot change are made anew."""

    def build(self, spec: Spec, value: Any) -> Any:
        """The value of a structure."""
        if spec is not None and spec[0] == "bound" and value is not _NOTHING:
            return super().build(spec, Bound(value, spec[2], tuple([_NOTHING for _ in spec[2]])))
        return super().build(spec, value)

    def _branch(self, spec: Spec, value: Any, children: list[Any]) -> Any:
        if value is _NOTHING or type(value) is Bound:
            return _make(spec, children)
        changed = [
            (name, child)
            for position, (name, child) in enumerate(zip(_names(spec), children, strict=True))
            if child is not _inside(spec, value, position)
        ]
        if changed and isinstance(value, tuple):
            return _make(spec, children)
        for name, child in changed:
            _lay(spec, value, name, child)
        return value


def filled(spec: Spec, value: Any, leaves: Iterator[Any], again: tuple[tuple[int, int], ...] = ()) -> Any:
    """A value with other leaves, laid into the containers and objects that it consists of.

    Args:
        spec: Its structure, or that of it with what is bound beside it, which is made.
        value: The value, with the objects that :class:`~.handed.Made` stands for.
        leaves: In the order in which :func:`flatten` met them.
        again: Branches that are one object with an earlier one (:func:`repeated`).
    """
    return _Filler(leaves, dict(again)).build(spec, value)


def _names(spec: Spec) -> Iterable[Any]:
    """Under what the children of a branch lie in it."""
    return spec[2] if spec[0] in ("dict", "defaultdict", "dataclass", "made") else range(len(spec[3]))


def _lay(spec: Spec, value: Any, name: Any, child: Any) -> None:
    """Lay something into a branch, past what its class makes of that."""
    if spec[0] == "made":
        put_member(value, name, child)
        return
    if spec[0] == "dataclass":
        object.__setattr__(value, name, child)
    if isinstance(value, (list, dict)):
        put(value, name, child)


def _inside(spec: Spec, value: Any, position: int) -> Any:
    """What lies in a branch at a position of its structure."""
    kind, _, names, _ = spec
    if value is _NOTHING:
        return value
    if kind in ("list", "tuple", "structseq", "namedtuple"):
        return value[position]
    if kind in ("dict", "defaultdict"):
        return value[names[position]]
    if kind == "bound":
        return (value.value, *value.parts)[position]
    if kind == "view":
        inner = [*value][position]
        return inner[1] if type(value) is _ITEMS else inner
    if kind == "made":
        return value.values[position] if type(value) is Made else member_of(value, names[position])
    return member_of(value, names[position]) if kind == "object" else getattr(value, names[position])


def branch_names(spec: Spec, prefix: str) -> list[str]:
    """Name every branch, as :func:`paths` names the leaves, in the order of :func:`containers`."""
    if spec is None:
        return []
    inner = [branch_names(child, label) for child, label in zip(spec[3], _labels(spec, prefix), strict=True)]
    return [prefix, *[name for names in inner for name in names]]


def paths(spec: Spec, prefix: str) -> list[str]:
    """Name every leaf, as a user would write it: ``kwargs['mask'][0].logits``."""
    if spec is None:
        return [prefix]
    found: list[str] = []
    for child, label in zip(spec[3], _labels(spec, prefix), strict=True):
        found.extend(paths(child, label))
    return found


def _labels(spec: Spec, prefix: str) -> list[str]:
    """The names of what lies in a branch."""
    kind, _, names, children = spec
    if kind in ("list", "tuple", "structseq"):
        return [f"{prefix}[{index}]" for index in range(len(children))]
    if kind in ("dict", "defaultdict"):
        return [f"{prefix}[{name!r}]" for name in names]
    if kind == "view":
        return [f"{prefix}[{index}]" for index in range(len(children))]
    if kind == "bound":
        return [prefix, *[target.name for target in names]]
    return [name_of(name, prefix) for name in names]
