"""Guards: is the Python state still what it was when the recording was made, and if not, what changed?

The check is a handful of C loops over parallel lists (no Python per slot where a ``map`` does it); the
explanation is slow and exact. Equal plain values count as unchanged even when they are other objects, so a
failed identity check is looked at again before a recording is given up.
"""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from copy import copy
from functools import cached_property
from itertools import compress
from operator import contains, eq, getitem, is_, is_not
from types import ModuleType
from typing import Any, NamedTuple

import numpy
import torch

from ..base.location import Site
from .compat import metadata_check, plain_functions
from .iterators import Position
from .marks import Content, TensorMark, mark, pointer_of
from .members import has_plain_length, is_direct
from .paths import Followed, Known, Pairs, Place, can_pair
from .reads import Address, Argument, Read, Reads, address_of
from .slots import FOLLOWED, Difference, form_of, is_among, now_in, read, same, show, show_tensor
from .snapshot import ATTRIBUTE, DEFINED, ITEM, LENGTH, LOOKED, MEMBERS, NUMBERS, ORDER, Entry, Snapshot

_data_ptr = torch.Tensor.data_ptr
_DIRECT = frozenset({ITEM, LENGTH, MEMBERS, ORDER})
"""Kinds of slots that are asked of the container itself."""

_LISTS = ("items", "slots", "slow", "lengths", "orders")
OFTEN = 3
"""Other objects in one slot from which on those in it are followed."""

_Looker = Callable[[torch.Tensor], Any]
_dtype: _Looker = torch.Tensor.dtype.__get__  # pyright: ignore[reportAttributeAccessIssue]
_device: _Looker = torch.Tensor.device.__get__  # pyright: ignore[reportAttributeAccessIssue]
_LOOKS: tuple[_Looker, ...] = (
    torch.Tensor.stride, torch.Tensor.size, _dtype, _device, torch.Tensor.is_conj, torch.Tensor.is_neg, type,
)  # fmt: skip
"""How a tensor looks at its memory: all that ``.data = ...`` and the like may change, besides the address."""


class Guard:
    """The state a recording depends on, in a form that is quick to check.

    Args:
        snapshot: The state when the recording was made.
        externals: Tensors that the recording reads in place, by storage handle.
        parameters: Parameters among the arguments, by storage handle, with their names.
        gradients: Gradients the recording may read: parameter name, parameter, gradient.
        readers: For each storage handle the user's line that read it first.
        arrays: Addresses of numpy arrays whose content is read again at every replay (not under guard).
        looked: Tensors that are not read, but asked for their shape, type, or whether they require grad.
        flags: Whether a tensor requires grad matters without gradients too.

    Attributes:
        items: Slots of containers, compared by identity.
        item_values: What lies there.
        slots: Slots of containers that hold tensors.
        slow: Slots that are compared by content, or read in another way than by a key.
        lengths: Lengths of containers.
        orders: Order of the keys of mappings.
        references: The tensors read in place.
        addresses: Where they lie.
        dead: One of them has died.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        externals: dict[int, torch.Tensor],
        parameters: dict[int, tuple[str, torch.Tensor]],
        gradients: list[tuple[str, torch.Tensor, torch.Tensor]],
        readers: dict[int, Site],
        arrays: set[int],
        looked: Iterable[torch.Tensor] = (),
        *,
        flags: bool = False,
    ) -> None:
        self._check: Callable[..., bool] | None = None  # of all that they look like, if it says yes
        self._arrays = arrays
        self._snapshot = snapshot
        self.items: list[Entry] = []
        self.slow: list[Entry] = []
        self.slots: list[Entry] = []
        self.lengths: list[Entry] = []
        self.orders: list[Entry] = []
        self._read: list[_Watched] = []
        self._readers = readers
        self.dead = False
        self._iterates = False
        self._followed: Followed | None = None
        self._moving = frozenset[int]()  # objects that were followed
        self._turns: Counter[Address] = Counter()  # how often another object lay in a slot
        self._died = _notice(self)
        for entry in snapshot.entries.values():
            self._sort(entry)
        self._grad = flags or torch.is_grad_enabled()
        self._guard_externals(externals)
        for tensor in looked:
            self._guard_looks(tensor)
        for name, tensor in parameters.values():
            self._watch_tensor(None, name, tensor)
        for name, parameter, gradient in gradients:
            if gradient.untyped_storage()._cdata in externals:
                entry = Entry(ATTRIBUTE, parameter, "grad", mark(gradient), snapshot.node(-1, f"{name}.grad"))
                self.slow.append(entry)
        self.handles = set(externals)
        snapshot.tensors = {}  # a guard keeps no tensor alive
        self._compile()

    def _is_reread(self, entry: Entry) -> bool:
        if not isinstance(entry.value, Content):
            return False
        now = read(entry)
        return isinstance(now, numpy.ndarray) and pointer_of(now) in self._arrays

    def _sort(self, entry: Entry) -> None:
        what = entry.kind
        if what == NUMBERS and is_among(entry, self._arrays) != (entry.key == LOOKED):
            return  # read again at each replay; or by the slot that holds the array
        if self._arrays and self._is_reread(entry):
            entry = entry._replace(value=read(entry))
        value = entry.value
        if isinstance(value, Position):
            self._iterates = True
            if not value.asked:  # what a replay does depends on which it is, not on how far
                value = value.value
                entry = entry._replace(value=value)
        kind = type(entry.container)
        if kind is Argument or what not in _DIRECT:
            self.slow.append(entry)
        elif what == MEMBERS:
            self.lengths.append(entry)
        elif not (is_direct(kind) or (what == LENGTH and has_plain_length(kind))):
            self.slow.append(entry)
        elif what == LENGTH:
            self.lengths.append(entry)
        elif what == ORDER:
            (self.orders if all([type(key) is str for key in value.value]) else self.slow).append(entry)
        elif isinstance(value, TensorMark):
            self.slots.append(entry)
        elif isinstance(value, (Content, Position)):
            self.slow.append(entry)
        elif kind is not tuple:
            self.items.append(entry)

    def _guard_externals(self, externals: dict[int, torch.Tensor]) -> None:
        for handle in externals:
            for entry, tensor in self._snapshot.tensors.get(handle, ()):
                self._watch_tensor(entry, self._snapshot.name_of(entry), tensor)

    def _guard_looks(self, tensor: torch.Tensor) -> None:
        with plain_functions():
            entries = self._snapshot.tensors.get(tensor.untyped_storage()._cdata, ())
        for entry, found in entries:
            if found is tensor:
                self._watch_tensor(entry, self._snapshot.name_of(entry), tensor)

    def _watch_tensor(self, entry: Entry | None, name: str, tensor: torch.Tensor) -> None:
        site = self._readers.get(tensor.untyped_storage()._cdata)
        watched = _Watched(
            entry, name, weakref.ref(tensor, self._died), tensor.data_ptr(), tensor.requires_grad, site
        )
        self._read.append(watched)

    def _compile(self) -> None:
        self._item_containers = [entry.container for entry in self.items]
        self._item_keys = [entry.key for entry in self.items]
        self.item_values = [entry.value for entry in self.items]
        self._tensor_containers = [entry.container for entry in self.slots]
        self._tensor_keys = [entry.key for entry in self.slots]
        self._tensor_ids = [entry.value.identity for entry in self.slots]
        self.references = [watched.reference for watched in self._read]
        self.addresses = [watched.address for watched in self._read]
        with plain_functions():
            looks = [_looks_of(watched.reference()) for watched in self._read]
        self._looks = [list(column) for column in zip(*looks, strict=True)] or [[] for _ in _LOOKS]
        # Without gradients it changes nothing else whether a parameter requires grad.
        self._flags = [watched.requires_grad for watched in self._read] if self._grad else None
        self._order_containers = [entry.container for entry in self.orders]
        self._order_values = [entry.value.value for entry in self.orders]
        names, self._slowest = _parted(self.slow)
        self._name_containers = [entry.container for entry in names]
        self._name_keys = [entry.key for entry in names]
        self._name_values = [entry.value.value for entry in names]
        self._length_containers = [entry.container for entry in self.lengths]
        self._length_values = [entry.value.value for entry in self.lengths]

    def holds(self) -> bool:
        """Whether everything is as it was; equal plain values under another identity are accepted."""
        return self.tensors_hold() and self.values_hold()

    def values_hold(self) -> bool:
        """Whether the plain values and the containers are as they were."""
        if not self._lengths_hold() or not self._shapes_hold():
            return False
        try:
            if all(map(is_, map(getitem, self._item_containers, self._item_keys), self.item_values)):
                return self._slow_holds()
        except (KeyError, IndexError):
            return False
        return self._heal() and self._slow_holds()

    def moved(self) -> Guard | None:
        """The guard over other objects that lie in the place of those that were read, and read the same.

        Returns:
            It, if it holds; None if nothing is moved, or something else is not what it was.
        """
        if self._snapshot.reads is None or self.dead:
            return None
        whole = self._unfolded()
        pairs = whole._pairs()
        if pairs is None or not pairs.are_one_to_one():
            return None
        other = whole._follow(pairs)
        return other if not other.dead and other.holds() else None

    def _pairs(self) -> Pairs | None:
        """Objects in slots that differ, with what lies there now; None if there are none."""
        pairs = Pairs(self._known)
        for place in [each for each in self._differing() if can_pair(type(each.was))]:
            if id(place.entry.container) not in pairs.found and not pairs.agree([place]):
                return None
        return pairs if pairs.found else None

    def _differing(self) -> Iterator[Place]:
        """The slots that hold something else than they did."""
        try:
            held = list(map(getitem, self._item_containers, self._item_keys))
            items: Iterable[Entry] = compress(self.items, map(is_not, held, self.item_values))
        except (KeyError, IndexError):
            items = self.items
        for entry in (*items, *self.slow):
            now = read(entry)
            if now is not entry.value and not same(entry.value, form_of(entry.value, now)):
                yield Place(entry, "", entry.value, now)

    @cached_property
    def _known(self) -> Known:
        entries = [entry for name in _LISTS for entry in getattr(self, name)]
        return Known.from_slots(entries, self._snapshot.reads or Reads({}))

    def _copy(self) -> Guard:
        """The same guard, with lists and names of its own."""
        other, snapshot = copy(self), copy(self._snapshot)
        for name in ("_bare_containers", "_known"):
            other.__dict__.pop(name, None)
        for name in _LISTS:
            setattr(other, name, [*getattr(self, name)])
        snapshot.entries, snapshot.parents, snapshot.labels = {}, [*snapshot.parents], [*snapshot.labels]
        other._snapshot = snapshot
        return other

    def _unfolded(self) -> Guard:
        """A guard without slots that are followed."""
        if self._followed is None:
            return self
        other = self._copy()
        other._snapshot.reads, other._followed, other._moving = self.reads, None, self._followed.objects
        other.slow = [entry for entry in self.slow if entry.kind != FOLLOWED]
        for entry in self._followed.entries:
            other._sort(entry)
        other._compile()
        return other

    def _follow(self, pairs: Pairs) -> Guard:
        """A guard about the objects that lie in the place of others."""
        other, found, reads = self._copy(), pairs.found, self._snapshot.reads
        assert reads is not None
        for name in _LISTS:
            setattr(other, name, [pairs.follow(entry) for entry in getattr(self, name)])
        snapshot = other._snapshot
        snapshot.reads = Reads.of(map(pairs.follow, reads), reads.pinned)
        snapshot.labels = [
            label.name if isinstance(label, Read) and pairs.follow(label) is not label else label
            for label in snapshot.labels
        ]
        roots = [entry for entry in (*self.items, *self.slow)
                 if id(entry.value) in found and id(entry.container) not in found]  # fmt: skip
        turns = Counter([address_of(*entry[:3]) for entry in roots])
        other._turns = self._turns + turns
        if self._moving or max([other._turns[each] for each in turns], default=0) >= OFTEN:
            before = [found[each][1] for each in self._moving & found.keys()]
            moving = {id(now) for now in (*before, *[now for _, now in found.values()])}
            other._fold(moving | (self._moving - found.keys()))
        other._watch_again(pairs)
        other._compile()
        return other

    def _fold(self, moving: AbstractSet[int]) -> None:
        """Other objects lie in the place of some again and again: what is read of them is compared apart."""
        snapshot, known, reads = self._snapshot, self._known, self._snapshot.reads
        assert reads is not None
        roots, inner = list[Entry](), list[Entry]()
        for name in _LISTS:
            entries: list[Entry] = getattr(self, name)
            inner += [entry for entry in entries if id(entry.container) in moving]
            rest = [entry for entry in entries if id(entry.container) not in moving]
            roots += [entry for entry in rest if id(entry.value) in moving]
            setattr(self, name, [entry for entry in rest if id(entry.value) not in moving])
        listed = {address_of(*entry[:3]) for entry in inner}
        of_them = [each for each in reads if id(each.container) in moving]
        inner += [
            Entry(*each[:4], snapshot.node(-1, each.name)) for each in of_them if each.address not in listed
        ]
        others = [each for each in reads if id(each.container) not in moving and id(each.value) not in moving]
        snapshot.reads = Reads.of(others, reads.pinned)
        ids = frozenset({*known.of, *known.holders}.difference(moving))
        self._followed = Followed(
            roots, inner, moving, Known({}, {}, reads.pinned, {}, ids), snapshot.name_of
        )
        self._moving = frozenset()
        self.slow.append(Entry(FOLLOWED, self._followed, None, Content(True), -1))
        self.__dict__.pop("_known", None)

    def _watch_again(self, pairs: Pairs) -> None:
        """Watch the tensors that are read in place, in the slots in which they lie now."""
        self._died = _notice(self)
        moving = self._followed.objects if self._followed is not None else frozenset[int]()
        watched, self._read = self._read, []
        for each in watched:
            tensor = each.reference()
            if tensor is None:
                self.dead = True
                return
            entry = pairs.follow(each.entry) if each.entry is not None else None
            entry = None if entry is None or id(entry.container) in moving else entry
            self._read.append(each._replace(entry=entry, reference=weakref.ref(tensor, self._died)))

    @property
    def reads(self) -> Reads | None:
        """What was read of the objects that are under guard, if that is known."""
        reads = self._snapshot.reads
        if self._followed is None or reads is None:
            return reads
        return Reads.of([*reads, *self._followed.reads], reads.pinned)

    def covers(self, reads: Reads) -> bool:
        """Whether everything that a call read is under guard here."""
        known = self.reads
        return known is None or reads.slots.keys() <= known.slots.keys()

    @property
    def ignores(self) -> bool:
        """Whether a call may change slots without being noticed by the guard, or find other objects there."""
        return self._iterates or self._followed is not None

    @property
    def containers(self) -> frozenset[int]:
        """Identities of what the slots under guard lie in, if it holds."""
        if self._followed is None or not self._followed.holds():
            return self._bare_containers
        return self._bare_containers | self._followed.objects

    @cached_property
    def _bare_containers(self) -> frozenset[int]:
        return frozenset([id(entry.container) for name in _LISTS for entry in getattr(self, name)])

    @property
    def size(self) -> int:
        """Number of slots under guard."""
        return len(self.items) + len(self.slow) + len(self.lengths)

    @property
    def asks_flags(self) -> bool:
        """Whether it matters which tensors require a gradient."""
        return self._flags is not None

    def _lengths_hold(self) -> bool:
        return (
            all(map(eq, map(len, self._length_containers), self._length_values))
            and list(map(tuple, self._order_containers)) == self._order_values
        )

    def tensors_hold(self) -> bool:
        """Whether the tensors are the same objects at the same addresses."""
        if self.dead:
            return False
        try:
            ids = list(map(id, map(getitem, self._tensor_containers, self._tensor_keys)))
        except (KeyError, IndexError):
            return False
        if ids != self._tensor_ids:
            return False
        tensors: list[Any] = [reference() for reference in self.references]
        try:
            with plain_functions():  # to look at a tensor of the user's class is not to use it
                if list(map(_data_ptr, tensors)) != self.addresses:
                    return False
                return self._flags is None or [tensor.requires_grad for tensor in tensors] == self._flags
        except TypeError:  # one is dead
            return False

    def _shapes_hold(self) -> bool:
        """Whether the tensors look at their memory as before (``.data`` may have been rebound in place)."""
        tensors: list[Any] = [reference() for reference in self.references]
        try:
            with plain_functions():
                if self._check is not None and self._check(*tensors):
                    return True
                if [list(map(look, tensors)) for look in _LOOKS] != self._looks:
                    return False
                if self._check is None and tensors and not any([tensor.is_nested for tensor in tensors]):
                    self._check = metadata_check(tensors)
        except TypeError:
            return False
        return True

    def _slow_holds(self) -> bool:
        defined = map(contains, self._name_containers, self._name_keys)
        if not all(map(is_, defined, self._name_values)):
            return False
        return all(same(entry.value, now_in(entry)) for entry in self._slowest)

    def _heal(self) -> bool:
        """Adopt equal plain values that merely are other objects; False if a value really differs."""
        for index, entry in enumerate(self.items):
            now = read(entry)
            if now is self.item_values[index]:
                continue
            if not same(entry.value, now):
                return False
            self.item_values[index] = now
        return True

    def watched(self) -> list[tuple[str, torch.Tensor]]:
        """The tensors that the recording reads in place, with their names."""
        return [(item.name, tensor) for item in self._read if (tensor := item.reference()) is not None]

    def reachable(self) -> list[tuple[str, torch.Tensor]]:
        """Every tensor in the slots under guard, read in place or not."""
        followed = self._followed.entries if self._followed is not None else ()
        slots = [*self.slots, *self.slow, *followed]
        slots = [entry for entry in slots if isinstance(entry.value, TensorMark)]
        found = [(self._snapshot.name_of(entry), read(entry)) for entry in slots]
        return [(name, tensor) for name, tensor in found if isinstance(tensor, torch.Tensor)]

    def replaced(self) -> list[Any]:
        """The objects under guard that no longer lie where they lay, as far as they may keep others alive."""
        followed = self._followed.entries if self._followed is not None else ()
        slots = [entry for entry in (*self.items, *self.slow, *followed) if _keeps_others(entry.value)]
        return [entry.value for entry in slots if read(entry) is not entry.value]

    def explain(self) -> list[Difference]:
        """Every slot that differs from the recording, moved tensors first."""
        with plain_functions():
            return self._explain()

    def _explain(self) -> list[Difference]:
        found: list[Difference] = []
        looked_before = list(zip(*self._looks, strict=True))
        for position, (entry, name, reference, address, requires_grad, site) in enumerate(self._read):
            tensor = reference()
            now = read(entry) if entry is not None else tensor
            if tensor is None or now is not tensor:
                found.append(Difference(name, f"the tensor at {address:#x}", show_tensor(now), True, site))
            elif tensor.data_ptr() != address:
                was, now = f"at address {address:#x}", f"at {tensor.data_ptr():#x}"
                found.append(Difference(name, was, now, True, site))
            elif _looks_of(tensor) != looked_before[position]:
                was, now = _layout(looked_before[position]), _layout(_looks_of(tensor))
                found.append(Difference(name, was, now, True, site))
            elif tensor.requires_grad != requires_grad:
                was, now = f"requires_grad={requires_grad}", f"{tensor.requires_grad}"
                found.append(Difference(name, was, now, True, site))
        known = {difference.name for difference in found}
        for entry in (*self.slots, *self.items, *self.slow, *self.lengths, *self.orders):
            now = now_in(entry)
            name = self._snapshot.name_of(entry)
            if name not in known and not same(entry.value, now):
                entry, suffix, was, now = self._deepest(entry, now)
                name = self._snapshot.name_of(entry) + suffix
                moved = isinstance(was, TensorMark)
                group = self._snapshot.training.groups.get(id(entry.container))
                scheduler = self._snapshot.training.schedulers.get(id(entry.container))
                was, now = show(was), show(now)
                found.append(Difference(name, was, now, moved, None, group, entry.key, scheduler))
        return sorted(found, key=lambda difference: (not difference.moved, "(" in difference.name))

    def _deepest(self, entry: Entry, now: Any) -> Place:
        """What differs in a slot: of another object of the same class, what is read of that."""
        if entry.kind == FOLLOWED:
            place = entry.container.difference()
            return place._replace(now=form_of(place.was, place.now))
        place, pairs = Place(entry, "", entry.value, now), Pairs(self._known)
        if not can_pair(type(now)) or pairs.agree([place]) or pairs.difference is None:
            return place
        inner = pairs.difference
        return inner._replace(now=form_of(inner.was, inner.now))


def _notice(guard: Guard) -> Callable[[object], None]:
    """What is told when a tensor that a guard is about dies."""
    reference = weakref.ref(guard)

    def died(_: object) -> None:
        alive = reference()
        if alive is not None:
            alive.dead = True

    return died


def _parted(slow: list[Entry]) -> tuple[list[Entry], list[Entry]]:
    """Whether a name is defined in a plain dict, which is asked in one loop of C; and all others."""
    names: list[Entry] = []
    others: list[Entry] = []
    for entry in slow:
        (names if entry.kind == DEFINED and type(entry.container) is dict else others).append(entry)
    return names, others


def _keeps_others(value: Any) -> bool:
    known = (TensorMark, Content, Position, type, ModuleType)
    return gc.is_tracked(value) and not isinstance(value, known)


class _Watched(NamedTuple):
    """A tensor read in place: its slot (None for an argument), its name, and where it was."""

    entry: Entry | None
    name: str
    reference: weakref.ref[torch.Tensor]
    address: int
    requires_grad: bool
    site: Site | None


def _looks_of(tensor: torch.Tensor | None) -> tuple[Any, ...]:
    return tuple([look(tensor) if tensor is not None else None for look in _LOOKS])


def _layout(looked: tuple[Any, ...]) -> str:
    """A short text for how a tensor looks at its memory."""
    stride, size, dtype, device, conjugate, negative, kind = looked
    text = f"{str(dtype).removeprefix('torch.')}{list(size)} strides {list(stride)}"
    marks = [name for name, on in (("conjugate", conjugate), ("negative", negative)) if on]
    marks += [f"on {device}"] if 0 in size else []  # without memory, the address says nothing of it
    marks += [f"a {kind.__name__}"] if kind not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) else []
    return ", ".join([text, *marks])
