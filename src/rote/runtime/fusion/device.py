"""The kernels of one device in this process: which operations are proved or probed, and what is loaded.

A process compiles each body once and proves each signature once. Nothing here waits: a :class:`KernelRequest`
says whether everything is compiled, and proves in slices, so that no call takes long for it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from weakref import WeakValueDictionary

import torch

from ...base import RoteError
from ..arguments import read_switches
from ..backends.protocol import Backend, LoadedKernel
from ..compiling import COMPILERS, SHELVES, Binary, Job, KernelSource
from .body import Body
from .cpp import cpp_source
from .proofs import UNPROVED, OperationProof, Signature, is_equal, proof_of
from .rules import NoKernelError
from .triton import triton_source
from .writing import Fusible

HOST_SLICE, GPU_SLICE = 1 << 19, 1 << 28
"""Elements that are tried between two calls: some milliseconds."""
PROBES_AT_ONCE = 8
"""Trials between two calls of what is not proved: their elements are made on the host."""


@dataclass(frozen=True)
class _Form:
    """What is known of operations of one form.

    Attributes:
        why: Why no kernel may calculate them, whatever is tried; None if one may.
        signature: What has to be shown of them; None if there is nothing to show.
    """

    why: str | None = None
    signature: Signature | None = None


class DeviceKernels:
    """The kernels of one device."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._verdicts: dict[Signature, str | None] = {}
        self._forms: dict[Hashable, _Form] = {}
        self._loaded: WeakValueDictionary[KernelSource, LoadedKernel] = WeakValueDictionary()

    @property
    def on_host(self) -> bool:
        """The device is the host."""
        return self._backend.device.type == "cpu"

    def refusal(self, each: Fusible, *, probed: bool = False) -> str | None:
        """Why no kernel may calculate an operation; None as long as nothing speaks against it.

        Args:
            probed: It may be one of which nothing is proved.
        """
        form = self._form(each)
        if form.why is not None or form.signature is None:
            return form.why
        if form.signature.probed and not probed:
            return UNPROVED
        return self._verdicts.get(form.signature)

    def probe(self, each: Fusible) -> OperationProof | None:
        """What is tried of an operation of which nothing is proved; None if it is not one of those."""
        signature = self._form(each).signature
        return proof_of(each) if signature is not None and signature.probed else None

    def _form(self, each: Fusible) -> _Form:
        form = each.form
        if form not in self._forms:
            self._forms[form] = _look(each)
        return self._forms[form]

    def source(self, body: Body, aligned: Sequence[bool]) -> KernelSource:
        """The text of a kernel for this device."""
        if self.on_host:
            return cpp_source(body, aligned)
        major, minor = torch.cuda.get_device_capability(self._backend.device)
        return triton_source(body, aligned, 10 * major + minor)

    def proofs(self, calculated: Iterable[Fusible]) -> list[OperationProof]:
        """What is to be proved before kernels may calculate operations."""
        found: dict[Signature, OperationProof] = {}
        for each in calculated:
            signature = self._form(each).signature
            if signature is not None and signature not in self._verdicts and signature not in found:
                proof = proof_of(each)
                if proof is None or self.is_certified(proof):
                    self._verdicts[signature] = None
                else:
                    found[signature] = proof
        return list(found.values())

    # ------------------------------------------------------------------ what a request does

    def loaded(self, source: KernelSource) -> LoadedKernel | None:
        """A kernel, if it is compiled and loaded. It is unloaded when nobody holds it any more."""
        return self._loaded.get(source)

    def load(self, binary: Binary) -> LoadedKernel:
        """Load a compiled kernel.

        Raises:
            NoKernelError: It cannot be loaded.
        """
        try:
            found = self._loaded[binary.source] = self._backend.load(binary)
        except RoteError as error:
            raise NoKernelError(str(error)) from error
        return found

    def is_known(self, proof: OperationProof) -> bool:
        """Whether it is decided whether kernels may calculate an operation."""
        return proof.signature in self._verdicts

    def is_refused(self, proof: OperationProof) -> bool:
        """Whether kernels may not calculate an operation."""
        return self._verdicts.get(proof.signature) is not None

    def decide(self, proof: OperationProof, why: str | None) -> None:
        """Kernels may calculate an operation, or may not."""
        self._verdicts[proof.signature] = why

    def is_certified(self, proof: OperationProof) -> bool:
        """Whether an earlier process has proved it, here and with the same tools."""
        return SHELVES.certifies(self.source_of(proof), self._about(proof))

    def certify(self, proof: OperationProof) -> None:
        """It is proved by trials; later processes need not do that again."""
        SHELVES.certify(self.source_of(proof), self._about(proof))

    def source_of(self, proof: OperationProof) -> KernelSource:
        """The text of the kernel of a proof."""
        return self.source(proof.written.body, [True] * (len(proof.written.body.reads) + 1))

    def _about(self, proof: OperationProof) -> str:
        """What PyTorch's side of a proof depends on, besides its build."""
        device, threads = self._backend.device, torch.get_num_threads()
        name = "" if self.on_host else torch.cuda.get_device_name(device)
        return f"{proof.signature!r} {proof.count} {proof.trials} {name} {threads} {read_switches()!r}"

    def holds(self, proof: OperationProof, kernel: LoadedKernel, trial: int) -> torch.Tensor:
        """One trial: whether kernel and operator give the same, as a tensor of one truth value."""
        tensors = proof.elements(trial, self._backend.device)
        return self._agrees(proof, kernel, tensors, proof.called(tensors, trial))

    def holds_for(
        self,
        proof: OperationProof,
        kernel: LoadedKernel,
        operands: Sequence[torch.Tensor],
        result: torch.Tensor,
    ) -> bool:
        """Whether a kernel gives for the elements of a call what the operator has given."""
        pieces = proof.pieces(operands, result)
        found = [self._agrees(proof, kernel, tensors, expected) for tensors, expected in pieces]
        return not found or bool(torch.stack(found).all())

    def _agrees(
        self,
        proof: OperationProof,
        kernel: LoadedKernel,
        tensors: tuple[torch.Tensor, ...],
        expected: torch.Tensor,
    ) -> torch.Tensor:
        found = expected.new_empty(proof.count)
        kernel([*proof.given(tensors), found], proof.written.reals, proof.written.integers)
        return is_equal(expected, found[: len(expected)])


def _look(each: Fusible) -> _Form:
    """Whether an operation can be written, and what has to be shown of it."""
    try:
        each.alone()  # it may also be its layout that speaks against it
        proof = proof_of(each)
    except NoKernelError as why:
        return _Form(str(why))
    return _Form(signature=proof.signature if proof is not None else None)


class KernelRequest:
    """Kernels that somebody waits for, and proofs of the operations that they calculate."""

    def __init__(
        self, device: DeviceKernels, sources: Iterable[KernelSource], calculated: Iterable[Fusible]
    ) -> None:
        self._device = device
        self._proofs = [(proof, device.source_of(proof)) for proof in device.proofs(calculated)]
        needed = dict.fromkeys([*sources, *[source for _, source in self._proofs]])
        self._kernels = {each: found for each in needed if (found := device.loaded(each)) is not None}
        missing = [each for each in needed if each not in self._kernels]
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

    def kernel(self, source: KernelSource) -> LoadedKernel:
        """A kernel that was asked for, once :meth:`prove` has loaded it.

        Raises:
            NoKernelError: It is not there.
        """
        found = self._kernels.get(source)
        if found is None:
            raise NoKernelError("a kernel is not compiled")
        return found

    def prove(self) -> bool:
        """Load what is compiled, and prove a slice of what is not proved; whether all is.

        Raises:
            NoKernelError: A kernel was not compiled, or cannot be loaded.
        """
        self._load()
        left = whole = HOST_SLICE if self._device.on_host else GPU_SLICE
        while self._proofs and left > 0:
            proof, source = self._proofs[0]
            if not self._device.is_known(proof):
                cost = max(proof.count, whole // PROBES_AT_ONCE) if proof.signature.probed else proof.count
                left -= cost * self._try(proof, source, max(1, left // cost))
            if self._device.is_known(proof):
                self._refuses |= self._device.is_refused(proof)
                self._proofs.pop(0)
                self._trial, self._held = 0, []
        return not self._proofs

    def _load(self) -> None:
        if self._job is None:
            return
        proofs = {source for _, source in self._proofs}
        failed: dict[KernelSource, str] = {}
        for source, outcome in self._job.results().items():
            if isinstance(outcome, Binary):
                self._kernels[source] = self._device.load(outcome)
            elif source not in proofs:
                raise NoKernelError(outcome.why)
            else:
                failed[source] = outcome.why
        self._job = None
        for proof, source in self._proofs:
            if source in failed:
                self._device.decide(proof, failed[source])

    def _try(self, proof: OperationProof, source: KernelSource, most: int) -> int:
        """Some trials of one proof; how many."""
        first, last = self._trial, min(self._trial + most, proof.trials)
        try:
            kernel = self._kernels[source]
            found = [self._device.holds(proof, kernel, trial) for trial in range(first, last)]
            self._held.append(torch.stack(found).all())
            self._trial = last
            failed = self._device.on_host and not bool(self._held[-1])  # elsewhere nobody waits for it
            if failed or last == proof.trials:
                equal = bool(torch.stack(self._held).all())
                self._device.decide(proof, None if equal else "a kernel of it gives other bits")
                if equal:
                    self._device.certify(proof)
        except Exception as error:  # the operator may not take such operands
            self._device.decide(proof, f"it could not be tried: {type(error).__name__}")
        return last - first


_DEVICES: dict[torch.device, DeviceKernels] = {}


def kernels_of(backend: Backend) -> DeviceKernels:
    """The kernels of a device; what is proved of them holds for the whole process."""
    if backend.device not in _DEVICES:
        _DEVICES[backend.device] = DeviceKernels(backend)
    return _DEVICES[backend.device]
