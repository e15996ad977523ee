"""Tensors made outside whose memory a call replaces: ``parameter.data = tau * parameter.data + ...``.

Eager gives such a tensor the memory of what is assigned, and leaves the memory that it had to whoever else
holds that. Where nobody holds either of the two, nobody can tell where it lies: at the end of a traced call
the values are copied to where the tensor lay, and it lies there again. So calls find it in one place, and the
copy is an operation like any other, which replays do as well. The counter of versions is not touched, as in
eager. Before a replay it is asked whether the memory is still in nobody else's hands.

To copy where the tensor is assigned does not work: calls often hold what was there until they return
(``old = parameter.data``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import torch

from ....base import Site, user_site
from ...arguments import describe_tensor
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
        return [each for each in self.away() if self._can_return(each)]

    def come_back(self, each: Rebound) -> None:
        """What the call has put there was copied to where the tensor lay."""
        _lay(each.tensor, each.home)
        self.returned.append(each.tensor)

    def _can_return(self, each: Rebound) -> bool:
        tensor, home = each.tensor, each.home
        if tensor._version != each.version or describe_tensor(tensor) != each.form:
            return False
        origin = self._storages.token(tensor).origin
        if origin[0] is not NEW:
            return False
        old = home.untyped_storage()
        if not _is_whole(tensor, home) or _held(old) != _of_noted():
            return False
        owners, references = _of_tensor()
        if origin[1] in self._remembered:
            owners, references = self._remembered[origin[1]] + 1, references + 1
        return _held(tensor.untyped_storage()) == (owners, references + self._tables(origin[1]))

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
            while self._homes:
                tensor, home, form = self._homes.pop()
                if tensor.data_ptr() == home.data_ptr() or describe_tensor(tensor) != form:
                    continue
                if _is_whole(tensor, home) and _is_alone(tensor) and _is_alone(home):
                    home.copy_(tensor.data)
                    _lay(tensor, home)


def _is_whole(tensor: torch.Tensor, home: torch.Tensor) -> bool:
    """Whether a tensor may lie in memory that looks like its own: nothing else does, in either."""
    old, new = home.untyped_storage(), tensor.untyped_storage()
    return old.nbytes() == new.nbytes() == tensor.nbytes and _is_free(old) and _is_free(new)


def are_alone(tensors: Collection[torch.Tensor]) -> bool:
    """Whether nobody holds the memory of some tensors but these."""
    with unseen_functions():
        return all(map(_is_alone, tensors))


def _is_alone(tensor: torch.Tensor) -> bool:
    return _held(tensor.untyped_storage()) == _of_tensor()


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
