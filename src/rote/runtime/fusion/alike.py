"""Plans groups of operations, and those that are alike once: a model's layers differ in their memory."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, replace

from ..program import Origin
from .groups import Home, plan_group
from .rules import NoKernelError
from .writing import Fusible, Written

Planned = list[Written | Fusible]


@dataclass(frozen=True)
class _Known:
    """A plan, and the group that it was made for.

    Attributes:
        planned: The plan; a reason if there is none.
        origins: The storages, in the order in which they come in the group.
    """

    planned: Planned | str
    group: tuple[Fusible, ...]
    origins: tuple[Origin, ...]


class GroupPlans:
    """The plans of one stretch.

    Args:
        home: The storage that has the contents of a storage.
    """

    def __init__(self, home: Home, *, on_host: bool) -> None:
        self._home = home
        self._on_host = on_host
        self._known: dict[Hashable, _Known] = {}

    def plan(self, group: Sequence[Fusible], needed: Collection[int]) -> Planned:
        """The kernels of a group; see :func:`.plan_group`.

        Raises:
            NoKernelError: Some operation cannot be written.
        """
        names: dict[Origin, int] = {}
        key = tuple([self._described(each, each.index in needed, names) for each in group])
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _Known(self._fresh(group, needed), tuple(group), tuple(names))
        if isinstance(known.planned, str):
            raise NoKernelError(known.planned)
        origins = dict(zip(known.origins, names, strict=True))
        members = {was.index: now for was, now in zip(known.group, group, strict=True)}
        return [_moved(each, origins, members) for each in known.planned]

    def _fresh(self, group: Sequence[Fusible], needed: Collection[int]) -> Planned | str:
        try:
            return plan_group(group, needed, self._home, on_host=self._on_host)
        except NoKernelError as why:
            return str(why)

    def _described(self, each: Fusible, needed: bool, names: dict[Origin, int]) -> Hashable:
        """An operation of a group; storages are told apart by when they come."""
        origins = [token.origin for token in (*each.operation.tokens, each.result)]
        return (each.form, needed, *[names.setdefault(self._home(origin), len(names)) for origin in origins])


def _moved(
    each: Written | Fusible, origins: dict[Origin, Origin], members: dict[int, Fusible]
) -> Written | Fusible:
    """A part of a plan, for another group."""
    if isinstance(each, Fusible):
        return members[each.index]
    return replace(
        each,
        reads=tuple([(origins[origin], dtype) for origin, dtype in each.reads]),
        stores=tuple([members[index].index for index in each.stores]),
        covers=frozenset([members[index].index for index in each.covers]),
    )
