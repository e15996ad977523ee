"""The kernels of one stretch, from its operations to where they can be captured.

Kernels are written from what is known, and compiled; meanwhile the operations in them are compiled alone, to
be proved. If one of those is refused, kernels are written without it, and so on until nothing is refused: the
refusals are known from then on, to all stretches of the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..backends.protocol import ALIGNMENT, LoadedKernel
from ..compiling import KernelSource
from ..fusion import Body, DeviceKernels, KernelRequest, NoKernelError, Written
from ..program import Origin, Token
from ..recording import Node
from .anew import Place
from .effects import LeftAloneError
from .regions import Schedule, schedule, targets_of
from .shortening import ShortStretch
from .stale import without_stale
from .versions import Whole


class Fusing:
    """Kernels of one stretch, on their way.

    Args:
        node: The stretch.
        short: What is left of it.
        outside: The memory that is there besides what the stretch makes.
        device: The kernels of the device.

    Attributes:
        node: The stretch.
        short: What is left of it; on a GPU with what is calculated again.
    """

    def __init__(
        self, node: Node, short: ShortStretch, outside: Mapping[Origin, Place], device: DeviceKernels
    ) -> None:
        self.node = node
        self.short = short if device.on_host else without_stale(short, device)
        self._device = device
        self._plan(outside)

    def _plan(self, outside: Mapping[Origin, Place]) -> None:
        self._schedule = schedule(
            self.short, self._device.refusal, _whole_in(outside), on_host=self._device.on_host
        )
        written: dict[tuple[Body, tuple[bool, ...]], KernelSource] = {}
        self._sources: dict[Written, KernelSource] = {}
        for kernel in self._schedule.kernels:
            key = (kernel.body, tuple(self._aligned(kernel, outside)))
            if key not in written:
                written[key] = self._device.source(*key)
            self._sources[kernel] = written[key]
        self._request = KernelRequest(self._device, self._sources.values(), self._schedule.calculated)

    def _aligned(self, kernel: Written, outside: Mapping[Origin, Place]) -> Iterator[bool]:
        short, made = self.short, self.short.effects.made
        stored = [token.origin for token in targets_of(kernel, short)]
        for origin in [*[origin for origin, _ in kernel.reads], *stored]:
            yield (origin in made and not short.is_shown(origin)) or _is_aligned(outside.get(origin))

    @property
    def saves(self) -> bool:
        """Whether less is launched than now."""
        short = self.short
        return self._schedule.after(short) < min(short.before, short.after)

    @property
    def idle(self) -> bool:
        """Whether nothing can be done for it but wait."""
        return not self._request.compiled

    def advance(self, outside: Mapping[Origin, Place]) -> bool:
        """Do some of what is to be done; whether the kernels can be captured.

        Raises:
            LeftAloneError: There will be no kernels.
        """
        if self.idle:
            return False
        try:
            if not self._request.prove():
                return False
        except NoKernelError as why:
            raise LeftAloneError(str(why)) from None
        if self._request.refuses:
            self._plan(outside)
            return False
        return True

    @property
    def schedule(self) -> Schedule:
        """What is captured."""
        return self._schedule

    @property
    def distinct(self) -> int:
        """How many kernels have a text of their own."""
        return len(set(self._sources.values()))

    def loaded(self) -> dict[Written, LoadedKernel]:
        """The kernels, once :meth:`advance` has said that they are there.

        Raises:
            LeftAloneError: One of them is not.
        """
        try:
            return {kernel: self._request.kernel(source) for kernel, source in self._sources.items()}
        except NoKernelError as why:
            raise LeftAloneError(str(why)) from None


def _whole_in(outside: Mapping[Origin, Place]) -> Whole:
    """Tells which tensors are all of a memory from outside that has no other name."""
    ends = 0
    named_twice = set[Origin]()
    before: Origin | None = None
    for begin, end, origin in sorted([(*_range_of(place), origin) for origin, place in outside.items()]):
        if begin < ends and before is not None:
            named_twice.update((before, origin))
        if end > ends:
            ends, before = end, origin

    def whole(token: Token) -> bool:
        place = outside.get(token.origin)
        if place is None or place.start or token.offset or token.origin in named_twice:
            return False
        count = 1
        for size in token.shape:
            count *= size
        return place.storage.nbytes() == count * token.dtype.itemsize

    return whole


def _range_of(place: Place) -> tuple[int, int]:
    begin = place.storage.data_ptr()
    return begin, begin + place.storage.nbytes()


def _is_aligned(place: Place | None) -> bool:
    return place is not None and (place.storage.data_ptr() + place.start) % ALIGNMENT == 0
