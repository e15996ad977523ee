"""The ceiling: what recordings hold on a device is measured after each new one, and the least valuable go.

A limit holds for every device by itself, for the whole process (``rote.set_budget``) or for the recordings of
one wrapper (``budget=``). It counts what is really held: the backend's regions (chunks of the host's pool,
pools of CUDA's allocator with all they have reserved) and the static inputs. It is measured when a recording
has been made. While one is being made the ceiling may be exceeded by what that call needs, which a plain call
would need as well.

``docs/design.md`` says what a recording is worth, and why pools are *slabs* where there is a limit.

What this does not count: what the driver takes for an instantiated graph (about 100 KB for some hundred
nodes), cuBLAS's workspace, results that were handed out and Python's own memory. A pool that a recording has
left is no longer counted although a tensor that somebody still holds (a gradient) keeps a part of it from the
device.
"""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Mapping
from typing import NamedTuple

import torch

from ...base import OptionError
from ..backends.protocol import Backend, Sharing
from .holding import Account, Holding
from .victims import Item, choose, held, shares

HALF_LIFE = 512
"""Calls after which a replay counts half."""

_PROCESS = "rote.set_budget"
"""Whose the process's limit is, in messages."""

SLABS = 8
"""Pools that a limit is divided into where memory comes back only by the pool."""


class Excess(NamedTuple):
    """A limit that does not hold although everything that may go has gone."""

    held: int
    limit: int
    whose: str

    def __str__(self) -> str:
        return f"{format_size(self.held)} are held where {self.whose} allows {format_size(self.limit)}"


class DeviceBudget:
    """The recordings of one device, used under the backend's lock."""

    def __init__(self, backend: Backend) -> None:
        self.limit: int | None = None
        self._backend = backend
        self._holdings: weakref.WeakKeyDictionary[Holding, None] = weakref.WeakKeyDictionary()  # in order

    def add(self, holding: Holding) -> None:
        """A recording has memory from now on."""
        self._holdings[holding] = None

    def sharing(self, account: Account, demand: int) -> Sharing:
        """How the memory of an account's next recording is to be shared, by the bytes it may need."""
        limits = [limit for limit in (self.limit, account.limit) if limit is not None]
        return Sharing(account.tenant, min(limits) // SLABS if limits else None, demand)

    def smallest_limit(self, account: Account) -> tuple[int, str] | None:
        """The least that a recording of an account may hold, and whose limit that is."""
        limits = [
            (limit, whose)
            for limit, whose in ((account.limit, _own(account)), (self.limit, _PROCESS))
            if limit is not None
        ]
        return min(limits) if limits else None

    # ------------------------------------------------------------------ holding the ceiling

    def settle(self, fresh: Holding) -> Excess | None:
        """A recording was made, and is in use: age the others, and evict until every limit holds.

        Returns:
            The limit that does not hold even so.
        """
        if self.limit is None and fresh.account.limit is None:
            return None
        self._age()
        return self._hold(fresh.account.limit, fresh, fresh.account) or self._hold(self.limit, fresh, None)

    def excess(self, holding: Holding) -> Excess | None:
        """The limit that does not hold as it is; nothing is evicted."""
        account = holding.account
        for limit, whose, of in ((account.limit, _own(account), account), (self.limit, _PROCESS, None)):
            if limit is not None and (nbytes := self._held(of)) > limit:
                return Excess(nbytes, limit, whose)
        return None

    def trim(self) -> None:
        """Evict until the process's limit holds."""
        self._hold(self.limit, None, None)

    def _hold(self, limit: int | None, fresh: Holding | None, account: Account | None) -> Excess | None:
        if limit is None:
            return None
        whose = _own(account) if account is not None else _PROCESS
        evicted = False
        while (nbytes := self._held(account)) > limit:
            text = f"{format_size(nbytes)} were held where {whose} allows {format_size(limit)}"
            if not self._evict(fresh, account, text):
                break
            evicted = True
        if evicted:
            self._backend.trim()
        return Excess(nbytes, limit, whose) if nbytes > limit else None

    def make_room(self, needed: int, fresh: Holding | None) -> None:
        """The device has no memory left: evict what is worth least until so many bytes came free.

        The recording in progress stays.
        """
        self._age()
        before = self._held(None)
        while before - self._held(None) < needed:
            if not self._evict(fresh, None, "the device had no memory left for another recording"):
                break
        self._backend.trim()

    def _evict(self, fresh: Holding | None, account: Account | None, why: str) -> bool:
        """Release one set of recordings; whether there was one."""
        members = self._members(account)
        chosen = choose([_item(holding, fresh) for holding in members], self._backend.regions())
        for index in chosen:
            owner = members[index].owner()
            if owner is not None:
                owner.evict(why)
            members[index].release()
        return bool(chosen)

    def _age(self) -> None:
        members = [(holding, owner) for holding in self._holdings if (owner := holding.owner()) is not None]
        calls = 1 + sum(holding.worth.fresh(owner.replays) for holding, owner in members)
        factor = 0.5 ** (calls / HALF_LIFE)
        for holding, owner in members:
            holding.worth.age(factor, owner.replays)

    # ------------------------------------------------------------------ counting

    def bytes_held(self) -> int:
        """Bytes of all regions of the device, and of all static inputs."""
        return self._held(None)

    def by_recording(self, account: Account) -> Mapping[Holding, int]:
        """Bytes of each recording of an account: its own, and its share of what it shares with others."""
        members = self._members(None)
        items = [_item(holding) for holding in members]
        parts = shares(items, [holding.demand for holding in members], self._backend.regions())
        return {
            holding: part for holding, part in zip(members, parts, strict=True) if holding.account is account
        }

    def _held(self, account: Account | None) -> int:
        sizes = self._backend.regions()
        items = [_item(holding) for holding in self._members(account)]
        if account is not None:
            return held(items, sizes)
        return sum(item.own for item in items) + sum(sizes.values())

    def _members(self, account: Account | None) -> list[Holding]:
        return [
            holding
            for holding in self._holdings
            if holding.sessions and (account is None or holding.account is account)
        ]


class Budgets:
    """The budget of every device of a process."""

    def __init__(self) -> None:
        self._budgets: dict[Backend, DeviceBudget] = {}
        self._default: int | None = None
        self._limits: dict[str, int | None] = {}
        self._lock = threading.Lock()

    def of(self, backend: Backend) -> DeviceBudget:
        """The budget of a device."""
        with self._lock:
            found = self._budgets.get(backend)
            if found is None:
                found = self._budgets[backend] = DeviceBudget(backend)
                found.limit = self._limit(backend)
            return found

    def limit(self, nbytes: int | None, device: torch.device | None) -> int | None:
        """Set the limit of one device, or of all (those of single ones are forgotten); returns the last."""
        with self._lock:
            if device is None:
                before, self._default = self._default, nbytes
                self._limits.clear()
            else:
                before = self._limits.get(str(device), self._default)
                self._limits[str(device)] = nbytes
            for backend, budget in self._budgets.items():
                budget.limit = self._limit(backend)
            return before

    def all(self) -> list[tuple[Backend, DeviceBudget]]:
        """Every device that has recorded something."""
        return list(self._budgets.items())

    def _limit(self, backend: Backend) -> int | None:
        return self._limits.get(str(backend.device), self._default)


def _item(holding: Holding, fresh: Holding | None = None) -> Item:
    owner = holding.owner()
    if owner is None:
        return Item(holding.regions(), 0, 0.0)
    fixed = holding is fresh or owner.busy
    value = holding.worth.score * max(holding.operations, 1)
    return Item(holding.regions(), owner.placed_bytes() + holding.bytes_beside, value, fixed)


def _own(account: Account) -> str:
    return f"the budget of {account.name}"


BUDGETS = Budgets()
"""The one place where recordings are counted: memory is of a device and process, whoever records."""


_UNITS = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_FORM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)


def parse_size(value: int | str | None, name: str) -> int | None:
    """A number of bytes from an option.

    Args:
        value: Bytes, a number with a unit (``"2GiB"``, ``"500 MB"``), or None for no limit.

    Raises:
        OptionError: The value is no positive size.
    """
    if value is None:
        return None
    size: int | None = None
    if isinstance(value, str):
        found = _FORM.fullmatch(value)
        factor = _UNITS.get(found[2].lower()) if found else None
        size = int(float(found[1]) * factor) if found and factor else None
    elif type(value) is int:
        size = value
    if size is None or size < 1:
        raise OptionError(
            f"{name}={value!r} must be None, a positive number of bytes or a string like '2GiB' or '500 MB'"
        )
    return size


def format_size(nbytes: int) -> str:
    """Bytes in the binary unit that fits: ``1.5 MiB``."""
    size = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
