"""Tensors made outside whose memory a call replaces: ``parameter.data = tau * parameter.data + ...``.

Eager gives such a tensor the memory of what is assigned, and leaves the memory that it had to whoever else
holds that. Where nobody holds either of the two, nobody can tell where it lies: at the end of a traced call
the values are copied to where the tensor lay, and it lies there again. So calls find it in one place, and the
copy is an operation like any other, which replays do as well. The counter of versions is not touched, as in
eager. Before a replay it is asked whether the memory is still in nobody else's hands.

Several tensors may lie in one memory, as parts of it (``vector_to_parameters``). They come back together, to
one memory in which they lay in the same places.

To copy where the tensor is assigned does not work: calls often hold what was there until they return
(``old = parameter.data``).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import torch

from ....base import Site, user_site
from ...arguments import describe_tensor, extent
from ...pytorch import storage_owners, unseen_functions
from .table import EXTERNAL, NEW, Origin, StorageTable

_TYPES = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


class Rebound(NamedTuple):
    """A tensor, another one over the memory that it had, how it looked, its version, and the line."""

    tensor: torch.Tensor
    home: torch.Tensor
    origin: Origin
    form: tuple[Any, ...]
    version: int
    site: Site


class ReboundTensors:
    """The tensors from outside to which one call has given other memory.

    Args:
        remembered: Those that the recording of a followed path holds, before any tensor of the call is there.
        tables: In how many more tables of the recording a storage of the call is now, by its number.

    Attributes:
        returned: Those that lie again where they lay, with what the call has put there.
    """

    def __init__(
        self,
        storages: StorageTable,
        remembered: Mapping[int, torch.UntypedStorage],
        tables: Callable[[int], int],
    ) -> None:
        self.returned: list[torch.Tensor] = []
        self._storages = storages
        self._remembered = {number: storage_owners(storage) for number, storage in remembered.items()}
        self._tables = tables
        self._found: dict[int, Rebound] = {}

    def note(self, tensor: torch.Tensor) -> None:
        """A tensor is about to get other memory."""
        if type(tensor) not in _TYPES or tensor.is_inference() or id(tensor) in self._found:
            return
        origin = self._storages.token(tensor).origin
        if origin[0] is EXTERNAL:
            self._found[id(tensor)] = Rebound(
                tensor, tensor.data, origin, describe_tensor(tensor), tensor._version, user_site()
            )

    def away(self) -> Iterator[Rebound]:
        """Those that lie elsewhere now."""
        for each in self._found.values():
            if each.tensor.data_ptr() != each.home.data_ptr() or describe_tensor(each.tensor) != each.form:
                yield each

    def can_return(self) -> list[Rebound]:
        """Those of which nobody could tell that they lie where they lay; asked when all frames are gone."""
        away = [*self.away()]
        pairs = [(each.tensor, each.home) for each in away if self._is_as_noted(each)]
        now, then = _members([tensor for tensor, _ in pairs]), _members([home for _, home in pairs])
        alike = {id(tensor) for tensor, _ in _lying_alike(pairs)}
        return [each for each in away if id(each.tensor) in alike and self._is_unheld(each, now, then)]

    def come_back(self, each: Rebound) -> None:
        """What the call has put there was copied to where the tensor lay."""
        _lay(each.tensor, each.home)
        self.returned.append(each.tensor)

    def _is_as_noted(self, each: Rebound) -> bool:
        tensor = each.tensor
        same = tensor._version == each.version and describe_tensor(tensor) == each.form
        return same and self._storages.token(tensor).origin[0] is NEW

    def _is_unheld(self, each: Rebound, now: Mapping[int, int], then: Mapping[int, int]) -> bool:
        """Whether nobody but such tensors holds the memory in which one lies, and that in which it lay."""
        old, new = each.home.untyped_storage(), each.tensor.untyped_storage()._cdata
        owners, references = _of_noted()
        if _held(old) != (owners + then[old._cdata] - 1, references):
            return False
        owners, references = _of_tensor()
        number = self._storages.token(each.tensor).origin[1]
        if number in self._remembered:
            owners, references = self._remembered[number] + 1, references + 1
        wanted = owners + now[new] - 1, references + self._tables(number)
        return _held(each.tensor.untyped_storage()) == wanted

    def put_back(self) -> None:
        """The call begins again: all lie where they lay."""
        for each in self.away():
            _lay(each.tensor, each.home)


class Homes:
    """Where tensors lie before a plain call that gives them other memory: recordings find them there alone.

    After the call their values are copied there, and they lie there again, if nobody can tell.
    """

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        with unseen_functions():
            self._homes = [(tensor, tensor.data, describe_tensor(tensor)) for tensor in tensors]

    def bring_back(self) -> None:
        """The call is over, and its frames are gone."""
        with unseen_functions(), torch.no_grad():
            homes = [(tensor, home) for tensor, home, form in self._homes if describe_tensor(tensor) == form]
            away = [(tensor, home) for tensor, home in homes if tensor.data_ptr() != home.data_ptr()]
            self._homes.clear()
            now, then = _members([tensor for tensor, _ in away]), _members([home for _, home in away])
            for tensor, home in [each for each in _lying_alike(away) if _are_held(each, now, then)]:
                home.copy_(tensor.data)
                _lay(tensor, home)


Pairs = list[tuple[torch.Tensor, torch.Tensor]]
"""Tensors, each with another one over the memory that it had."""


def _members(tensors: Iterable[torch.Tensor]) -> Counter[int]:
    """How many of some tensors lie in one memory, by its handle."""
    return Counter([each.untyped_storage()._cdata for each in tensors])


def _lying_alike(pairs: Pairs) -> Pairs:
    """Those that lie in memory like that which they had, in the same place, with others that fill it."""
    together: dict[tuple[int, int], Pairs] = {}
    for tensor, home in pairs:
        old, new = home.untyped_storage(), tensor.untyped_storage()
        same = old.nbytes() == new.nbytes() and tensor.storage_offset() == home.storage_offset()
        if same and _is_free(old) and _is_free(new):
            together.setdefault((old._cdata, new._cdata), []).append((tensor, home))
    now, then = _members([tensor for tensor, _ in pairs]), _members([home for _, home in pairs])
    whole = [key for key, found in together.items() if len(found) == then[key[0]] == now[key[1]]]
    filled = [key for key in whole if _fill([tensor for tensor, _ in together[key]])]
    return [pair for key in filled for pair in together[key]]


def _fill(tensors: list[torch.Tensor]) -> bool:
    """Whether tensors in one memory have all of it, so that nothing else can be seen there."""
    filled = 0
    for (start, end), size in sorted([(extent(each), each.nbytes) for each in tensors]):
        if start > filled or end - start != size:
            return False
        filled = max(filled, end)
    return filled == tensors[0].untyped_storage().nbytes()


def _are_held(
    pair: tuple[torch.Tensor, torch.Tensor], now: Mapping[int, int], then: Mapping[int, int]
) -> bool:
    """Whether nobody but such tensors holds the memory in which one lies, and that in which it lay."""
    owners, references = _of_tensor()
    for each, members in zip(pair, (now, then), strict=True):
        count = members[each.untyped_storage()._cdata]
        if _held(each.untyped_storage()) != (owners + count - 1, references):
            return False
    return True


def are_alone(tensors: Collection[torch.Tensor]) -> bool:
    """Whether nobody holds the memory of some tensors but these."""
    with unseen_functions():
        members = _members(tensors)
        return all([_are_held((each, each), members, members) for each in tensors])


def _is_free(storage: torch.UntypedStorage) -> bool:
    """Whether PyTorch has made a memory, for this process alone: arrays and files lie in other memory."""
    return storage.resizable() and not (storage.device.type == "cpu" and storage.is_shared())


def _lay(tensor: torch.Tensor, memory: torch.Tensor) -> None:
    with unseen_functions():
        tensor.data = memory


def _held(storage: torch.UntypedStorage) -> tuple[int, int]:
    """References to a memory, and to what stands for it in Python."""
    return storage_owners(storage), sys.getrefcount(storage)


@cache
def _of_tensor() -> tuple[int, int]:
    """The same for a tensor that nobody else knows."""
    tensor = torch.zeros(1)
    return _held(tensor.untyped_storage())


@cache
def _of_noted() -> tuple[int, int]:
    """The same for one whose memory a table of storages knows."""
    tensor = torch.zeros(1)
    noted = {0: tensor.untyped_storage()}
    storage = tensor.untyped_storage()
    found = _held(storage)
    noted.clear()
    return found
