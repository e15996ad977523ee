"""A guard of everything that a callable leads to, as if a call had read it."""

from __future__ import annotations

import os
import types
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch

from rote.runtime.arguments.bound import CLASS_SLOT
from rote.runtime.conditions.guards import Guard
from rote.runtime.conditions.reach import named_in, reached, slots_in
from rote.runtime.objects import counted, is_users, mark, members
from rote.runtime.objects.marks import Content
from rote.runtime.state import ATTRIBUTE, BULK, ITEM, LENGTH, ORDER, Entry, Reads, Snapshot, mentions_of


def guard_of(root: Any, tensors: list[torch.Tensor] | None = None) -> Guard:
    """A guard; of all tensors that were found, if none are given."""
    snapshot = snapshot_of(root)
    of = [each for each in tensors or []]
    externals = snapshot.by_memory() if tensors is None else {t.untyped_storage()._cdata: t for t in of}
    return Guard(snapshot, externals, parameters={}, gradients=[], readers={}, arrays=set())


def snapshot_of(root: Any) -> Snapshot:
    snapshot = Snapshot(Reads({}))
    for holder in [*reached([root])]:
        for kind, container, key, value, suffix in [*slots_in(holder), *_more(holder)]:
            if value is os.environ or kind == CLASS_SLOT:
                continue
            entry = Entry(kind, container, key, mark(value), f"f{suffix}")
            snapshot.entries.setdefault((kind, id(container), key), entry)
            if isinstance(value, torch.Tensor):
                snapshot.note_tensor(entry, value)
    return snapshot


def _more(holder: Any) -> Iterator[tuple[str, Any, Any, Any, str]]:
    if isinstance(holder, (dict, list)):
        yield LENGTH, holder, None, counted(members.length(holder)), " (length)"
    if isinstance(holder, dict) and len(holder) > 1:
        yield ORDER, holder, None, Content(members.keys(holder)), " (order)"
    if isinstance(holder, defaultdict):
        yield ATTRIBUTE, holder, "default_factory", holder.default_factory, ".default_factory"
    if isinstance(holder, type) and is_users(holder):
        namespace = members.behind(vars(holder))
        yield LENGTH, namespace, None, counted(len(namespace)), " (number of attributes)"
        for name in [each for each in namespace if not each.startswith("__")]:
            yield ITEM, namespace, name, namespace[name], f".{name}"
    if isinstance(holder, types.FunctionType):
        for name in [each for each in ("__defaults__", "__kwdefaults__") if getattr(holder, each)]:
            yield ATTRIBUTE, holder, name, getattr(holder, name), f".{name}"
        namespace = holder.__globals__
        for name in mentions_of(holder.__code__) & namespace.keys():
            yield ITEM, namespace, name, namespace[name], f".{name}"
        if os in named_in(holder.__code__, namespace):
            yield BULK, os.environ._data, None, Content(tuple(os.environ._data.items())), "environ"
