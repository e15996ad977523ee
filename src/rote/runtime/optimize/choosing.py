"""Which alternatives stand for the operations of a stretch: by trying them in the graph that they run in.

Versions of the whole stretch are captured, and each is timed by whole replays against the one before it
(:mod:`..recording.contest`). The first version has for each operation the first alternative that passes the
gate. If it is slower as a whole, it goes as a whole. Then come versions that differ from the best one so far
in operations of one kind, those with most operations first. Each costs a run of the stretch (its gate) and a
capture, in one call: for a policy of 6,000 operations that call takes seconds. So there are none where nobody
has asked for alternatives (``numerics="exact"``), and where nothing is timed (``keep=True``).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..compiling import KernelSource
from ..fusion import DeviceKernels, KernelRequest, NoKernelError
from ..operators import short
from ..program import Operation
from ..recording import AlternativeUse, AlternativeUses, ExactStretch, Node, Numerics
from .alternatives import ALTERNATIVES, Alternative
from .effects import LeftAloneError
from .forks import Joint, joint_of
from .fusing import Composition
from .gate import Gate, kind_of

MOST_VERSIONS = 16
"""Versions of a stretch that are timed."""
MOST_IN_VAIN = 4
"""Versions in a row that were not faster; where kinds with most operations gain nothing, others gain less."""


@dataclass(frozen=True)
class _Version:
    """What is to be tried next.

    Attributes:
        indices: Operations of one kind.
        alternative: What is to stand for them; None for their operator.
    """

    indices: tuple[int, ...]
    alternative: Alternative | None


@dataclass(frozen=True)
class _Used:
    """An alternative that stands for an operation."""

    alternative: Alternative
    use: AlternativeUse


class Choosing:
    """A stretch whose operations may be calculated in other ways, once its exact tier is decided.

    Args:
        base: What it is captured from before.
        numerics: What alternatives may do to bits.
    """

    def __init__(self, node: Node, base: Composition, numerics: Numerics, *, on_host: bool) -> None:
        self.node = node
        self.base = base
        self.numerics = numerics
        self._on_host = on_host
        self._requests: Sequence[KernelRequest] = ()
        self._described: dict[tuple[int, str], Any] = {}
        self._prepared: AlternativeUses | None = None
        self._joins = True
        self.joint: tuple[Joint, ...] = ()
        self._best: dict[int, _Used] = {}
        self._first: dict[int, _Used] | None = None  # None until there was a gate for all
        self._fitting: Mapping[int, Sequence[Alternative]] = {}
        self._refused: dict[int, dict[str, str]] = {}
        self._next: dict[int, _Used] = {}
        self._left: list[_Version] = []
        self._tried: tuple[ExactStretch, dict[int, _Used]] | None = None
        self._versions = self._in_vain = 0

    @property
    def offered(self) -> bool:
        """Whether there are alternatives for any of its operations."""
        return any([self._offered(self._operation(index)) for index in self._indices()])

    @property
    def refines(self) -> bool:
        """Whether its first version is there, so that further ones differ in operations of one kind."""
        return self._first is not None

    @property
    def idle(self) -> bool:
        """Whether nothing can be done for it but wait."""
        return not all([each.compiled for each in self._requests])

    def _indices(self) -> Iterable[int]:
        return (index for run in self.base.short.runs for index in run.operations)

    def _operation(self, index: int) -> Operation:
        return self.base.short.effects.operations[index]

    # ------------------------------------------------------------------ what is tried

    def wanted(self, index: int, operation: Operation) -> Sequence[Alternative]:
        """The alternatives of an operation that the next version may have."""
        if self._first is None:
            return self._offered(operation)
        version = self._left[0]
        return (version.alternative,) if version.alternative is not None and index in version.indices else ()

    def _offered(self, operation: Operation) -> list[Alternative]:
        return ALTERNATIVES.of(operation.name, numerics=self.numerics, on_host=self._on_host)

    def needs_gate(self) -> bool:
        """Whether the stretch has to be run for the next version."""
        return self._first is None or self._left[0].alternative is not None

    def wait_for(self, requests: Sequence[KernelRequest]) -> None:
        """Kernels of alternatives are being compiled."""
        self._requests = tuple(requests)

    def uses(self, gate: Gate) -> AlternativeUses | None:
        """What stands for which operation in the next version; None if that did not pass the gate.

        Raises:
            LeftAloneError: No alternative passes.
        """
        self._requests = tuple(gate.loaded)  # nobody else holds their kernels until they are captured
        for index, why in gate.refused.items():
            self._refused.setdefault(index, {}).update(why)
        for index, found in gate.described.items():
            self._described[index, gate.passed[index].name] = found
        found = {index: _Used(each, gate.uses[index]) for index, each in gate.passed.items()}
        if self._first is None:
            why = next(iter(gate.reasons), "none fits")
            if not (found or gate.reasons) and self.numerics is Numerics.EXACT:  # nobody has asked for any
                self._first = {}
                return None
            if not found:
                raise LeftAloneError(f"no other way to calculate its operations is used: {why}")
            self._next, self._fitting = found, gate.fitting
            return self._told("")
        version = self._left.pop(0)
        if version.alternative is None:
            self._next = {index: use for index, use in self._best.items() if index not in version.indices}
            return self._told(f"{self._named(version)} as they are")
        if found.keys() != set(version.indices):
            return None
        self._next = {**self._best, **found}
        return self._told(f"{self._named(version)} as {version.alternative.name}")

    def join(self, uses: AlternativeUses, device: DeviceKernels) -> bool:
        """Find what of the version that :meth:`uses` has told is calculated together, and have it compiled.

        Returns:
            Whether the kernels are there; otherwise :meth:`take_prepared` gives it again once they are.

        Raises:
            NoKernelError: A kernel that was there once cannot be compiled.
        """
        now, base = self.alternatives, self.base
        joint = [each for each in joint_of(base.schedule, base.short, now) if self._joins and self._fit(each)]
        joined = {index for each in joint for index in each}
        alone = [(index,) for index, each in now.items() if each.together is not None and index not in joined]
        requests = [
            KernelRequest(device, [source for each in several for source in self._sources(each)], ())
            for several in (alone, joint)
        ]
        self._requests = (*self._requests, *requests)
        if self.idle:
            self._prepared = uses
            return False
        requests[0].prove()
        if not _is_there(requests[1]):  # each by itself, then
            self._joins = False
            return self.join(uses, device)
        self.joint = tuple(joint)
        return True

    def take_prepared(self) -> AlternativeUses | None:
        """The version that has passed, and whose kernels were being compiled, if there is one."""
        found, self._prepared = self._prepared, None
        return found

    def _fit(self, joint: Joint) -> bool:
        together = self.alternatives[joint[0]].together
        return together is not None and together.fits(self._known(joint))

    def _sources(self, joint: Joint) -> Sequence[KernelSource]:
        together = self.alternatives[joint[0]].together
        return together.kernels(self._known(joint)) if together is not None else ()

    def _known(self, joint: Joint) -> list[Any]:
        return [self._described[index, self.alternatives[index].name] for index in joint]

    def _named(self, version: _Version) -> str:
        return f"{len(version.indices)} {short(self._operation(version.indices[0]).name)}"

    def _told(self, trial: str) -> AlternativeUses:
        replaced = {index: each.use for index, each in self._next.items()}
        return AlternativeUses(replaced, dict(self._refused), self.numerics, trial)

    @property
    def alternatives(self) -> dict[int, Alternative]:
        """Those of the version that :meth:`uses` has told."""
        return {index: each.alternative for index, each in self._next.items()}

    def captured(self, stretch: ExactStretch) -> None:
        """The version is there, and replays use it until it is decided."""
        self._tried = (stretch, self._next)
        self._first = self._next if self._first is None else self._first
        self._versions += 1

    # ------------------------------------------------------------------ what comes of it

    def decided(self, settled: Sequence[ExactStretch]) -> None:
        """Learn whether the last version stays, and what to try then."""
        if self._tried is None:
            return
        (stretch, used), self._tried = self._tried, None
        stays = any([each is stretch for each in settled])
        self._in_vain = 0 if stays else self._in_vain + 1
        if stays:
            self._best = used
        if self._versions == 1 and self._first is not None and self.numerics is not Numerics.EXACT:
            self._left = self._versions_of(self._first, stays=stays)
        self._left = [each for each in self._left if self._differs(each)]

    def _differs(self, version: _Version) -> bool:
        now = [self._best.get(index) for index in version.indices]
        return any(
            [(each.alternative if each is not None else None) is not version.alternative for each in now]
        )

    def _versions_of(self, first: Mapping[int, _Used], *, stays: bool) -> list[_Version]:
        """Versions beside the first one, kinds with most operations first."""
        kinds: dict[Hashable, list[int]] = {}
        for index in first:
            kinds.setdefault(kind_of(self._operation(index)), []).append(index)
        found: list[_Version] = []
        for indices in sorted(kinds.values(), key=len, reverse=True):
            offered: list[Alternative | None] = [*self._fitting[indices[0]]]
            if len(kinds) == 1 and not stays:  # what has lost was this alone
                offered.remove(first[indices[0]].alternative)
            elif stays and len(kinds) > 1:
                offered.append(None)
            refused = {name for index in indices for name in self._refused.get(index, ())}
            found += [
                _Version(tuple(indices), each) for each in offered if each is None or each.name not in refused
            ]
        return found

    def has_next(self, *, allowed: bool) -> bool:
        """Whether another version is to be tried."""
        more = self._versions < MOST_VERSIONS and self._in_vain < MOST_IN_VAIN
        return self._first is None or (allowed and bool(self._left) and more)


def _is_there(request: KernelRequest) -> bool:
    """Whether kernels are compiled."""
    try:
        return request.prove()
    except NoKernelError:
        return False
