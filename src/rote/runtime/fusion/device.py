"""The kernels of one device in this process: which operations are proved, and what is compiled and loaded.

A process compiles each body once and proves each signature once. Nothing here waits: a :class:`Request` says
whether everything is compiled, and proves in slices, so that no call takes long for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch

from ...base import RoteError
from ..backends.protocol import Backend, LoadedKernel
from ..compiling import COMPILERS, Binary, Job, KernelSource
from .body import Body
from .cpp import cpp_source
from .proofs import Probe, Signature, is_equal, probe_of
from .rules import NoKernelError
from .triton import triton_source
from .writing import Fusible

HOST_SLICE, GPU_SLICE = 1 << 19, 1 << 29
"""Elements that are tried between two calls: some milliseconds."""


class DeviceKernels:
    """The kernels of one device.

    Args:
        backend: The device.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._verdicts: dict[Signature, str | None] = {}
        self._loaded: dict[KernelSource, LoadedKernel] = {}

    @property
    def on_host(self) -> bool:
        """The device is the host."""
        return self._backend.device.type == "cpu"

    def refusal(self, each: Fusible) -> str | None:
        """Why no kernel may calculate an operation; None as long as nothing speaks against it."""
        signature = Signature.of(each)
        try:
            each.alone()  # it may also be its layout that speaks against it
            if signature not in self._verdicts:
                probe_of(each)
        except NoKernelError as why:
            return str(why)
        return self._verdicts.get(signature)

    def source(self, body: Body, aligned: Sequence[bool]) -> KernelSource:
        """The text of a kernel for this device."""
        if self.on_host:
            return cpp_source(body, aligned)
        major, minor = torch.cuda.get_device_capability(self._backend.device)
        return triton_source(body, aligned, 10 * major + minor)

    def probes(self, calculated: Iterable[Fusible]) -> list[Probe]:
        """What is to be proved before kernels may calculate operations."""
        found: dict[Signature, Probe] = {}
        for each in calculated:
            signature = Signature.of(each)
            if signature not in self._verdicts and signature not in found:
                probe = probe_of(each)
                if probe is None:
                    self._verdicts[signature] = None
                else:
                    found[signature] = probe
        return list(found.values())

    def kernel(self, source: KernelSource) -> LoadedKernel:
        """A kernel that was asked for, and is compiled.

        Raises:
            NoKernelError: It is not compiled, or cannot be loaded.
        """
        found = self._loaded.get(source)
        if found is None:
            raise NoKernelError("a kernel is not compiled")
        return found

    # ------------------------------------------------------------------ what a request does

    def is_loaded(self, source: KernelSource) -> bool:
        """Whether a kernel is compiled and loaded."""
        return source in self._loaded

    def load(self, binary: Binary) -> None:
        """Load a compiled kernel.

        Raises:
            NoKernelError: It cannot be loaded.
        """
        try:
            self._loaded[binary.source] = self._backend.load(binary)
        except RoteError as error:
            raise NoKernelError(str(error)) from error

    def is_known(self, probe: Probe) -> bool:
        """Whether it is decided whether kernels may calculate an operation."""
        return probe.signature in self._verdicts

    def is_refused(self, probe: Probe) -> bool:
        """Whether kernels may not calculate an operation."""
        return self._verdicts.get(probe.signature) is not None

    def decide(self, probe: Probe, why: str | None) -> None:
        """Kernels may calculate an operation, or may not."""
        self._verdicts[probe.signature] = why

    def holds(self, probe: Probe, source: KernelSource, trial: int) -> torch.Tensor:
        """One trial: whether kernel and operator give the same, as a tensor of one truth value."""
        device = self._backend.device
        tensors = probe.elements(trial, device)
        expected = probe.called(tensors)
        found = torch.empty_like(expected)
        self.kernel(source)([*probe.given(tensors), found], probe.written.reals, probe.written.integers)
        return is_equal(expected, found)


class Request:
    """Kernels that somebody waits for, and proofs of the operations that they calculate.

    Args:
        device: The kernels of the device.
        sources: The kernels.
        calculated: The operations.
    """

    def __init__(
        self, device: DeviceKernels, sources: Iterable[KernelSource], calculated: Iterable[Fusible]
    ) -> None:
        self._device = device
        self._probes = [
            (probe, device.source(probe.written.body, _aligned(probe))) for probe in device.probes(calculated)
        ]
        needed = dict.fromkeys([*sources, *[source for _, source in self._probes]])
        missing = [each for each in needed if not device.is_loaded(each)]
        self._job: Job | None = COMPILERS.get().submit(missing) if missing else None
        self._trial = 0
        self._held: list[torch.Tensor] = []
        self._refuses = False

    @property
    def compiled(self) -> bool:
        """Whether nothing of it is being compiled any more."""
        return self._job is None or self._job.done

    @property
    def refuses(self) -> bool:
        """Whether an operation that was asked about may not be calculated."""
        return self._refuses

    def prove(self) -> bool:
        """Load what is compiled, and prove a slice of what is not proved; whether all is.

        Raises:
            NoKernelError: A kernel was not compiled, or cannot be loaded.
        """
        self._load()
        left = HOST_SLICE if self._device.on_host else GPU_SLICE
        while self._probes and left > 0:
            probe, source = self._probes[0]
            if not self._device.is_known(probe):
                left -= probe.count * self._try(probe, source, max(1, left // probe.count))
            if self._device.is_known(probe):
                self._refuses |= self._device.is_refused(probe)
                self._probes.pop(0)
                self._trial, self._held = 0, []
        return not self._probes

    def _load(self) -> None:
        if self._job is None:
            return
        probes = {source for _, source in self._probes}
        failed: dict[KernelSource, str] = {}
        for source, outcome in self._job.results().items():
            if isinstance(outcome, Binary):
                self._device.load(outcome)
            elif source not in probes:
                raise NoKernelError(outcome.why)
            else:
                failed[source] = outcome.why
        self._job = None
        for probe, source in self._probes:
            if source in failed:
                self._device.decide(probe, failed[source])

    def _try(self, probe: Probe, source: KernelSource, most: int) -> int:
        """Some trials of one proof; how many."""
        first, last = self._trial, min(self._trial + most, probe.trials)
        try:
            found = [self._device.holds(probe, source, trial) for trial in range(first, last)]
            self._held.append(torch.stack(found).all())
            self._trial = last
            if last == probe.trials:
                equal = bool(torch.stack(self._held).all())
                self._device.decide(probe, None if equal else "a kernel of it gives other bits")
        except Exception as error:  # the operator may not take such operands
            self._device.decide(probe, f"it could not be tried: {type(error).__name__}")
        return last - first


def _aligned(probe: Probe) -> list[bool]:
    return [True] * (len(probe.written.body.reads) + 1)


class KernelsOfProcess:
    """The kernels of each device, made when first asked for."""

    def __init__(self, make: Callable[[Backend], DeviceKernels] = DeviceKernels) -> None:
        self._make = make
        self._devices: dict[torch.device, DeviceKernels] = {}

    def of(self, backend: Backend) -> DeviceKernels:
        """The kernels of a device."""
        found = self._devices.get(backend.device)
        if found is None:
            found = self._devices[backend.device] = self._make(backend)
        return found


KERNELS = KernelsOfProcess()
"""The one place where kernels are kept: what is proved of a device holds for the whole process."""
