"""Containers of any size: items, order, length and membership."""

from __future__ import annotations

import bisect
import collections
import heapq
import types
from collections.abc import Iterator
from typing import Any

import torch
from tests.footguns.case import Wrap
from tests.state_programs.program import item, state, turns

Items = Iterator[Any]


@state("reads")
def dict_item(wrap: Wrap, device: torch.device) -> Items:
    """An item of a dict."""
    cfg = {"k": 1.5}
    yield from turns(wrap(lambda x: x * cfg["k"]), device, item(cfg, "k", 2.5), item(cfg, "k", 1.5))


@state("reads")
def dict_item_of_a_big_dict(wrap: Wrap, device: torch.device) -> Items:
    """One item in the middle of 5,000."""
    cfg = {f"k{n}": 1.5 for n in range(5000)}
    yield from turns(wrap(lambda x: x * cfg["k4321"]), device, item(cfg, "k4321", 2.5))


@state("reads")
def dict_sum_of_a_big_dict(wrap: Wrap, device: torch.device) -> Items:
    """All of 5,000 items are added."""
    cfg = {n: 1.0 for n in range(5000)}
    yield from turns(wrap(lambda x: x * sum(cfg.values())), device, item(cfg, 4999, 100.0), item(cfg, 0, 7.0))


@state("reads")
def dict_of_hundred(wrap: Wrap, device: torch.device) -> Items:
    """All of 100 items are added."""
    cfg = {n: 1.0 for n in range(100)}
    yield from turns(wrap(lambda x: x * sum(cfg.values())), device, item(cfg, 77, 100.0))


@state("reads")
def dict_order(wrap: Wrap, device: torch.device) -> Items:
    """The order of a dict changes, its items do not."""
    cfg = {"a": 2.0, "b": 3.0}

    def fn(x: torch.Tensor) -> torch.Tensor:
        for k in cfg.values():
            x = (x + 1) * k
        return x

    yield from turns(wrap(fn), device, lambda: cfg.update(a=cfg.pop("a")))


@state("reads")
def dict_first_key(wrap: Wrap, device: torch.device) -> Items:
    """``next(iter(d))``: the first key."""
    cfg = {"aaa": 0, "b": 0}
    g = wrap(lambda x: x * len(next(iter(cfg))))
    yield from turns(g, device, lambda: cfg.update(aaa=cfg.pop("aaa")), cfg.clear, lambda: cfg.update(cccc=0))


@state("reads")
def dict_length(wrap: Wrap, device: torch.device) -> Items:
    """A dict's length."""
    cfg: dict[str, int] = {"a": 0}
    yield from turns(wrap(lambda x: x * len(cfg)), device, item(cfg, "b", 0), cfg.clear)


@state("reads")
def dict_membership(wrap: Wrap, device: torch.device) -> Items:
    """Whether a dict has a key."""
    cfg: dict[str, int] = {}
    g = wrap(lambda x: x * (2.5 if "k" in cfg else 1.5))
    yield from turns(g, device, item(cfg, "k", 0), cfg.clear)


@state("reads")
def dict_get(wrap: Wrap, device: torch.device) -> Items:
    """``d.get`` with a default."""
    cfg: dict[str, float] = {}
    yield from turns(wrap(lambda x: x * cfg.get("k", 1.5)), device, item(cfg, "k", 2.5), cfg.clear)


@state("reads")
def dict_truth(wrap: Wrap, device: torch.device) -> Items:
    """Whether a dict is empty."""
    cfg: dict[str, int] = {}
    yield from turns(wrap(lambda x: x * (2.5 if cfg else 1.5)), device, item(cfg, "k", 0), cfg.clear)


@state("reads")
def dict_equality(wrap: Wrap, device: torch.device) -> Items:
    """A dict is compared with another."""
    cfg, other = {"k": 1}, {"k": 1}
    g = wrap(lambda x: x * (2.5 if cfg == other else 1.5))
    yield from turns(g, device, item(other, "k", 2), item(cfg, "k", 2))


@state("reads")
def dict_key_types(wrap: Wrap, device: torch.device) -> Items:
    """A dict's key 1 becomes True, then 1.0: equal, and another type."""
    cfg: dict[Any, int] = {1: 0}

    def swap(key: Any) -> Any:
        return lambda: (cfg.clear(), cfg.update({key: 0}))

    g = wrap(lambda x: torch.tensor([next(iter(cfg))], device=x.device))
    yield from turns(g, device, swap(True), swap(1.0), swap(1))


@state("reads")
def dict_by_an_own_key(wrap: Wrap, device: torch.device) -> Items:
    """A key of an own class, whose ``__eq__`` reads state."""

    class Key:
        loose = False

        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            return self is other or Key.loose

    cfg = {Key(): 2.5}
    probe = Key()

    def change() -> None:
        Key.loose = True

    yield from turns(wrap(lambda x: x * cfg.get(probe, 1.5)), device, change)


@state("reads")
def dict_views(wrap: Wrap, device: torch.device) -> Items:
    """A view of a dict's values that is kept."""
    cfg = {"a": 1.5}
    values = cfg.values()
    yield from turns(wrap(lambda x: x * sum(values)), device, item(cfg, "b", 1.0))


@state("reads")
def mapping_proxy(wrap: Wrap, device: torch.device) -> Items:
    """A read-only view of a dict."""
    cfg = {"k": 1.5}
    proxy = types.MappingProxyType(cfg)
    yield from turns(wrap(lambda x: x * proxy["k"]), device, item(cfg, "k", 2.5))


@state("reads")
def list_item(wrap: Wrap, device: torch.device) -> Items:
    """An item of a list, from its end."""
    ks = [0.0, 1.5]
    yield from turns(wrap(lambda x: x * ks[-1]), device, item(ks, 1, 2.5), lambda: ks.append(3.5))


@state("reads")
def list_of_five_thousand(wrap: Wrap, device: torch.device) -> Items:
    """The sum of a long list."""
    ks = [1.0] * 5000
    yield from turns(wrap(lambda x: x * sum(ks)), device, item(ks, 2500, 100.0))


@state("reads")
def list_order(wrap: Wrap, device: torch.device) -> Items:
    """A list is reversed in place."""
    ks = [2.0, 3.0]

    def fn(x: torch.Tensor) -> torch.Tensor:
        for k in ks:
            x = (x + 1) * k
        return x

    yield from turns(wrap(fn), device, ks.reverse, ks.clear)


@state("reads")
def list_slice(wrap: Wrap, device: torch.device) -> Items:
    """A slice of a list."""
    ks = [1.0, 2.0, 3.0]
    yield from turns(wrap(lambda x: x * sum(ks[:2])), device, item(ks, 2, 9.0), item(ks, 0, 5.0))


@state("reads")
def list_unpacked(wrap: Wrap, device: torch.device) -> Items:
    """A list is unpacked into names."""
    ks = [1.5, 2.5]

    def fn(x: torch.Tensor) -> torch.Tensor:
        a, *b = ks
        return x * a + len(b)

    yield from turns(wrap(fn), device, lambda: ks.reverse(), lambda: ks.append(0.0))


@state("reads")
def list_membership(wrap: Wrap, device: torch.device) -> Items:
    """Whether a list has a value."""
    layers = [1, 2]
    g = wrap(lambda x: x * (2.5 if 3 in layers else 1.5))
    yield from turns(g, device, lambda: layers.append(3), lambda: layers.remove(3))


@state("reads")
def list_index_and_count(wrap: Wrap, device: torch.device) -> Items:
    """``index`` and ``count`` of a list."""
    names = ["a", "b", "a"]
    g = wrap(lambda x: x * names.index("b") + names.count("a"))
    yield from turns(g, device, lambda: names.insert(0, "a"), lambda: names.remove("a"))


@state("reads")
def list_compared(wrap: Wrap, device: torch.device) -> Items:
    """Two lists are compared in order."""
    version = [1, 2]
    g = wrap(lambda x: x * (2.5 if version >= [1, 3] else 1.5))
    yield from turns(g, device, item(version, 1, 3))


@state("reads")
def nested_lists(wrap: Wrap, device: torch.device) -> Items:
    """An item deep in nested containers."""
    cfg = {"a": [{"b": (0, [1.5])}]}
    yield from turns(wrap(lambda x: x * cfg["a"][0]["b"][1][0]), device, item(cfg["a"][0]["b"][1], 0, 2.5))


@state("reads")
def set_membership(wrap: Wrap, device: torch.device) -> Items:
    """Whether a set has a value."""
    frozen: set[str] = set()
    g = wrap(lambda x: x * (2.5 if "head" in frozen else 1.5))
    yield from turns(g, device, lambda: frozen.add("head"), lambda: frozen.discard("head"))


@state("reads")
def set_of_five_thousand(wrap: Wrap, device: torch.device) -> Items:
    """One number of 5,000 leaves a set."""
    ids = set(range(5000))
    g = wrap(lambda x: x * (2.5 if 4321 in ids else 1.5))
    yield from turns(g, device, lambda: ids.discard(4321), lambda: ids.add(4321))


@state("reads")
def set_sum(wrap: Wrap, device: torch.device) -> Items:
    """A set of one length holds other numbers."""
    ids = set(range(100))
    g = wrap(lambda x: x * sum(ids))
    yield from turns(g, device, lambda: (ids.discard(7), ids.add(1000)))


@state("reads")
def set_operations(wrap: Wrap, device: torch.device) -> Items:
    """Difference and intersection of two sets."""
    wanted, done = {"a", "b", "c"}, {"a"}
    g = wrap(lambda x: x * len(wanted - done) + len(wanted & done))
    yield from turns(g, device, lambda: done.add("b"), lambda: wanted.add("d"))


@state("reads")
def frozenset_rebound(wrap: Wrap, device: torch.device) -> Items:
    """A frozen set in a list is exchanged for one of the same length."""
    held = [frozenset({1, 2})]
    yield from turns(wrap(lambda x: x * sum(held[0])), device, item(held, 0, frozenset({1, 5})))


@state("reads")
def tuple_rebound(wrap: Wrap, device: torch.device) -> Items:
    """A tuple in a dict is exchanged; it holds a list that changes."""
    cfg = {"k": (1.0, [0.5])}
    g = wrap(lambda x: x * (cfg["k"][0] + cfg["k"][1][0]))
    yield from turns(g, device, item(cfg["k"][1], 0, 1.5), item(cfg, "k", (2.0, [2.5])))


@state("C")
def deque_items(wrap: Wrap, device: torch.device) -> Items:
    """A deque is rotated and grows."""
    q = collections.deque([1.5, 2.5, 3.5], maxlen=3)
    g = wrap(lambda x: x * q[0] + len(q))
    yield from turns(g, device, lambda: q.rotate(1), lambda: q.append(9.0), q.clear, lambda: q.append(4.0))


@state("C")
def ordered_dict(wrap: Wrap, device: torch.device) -> Items:
    """``move_to_end`` of an ordered dict."""
    cfg = collections.OrderedDict(a=2.0, b=3.0)

    def fn(x: torch.Tensor) -> torch.Tensor:
        for k in cfg.values():
            x = (x + 1) * k
        return x

    yield from turns(wrap(fn), device, lambda: cfg.move_to_end("a"), lambda: cfg.popitem(last=False))


@state("C")
def default_dict(wrap: Wrap, device: torch.device) -> Items:
    """A default dict's factory changes, then the key appears."""
    cfg: Any = collections.defaultdict(lambda: 1.5)

    def factory() -> None:
        cfg.clear()
        cfg.default_factory = lambda: 2.5

    g = wrap(lambda x: x * cfg["k"])
    yield from turns(g, device, factory, item(cfg, "k", 3.5), watch=lambda: dict(cfg))


@state("reads")
def counter_most_common(wrap: Wrap, device: torch.device) -> Items:
    """The most common of a counter."""
    seen = collections.Counter({1: 3, 5: 1})
    g = wrap(lambda x: x * seen.most_common(1)[0][0])
    yield from turns(g, device, lambda: seen.update([5] * 5), lambda: seen.update([1] * 9))


@state("reads")
def chain_map(wrap: Wrap, device: torch.device) -> Items:
    """A chain of dicts: a later one, an earlier one, a new one."""
    base, top = {"k": 1.5}, {"j": 0.0}
    cfg = collections.ChainMap(top, base)
    g = wrap(lambda x: x * cfg["k"])
    yield from turns(
        g, device, item(base, "k", 2.5), item(top, "k", 3.5), lambda: cfg.maps.insert(0, {"k": 4.5})
    )


@state("reads")
def user_dict(wrap: Wrap, device: torch.device) -> Items:
    """A ``UserDict`` and a ``UserList``."""
    cfg, ks = collections.UserDict(k=1.5), collections.UserList([1.0])
    g = wrap(lambda x: x * cfg["k"] + sum(ks))
    yield from turns(g, device, item(cfg, "k", 2.5), lambda: ks.append(3.0))


@state("reads")
def own_dict_subclass(wrap: Wrap, device: torch.device) -> Items:
    """``__missing__`` of a dict's subclass reads state."""

    class Config(dict):  # type: ignore[type-arg]
        fallback = 1.5

        def __missing__(self, key: str) -> float:
            return self.fallback

    cfg = Config()
    g = wrap(lambda x: x * cfg["k"])
    yield from turns(g, device, lambda: setattr(Config, "fallback", 2.5), item(cfg, "k", 3.5))


@state("reads")
def own_list_subclass(wrap: Wrap, device: torch.device) -> Items:
    """``__getitem__`` of a list's subclass, replaced on the class."""

    class Scales(list):  # type: ignore[type-arg]
        def __getitem__(self, index: Any) -> Any:
            return super().__getitem__(index) * 2

    ks = Scales([1.5])
    g = wrap(lambda x: x * ks[0])
    change = lambda: setattr(Scales, "__getitem__", lambda self, index: 7.0)  # noqa: E731
    yield from turns(g, device, lambda: ks.__setitem__(0, 2.5), change)


@state("reads")
def heap_and_bisect(wrap: Wrap, device: torch.device) -> Items:
    """A heap's smallest, and where a number belongs in a sorted list."""
    heap, edges = [3, 5], [1.0, 2.0]
    g = wrap(lambda x: x * heapq.nsmallest(1, heap)[0] + bisect.bisect(edges, 2.5))
    yield from turns(g, device, lambda: heapq.heappush(heap, 1), lambda: edges.append(2.2))


@state("reads")
def sorted_by_state(wrap: Wrap, device: torch.device) -> Items:
    """``sorted``, ``min`` and ``max`` with a key that reads state."""
    rank = {"a": 1, "bb": 2}
    g = wrap(lambda x: x * len(sorted(rank, key=rank.get)[0]) + len(max(rank, key=lambda name: rank[name])))
    yield from turns(g, device, item(rank, "a", 5), item(rank, "bb", 9))


@state("reads")
def any_all_sum(wrap: Wrap, device: torch.device) -> Items:
    """``any``, ``all`` and ``zip`` over state."""
    flags, ks = [False, True], [1.0, 2.0]
    g = wrap(
        lambda x: x * (1 + any(flags) + 2 * all(flags)) + sum(k for f, k in zip(flags, ks, strict=True) if f)
    )
    yield from turns(g, device, item(flags, 0, True), lambda: flags.__setitem__(slice(None), [False, False]))


@state("reads")
def length_of_a_string_list_joined(wrap: Wrap, device: torch.device) -> Items:
    """Text made of a list, and its length."""
    words = ["a", "bc"]
    g = wrap(lambda x: x * len("-".join(words)))
    yield from turns(g, device, lambda: words.append("def"), item(words, 0, "xyz"))


@state("effects")
def default_factory_with_a_closure(wrap: Wrap, device: torch.device) -> Items:
    """The factory of a dict that the call has emptied counts what it makes."""
    log: list[int] = []
    made = collections.defaultdict(lambda: log.append(1) or 2.0)

    def fn(x: torch.Tensor) -> torch.Tensor:
        made.pop("a", None)
        return x * made["a"]

    yield from turns(wrap(fn), device, log.clear, watch=lambda: (len(log), [*made]))
