"""The kernels of one stretch, from its operations to where they can be captured.

Kernels are written from what is known, and compiled; meanwhile the operations in them are compiled alone, to
be proved. If one of those is refused, kernels are written without it, and so on until nothing is refused: the
refusals are known from then on, to all stretches of the process.

Where the user allows that, the same happens once more with operations that are probed, not proved. Each of
these has to give the operator's bits in its place as well, on the operands of the call at hand: the stretch
runs once as it is, and the kernel of the operation alone is held against it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..backends.protocol import ALIGNMENT, LoadedKernel
from ..compiling import KernelSource
from ..fusion import (
    UNPROVED,
    Body,
    DeviceKernels,
    Fusible,
    KernelRequest,
    NoKernelError,
    OperationProof,
    Written,
)
from ..operators import tensors_of
from ..program import Origin, Token
from ..recording import FusedOperations, Node
from .anew import Place
from .effects import LeftAloneError
from .regions import Schedule, schedule, targets_of
from .running import RanOperation
from .shortening import ShortStretch
from .versions import Whole


@dataclass(frozen=True)
class Composition:
    """What a stretch is captured from.

    Attributes:
        probed: The operations that are not proved.
    """

    short: ShortStretch
    schedule: Schedule
    kernels: Mapping[Written, LoadedKernel]
    fused: FusedOperations | None
    probed: frozenset[int]

    @classmethod
    def plain(cls, short: ShortStretch) -> Composition:
        """Each operation by itself."""
        return cls(short, Schedule.plain(short), {}, None, frozenset())

    @property
    def after(self) -> int:
        """How many operations are left, launches and copies included."""
        return self.schedule.after(self.short)


class Fusing:
    """Kernels of one stretch, on their way.

    Args:
        outside: The memory that is there besides what the stretch makes.

    Attributes:
        base: What it is captured from without them.
        probed: Operations may be probed.
    """

    def __init__(
        self,
        node: Node,
        base: Composition,
        outside: Mapping[Origin, Place],
        device: DeviceKernels,
        *,
        probed: bool = False,
    ) -> None:
        self.node = node
        self.base = base
        self.probed = probed
        self.short = base.short
        self._device = device
        self.plan(outside)

    def plan(self, outside: Mapping[Origin, Place]) -> None:
        """Write the kernels, from what is known of operations."""
        self._schedule = schedule(self.short, self._refusal, _whole_in(outside), on_host=self._device.on_host)
        written: dict[tuple[Body, tuple[bool, ...]], KernelSource] = {}
        self._sources: dict[Written, KernelSource] = {}
        for kernel in self._schedule.kernels:
            key = (kernel.body, tuple(self._aligned(kernel, outside)))
            if key not in written:
                written[key] = self._device.source(*key)
            self._sources[kernel] = written[key]
        calculated = self._schedule.calculated if self.probed else ()
        probes = {each.index: self._device.probe(each) for each in calculated}
        self._probes = {index: proof for index, proof in probes.items() if proof is not None}
        self.refuses = False
        alone = [self._device.source_of(proof) for proof in self._probes.values()]
        sources = [*self._sources.values(), *alone]
        self._request = KernelRequest(self._device, sources, self._schedule.calculated)

    def _refusal(self, each: Fusible) -> str | None:
        return self._device.refusal(each, probed=self.probed)

    def _aligned(self, kernel: Written, outside: Mapping[Origin, Place]) -> Iterator[bool]:
        short, made = self.short, self.short.effects.made
        stored = [token.origin for token in targets_of(kernel, short)]
        for origin in [*[origin for origin, _ in kernel.reads], *stored]:
            yield (origin in made and not short.is_shown(origin)) or _is_aligned(outside.get(origin))

    @property
    def saves(self) -> bool:
        """Whether less is launched than now."""
        least = self.base.after if self.probed else min(self.short.before, self.short.after)
        return self._schedule.after(self.short) < least

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
            self.plan(outside)
            return False
        return True

    @property
    def has_unproved(self) -> bool:
        """Whether operations run alone only because nothing proves that a kernel gives their bits."""
        return any([why.endswith(UNPROVED) for why in self._schedule.refused.values()])

    @property
    def has_probes(self) -> bool:
        """Whether operations in the kernels are not proved."""
        return bool(self._probes)

    def look(self, ran: RanOperation) -> None:
        """Hold the kernel of a probed operation against what the operation has given in its place.

        Raises:
            LeftAloneError: There is no such kernel.
        """
        proof = self._probes.get(ran.number)
        if proof is None:
            return
        if not self._holds(proof, tensors_of(tuple(ran.args), dict(ran.kwargs)), ran.result):
            self._device.decide(proof, "a kernel of it gives other bits for operands of a call")
            self.refuses = True

    def _holds(self, proof: OperationProof, operands: Sequence[Any], result: Any) -> bool:
        return self._device.holds_for(proof, self._kernel(self._device.source_of(proof)), operands, result)

    def composition(self) -> Composition:
        """What the stretch is captured from, once :meth:`advance` has said that its kernels are there.

        Raises:
            LeftAloneError: One of them is not, or there is nothing to gain.
        """
        found = self._schedule
        if not found.kernels:
            raise LeftAloneError("no kernel may calculate any of its operations")
        if self.probed and not (self._probes and self.saves):
            known = set(self.base.schedule.refused.values())
            why = [each for each in found.refused.values() if each not in known]
            told = f": {why[0]}" if why else ""
            raise LeftAloneError(f"nothing more is equal as far as is probed{told}")
        if not self.saves:
            raise LeftAloneError("with kernels it would launch as much as without")
        kernels = {kernel: self._kernel(source) for kernel, source in self._sources.items()}
        probed = frozenset(self._probes)
        distinct, operations = len(set(self._sources.values())), len(found.calculated)
        fused = FusedOperations(len(found.kernels), distinct, operations, found.refused, len(probed))
        return Composition(self.short, found, kernels, fused, probed)

    def _kernel(self, source: KernelSource) -> LoadedKernel:
        try:
            return self._request.kernel(source)
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
