"""Arguments and results as people write them, taken apart into leaves and put together again.

Dicts, lists, tuples, named tuples and dataclass instances are branches; everything else is a leaf.
A dict subclass that is also a dataclass (the output classes of ``transformers``) is rebuilt from its
fields. The structure is a nested tuple, so that it can be hashed and compared without a class of its own.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from typing import Any

Spec = Any
"""``None`` for a leaf, else ``(kind, type, names, children)``."""

_DICTS = (dict, OrderedDict, defaultdict)


def flatten(value: Any, leaves: list[Any]) -> Spec:
    """Append the leaves of ``value`` to ``leaves``, depth first, and return its structure."""
    kind = type(value)
    if kind is tuple or kind is list:
        return (kind.__name__, kind, len(value), tuple([flatten(item, leaves) for item in value]))
    if kind in _DICTS:
        children = tuple([flatten(item, leaves) for item in value.values()])
        return ("dict", kind, tuple(value), children)
    if dataclasses.is_dataclass(kind):
        return _flatten_dataclass(value, kind, leaves)
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return ("namedtuple", kind, kind._fields, tuple([flatten(item, leaves) for item in value]))
    leaves.append(value)
    return None


def _flatten_dataclass(value: Any, kind: type[Any], leaves: list[Any]) -> Spec:
    names = tuple(
        field.name for field in dataclasses.fields(kind) if field.init and hasattr(value, field.name)
    )
    children = tuple([flatten(getattr(value, name), leaves) for name in names])
    return ("dataclass", kind, names, children)


def unflatten(spec: Spec, leaves: Iterator[Any]) -> Any:
    """Build a value of the given structure from leaves in the order :func:`flatten` met them."""
    if spec is None:
        return next(leaves)
    kind, cls, names, children = spec
    values = [unflatten(child, leaves) for child in children]
    if kind == "list":
        return values
    if kind == "tuple":
        return tuple(values)
    if kind == "dict":
        return cls(zip(names, values, strict=True)) if cls is not defaultdict else _default(names, values)
    if kind == "namedtuple":
        return cls(*values)
    return cls(**dict(zip(names, values, strict=True)))


def _default(names: tuple[Any, ...], values: list[Any]) -> defaultdict[Any, Any]:
    return defaultdict(None, zip(names, values, strict=True))


def paths(spec: Spec, prefix: str) -> list[str]:
    """Name every leaf, as a user would write it: ``kwargs['mask'][0].logits``."""
    if spec is None:
        return [prefix]
    kind, _, names, children = spec
    found: list[str] = []
    for index, child in enumerate(children):
        if kind in ("list", "tuple"):
            label = f"{prefix}[{index}]"
        elif kind == "dict":
            label = f"{prefix}[{names[index]!r}]"
        else:
            label = f"{prefix}.{names[index]}"
        found.extend(paths(child, label))
    return found
