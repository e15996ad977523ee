"""Whether any tensor or container under guard has changed, in two or three reads.

What a guard has to know of a tensor can change without a trace: ``.data = ...`` leaves every dict, every
identity and every version counter as it was. So each tensor has to be looked at, at every call. Asked by name
on the host of an H200, a dereferenced weak reference takes 15 ns, an address 63, a comparison of the rest in
C++ 67: 150 us for a thousand tensors. Calls that take many of them do not help: the one by which PyTorch
compares the addresses of its own graphs takes 64 ns for each.

But a tensor is a handful of words in memory: an object that points to an implementation, which points to a
storage, which points to the data; between them sizes, strides, type and flags. numpy gathers words from
anywhere at one nanosecond each, and a comparison of the bytes says whether anything is new. So the words are
read where they lie, in the order in which each says that the next ones are still there: the object (alive, or
the weak reference of the guard would have told), its implementation, then autograd's flags. With the
implementation its storage is read. That may be another one by now, but not gone: a weak reference keeps the
words of a storage that has died, without its memory. (One to the implementation would keep it from being
exchanged.)

Above a bare replay, on the host of an H200, a call with 8, 108 and 1,008 parameters under guard takes 5, 10
and 34 us with words, and 43, 72 and 219 without (``benchmarks/results/nvidia-h200/2026-11-22*.json``).
``benchmarks/words.py`` measures what each use of them takes off a call; uses that took nothing off are gone.

Nothing about where the words lie is taken for granted (:mod:`.layout`): samples find them, every kind of
change has to show, and of each tensor the words have to say what its public attributes say; otherwise it is
asked by name. And where a word differs, the plain guard decides.

Containers have words that say enough of them: a dict numbers its states (up to Python 3.12), and one that is
to be empty has its length. The guard keeps them alive, so they are read with the objects.

What does not work: the versions of tensors (``.data`` and ``requires_grad_`` leave them), weak references to
storages (whoever swaps weights keeps the other ones). Without the lock of the interpreter none of it is safe:
another thread may free what is being read. numpy gives the lock away while ``take`` reads, and while an index
of more than 500 words does; so words are read by indices, and in portions (:func:`portions`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ..pytorch import has_memory, raw_keys

BYTES = 8


class _Everything:
    """All memory as an array of words, without the first one. Only words known to be there are read."""

    __array_interface__: ClassVar = {
        "data": (BYTES, True),
        "typestr": "<u8",
        "shape": (1 << 45,),
        "version": 3,
    }


EVERYTHING: Any = numpy.asarray(_Everything())
"""Do not print it: that reads its ends, where no memory is mapped."""


def places(address: int, words: Iterable[int]) -> list[int]:
    """Indices for :func:`gather`: some words of what lies at an address."""
    first = address // BYTES - 1
    return [first + word for word in words]


PORTION = 500
"""Words up to which numpy reads an index without giving the lock of the interpreter away."""

Stage = tuple[Callable[[Any], Any], Any, bytes]
"""How to read some words, where they are, and what they were."""


def stage(indices: Sequence[int]) -> Stage:
    """Read words from anywhere, about a nanosecond each. Each has to be in memory that is there.

    Whether one is what it was: ``read(where).tobytes() == were``.
    """
    where = numpy.array(indices, dtype=numpy.intp)
    return EVERYTHING.__getitem__, where, _read(where).tobytes()


def _read(where: Any) -> Any:
    if len(where) <= PORTION:
        return EVERYTHING[where]
    parts = range(0, len(where), PORTION)
    return numpy.concatenate([EVERYTHING[where[part : part + PORTION]] for part in parts])


def portions(whole: Stage) -> list[Stage]:
    """Split a stage so that numpy reads each part without releasing the lock; none if it has no words."""
    read_words, where, were = whole
    if len(were) != len(where) * BYTES:
        return [NEVER]
    parts = range(0, len(where), PORTION)
    return [
        (read_words, where[part : part + PORTION], were[part * BYTES : (part + PORTION) * BYTES])
        for part in parts
    ]


def joined(one: Stage, other: Stage) -> Stage:
    """Two stages in one, with the words that they have."""
    where = numpy.concatenate((one[1], other[1]))
    return EVERYTHING.__getitem__, where, one[2] + other[2]


def words_at(indices: Sequence[int]) -> list[int]:
    """The words themselves."""
    return _read(numpy.array(indices, dtype=numpy.intp)).tolist()


def expecting(indices: Sequence[int], words: Sequence[int]) -> Stage:
    """A stage that matches if these words lie at the indices."""
    where = numpy.array(indices, dtype=numpy.intp)
    return EVERYTHING.__getitem__, where, numpy.array(words, dtype=numpy.uint64).tobytes()


NOTHING: Stage = stage([])
"""A stage without words."""

NEVER: Stage = (EVERYTHING.__getitem__, numpy.array([], dtype=numpy.intp), b"never")
"""A stage that never matches."""


def read(address: int, length: int) -> list[int]:
    """The words of what lies at an address."""
    first = address // BYTES - 1
    return EVERYTHING[first : first + length].tolist()


def word(address: int, place: int) -> int:
    """One word of what lies at an address."""
    return read(address, place + 1)[place]


class Layout(NamedTuple):
    """Where the words lie that say what a tensor is.

    Attributes:
        size: Words of an implementation.
        body: In the object, the address of the implementation.
        storage: In the implementation, the address of the storage.
        autograd: In the implementation, the address of what autograd keeps, if anything.
        sizes: The first size; as many may follow as lie before the first stride.
        strides: The first stride.
        offset: Where the tensor begins in the storage.
        kinds: Type, flags and dispatch keys.
        memory: In the storage, the address of its memory.
        flags: In what autograd keeps, whether a gradient is required.
    """

    size: int
    body: int
    storage: int
    autograd: int
    dimensions: int
    sizes: int
    strides: int
    offset: int
    kinds: tuple[int, ...]
    memory: int
    flags: tuple[int, ...]

    def of_body(self, dimensions: int) -> list[int]:
        """The words to look at in an implementation."""
        sizes = range(self.sizes, self.sizes + dimensions)
        strides = range(self.strides, self.strides + dimensions)
        return [self.storage, self.autograd, self.dimensions, *sizes, *strides, self.offset, *self.kinds]

    def of_memory(self) -> range:
        """The words to look at in a storage: where its memory is, and how and by whom it is freed.

        Only the latter say that it has become copy-on-write.
        """
        return range(self.memory, self.memory + 3)


class Owners(NamedTuple):
    """Where the words lie that say who holds a tensor and its gradient.

    Attributes:
        gradient: In what autograd keeps of a tensor, the address of the gradient's implementation.
        hooks: In the object, the addresses of tables of hooks; zero while there never were any.
        body: In the implementation, the number of references to it.
        storage: In the storage, the number of references to it.
    """

    gradient: int
    hooks: tuple[int, ...]
    body: int
    storage: int


def is_readable(layout: Layout, tensor: torch.Tensor) -> bool:
    """Whether the words of a tensor say what its attributes say."""
    dimensions = tensor.dim()
    if not has_memory(tensor) or dimensions > layout.strides - layout.sizes:
        return False  # longer shapes lie elsewhere
    head = read(id(tensor), layout.body + 1)
    if head[1] != id(type(tensor)) or head[layout.body] != tensor._cdata:
        return False
    words, storage, keys = read(tensor._cdata, layout.size), tensor.untyped_storage(), raw_keys(tensor)
    return (
        words[layout.storage] == storage._cdata
        and words[layout.dimensions] == dimensions
        and words[layout.sizes : layout.sizes + dimensions] == list(tensor.shape)
        and words[layout.strides : layout.strides + dimensions] == list(tensor.stride())
        and words[layout.offset] == tensor.storage_offset()
        and any(words[place] == keys for place in layout.kinds)
        and word(storage._cdata, layout.memory) == storage.data_ptr()
    )


class NotedWords:
    """Words of memory as they are at this moment.

    The words of the first stage have to be there. If they are what they were, the next stage's are there,
    too.
    """

    def __init__(self, *stages: Sequence[int]) -> None:
        self.stages = tuple([stage(indices) for indices in stages])
        self._portions = tuple([part for each in self.stages for part in portions(each)])

    def same(self) -> bool:
        """Whether they are what they were."""
        for read_words, where, were in self._portions:  # noqa: SIM110
            if read_words(where).tobytes() != were:
                return False
        return True


class Words(NotedWords):
    """What some tensors are at this moment; they are not kept alive, and have to live whenever it is asked.

    They have to be readable (:func:`is_readable`); ``flags`` if it matters whether they require a gradient.
    """

    def __init__(self, layout: Layout, tensors: Sequence[torch.Tensor], *, flags: bool = True) -> None:
        objects: list[int] = []
        bodies: list[int] = []
        ends: list[int] = []
        self._storages: list[StorageWeakRef] = []
        for tensor in tensors:
            storage = tensor.untyped_storage()
            self._storages.append(StorageWeakRef(storage))
            objects += places(id(tensor), [1, layout.body])
            bodies += places(tensor._cdata, layout.of_body(tensor.dim()))
            bodies += places(storage._cdata, layout.of_memory())
            autograd = word(tensor._cdata, layout.autograd) if flags else 0
            ends += places(autograd, layout.flags) if autograd else []
        super().__init__(*([objects, bodies, ends] if ends else [objects, bodies]))


class WatchedWords:
    """Words that are read only while some tensors live; it does not keep them alive."""

    def __init__(self, noted: NotedWords, tensors: Iterable[torch.Tensor]) -> None:
        self._noted = noted
        died = self._died = list[object]()
        self._references = [weakref.ref(tensor, died.append) for tensor in tensors]

    def same(self) -> bool:
        """Whether all are there, and the words are what they were."""
        return not self._died and self._noted.same()
