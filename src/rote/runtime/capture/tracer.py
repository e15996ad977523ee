"""Runs a callable while following, observing or recording what it does.

One dispatch mode does three jobs, often one after the other in a single call:

- **follow**: the start of a known path has just been replayed, so its operations must not run again. The
  Python code runs, and each operation returns the recorded tensors. Only views run, since they make nothing
  but metadata.
- **record**: operations go to the backend's session; one that cannot be captured ends the segment.
- **observe**: operations run as in eager, and are noted.

While observing and recording, every operation is compared with what earlier calls did at the same place
(:class:`~..recording.tree.Node`). The first difference makes the call unsteady: it finishes correctly, but
nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ...base import InternalError, MisuseError, Site, Sites, identity, running_lines, user_site
from ...hazards import rules
from ...hazards.rules import reason
from ..autograd import BackwardPasses, SavedNumber
from ..backends.protocol import holds, replaced
from ..numbers import Computed, TrackedNumbers
from ..operators import (
    LAUNCHES,
    REGIONS,
    TRIED,
    Alone,
    Facts,
    GraphTrial,
    LaunchCall,
    Placement,
    RegionOperands,
    ScriptCall,
    UnseenLaunchError,
    facts_of,
    tensors_in,
    tensors_of,
    wait_operator,
    without_dropout,
    without_vectors,
    written_operands,
)
from ..program import (
    EXTERNAL,
    NEW,
    Generators,
    HostValues,
    Operation,
    Raised,
    ReboundTensors,
    Reference,
    Token,
    UnsupportedTensorError,
    Unwritten,
    Value,
    caught,
    exchanged,
    generator_in,
    is_of_host,
    operand_of,
    operands_of,
    results_of,
    span_of,
)
from ..program import operations as ops
from ..pytorch import (
    ConstructorCall,
    DispatchMode,
    GroupCall,
    count_versions,
    has_memory,
    is_faking,
    is_kept_out,
    is_lazy_zero,
    is_sharded,
    resolve_lazily,
    run_compiled,
    takes_tickets,
    untraced,
    waits_itself,
)
from ..state import get_profile, our_profiler, set_profile
from .elements import (
    TAKEN,
    LyingElements,
    SelectedElements,
    Selections,
    TakenView,
    TakenViews,
    index_maker,
    only_reads,
    writes_first,
)
from .host_tensors import HostTensors, MadeByScript
from .optimizers import average_reason, count_reason, rate_read_reason, stepping
from .overloads import DETACH, Overload
from .path import (
    GIVES_MEMORY,
    BuiltNumbers,
    Cursor,
    Follower,
    HandedNumbers,
    HostReads,
    Mode,
    NumbersOfNodes,
    ResizedStorages,
    RestartError,
    ShardedTensors,
    Steps,
    Stop,
    Transfers,
    Writes,
    kept_call,
)
from .placed import Placer
from .running import Runner
from .zeros import LAZY_ZEROS, on_zeros

_FOLLOW, _OBSERVE = Mode.FOLLOW, Mode.OBSERVE  # to look a member up takes ten times as long, in Python 3.11
_ITEM = torch.ops.aten._local_scalar_dense.default
_CAPTURED = Placement.CAPTURED
_READS = (Placement.READ, Placement.SHAPED)
_UNFIT = {
    GraphTrial.DIFFERS: "gives something else from a graph, as if its kernels ran on another stream",
    GraphTrial.UNTRIED: "cannot be tried: it gives nothing or always the same, or has objects or over 1 GiB",
}
_RUNS = (_CAPTURED, Placement.ISLAND, Placement.EARLY)


class Tracer(DispatchMode):
    """The dispatch mode of one run: hands each operation to what follows, records or observes it."""

    supports_higher_order_operators = True
    meets_compiled = True

    def __init__(
        self,
        cursor: Cursor,
        *,
        profiler: Any,
        path: Sequence[Any],
        stop: Stop | None,
        split: Collection[str],
        generators: Generators,
        has_made: Callable[[int], bool] | None,
        numbers: TrackedNumbers | None = None,
        collective: Callable[[], GroupCall | None] = lambda: None,
        under_arrays: Sequence[torch.Tensor] = (),
        sharded: ShardedTensors,
        alone: Alone,
        leads: Callable[[str, list[torch.Tensor]], bool] = lambda operator, tensors: False,
    ) -> None:
        super().__init__()
        self.cursor = cursor
        self.generators = generators
        self.unwritten = Unwritten(cursor.storages)
        self._sites = Sites()
        self._numbers = numbers
        self.writes = Writes(cursor, self._sites)
        self.sharded = sharded
        self._alone = alone
        self.follower = Follower(cursor, path, stop)
        self.resized = ResizedStorages(cursor)
        self.rebound = ReboundTensors(cursor.storages, self.follower.memory, cursor.tables_with)
        self.reads = HostReads(cursor, self.follower, self.generators, self.resized, numbers)
        self.host = HostTensors(cursor, self.follower, self.writes, has_made, under_arrays, numbers)
        self.placer = Placer(cursor, self.writes)
        self.runner = Runner(cursor, self.resized, profiler)
        self.transfers = Transfers(cursor, self.follower, collective, leads)
        self._split = split
        self._known: dict[int, Overload] = {}
        self._vectorless = self._lazy_zeros = False
        self._nodes = None
        if numbers is not None and numbers.follows:
            self._nodes = NumbersOfNodes(numbers)
        self._handed: HandedNumbers | None = None  # numbers that change, which a function was given
        self.taken = TakenViews()
        self.selected = Selections(self.writes.count, cursor.storages)
        self.passes = BackwardPasses()
        self.made: ConstructorCall | None = None  # makes an instance of a class of tensors
        self._script: MadeByScript | None = None  # what the function of TorchScript that runs has made

    @contextmanager
    def without_vectors(self) -> Generator[None]:
        """A context for functions that leave the vectors of a decomposition out where no gradient needs them.

        In a mode they leave nothing out, and the values differ in their last bits.
        """
        before, self._vectorless = self._vectorless, True
        try:
            yield
        finally:
            self._vectorless = before

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if types:
            if waits_itself(types):
                return NotImplemented  # it waits, and comes again with what it stands for
            if any(map(is_sharded, types)):
                self.sharded.meet(func, args, kwargs or {})
                return NotImplemented  # it comes again with the parts that this process has
        if is_faking():  # what it finds out about shapes follows from what is known of them
            return self.runner.seen(func, *args, **(kwargs or {}))
        profiler = self.runner.profiler
        if profiler is not None:  # first of all, since it is told of every call of a function
            if get_profile() is profiler:
                set_profile(None)
            else:  # on another thread, or inside an operation that is seen
                profiler = None
        tape = self.cursor.tape
        around = tape.session.come_home() if tape is not None else None
        dispatch = self._on_selected if self.selected.known else self._dispatch
        try:
            if around is None:
                out = dispatch(func, args, kwargs or {})
            else:
                with around:
                    out = dispatch(func, args, kwargs or {})
            return out if self.made is None else self._made_as(self.made, out)
        except UnsupportedTensorError as error:
            cursor = self.cursor
            if cursor.mode is not _OBSERVE:
                raise
            resolve_lazily()
            site = user_site()
            cursor.block(reason(rules.UNSUPPORTED_TENSOR, f"{func.name()} met a {error} tensor", site))
            return self.runner.seen(func, *args, **(kwargs or {}))
        finally:
            if profiler is not None:
                set_profile(profiler)

    def _dispatch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        cursor = self.cursor
        if cursor.suspended:
            resolve_lazily()
            return self.runner.seen(func, *args, **kwargs)
        if self._script is not None:
            args, kwargs = self._script.taken(args, kwargs)
        if not cursor.on_host:
            self.passes.meet()
        if self._numbers is not None:
            self._numbers.dispatched = True
        known = self._known.get(identity(func))
        if known is None:
            if not isinstance(func, torch._ops.OpOverload):  # an operator over Python functions
                resolve_lazily()
                return self.runner.seen(func, *args, **kwargs)
            known = self._known[identity(func)] = Overload.of(func, self._split)
        if self._handed is not None and func is not DETACH:  # that is how results are saved
            self._handed.operations += 1
        if known.inside:
            count_versions()
        facts, parts = known.facts, known.parts
        if self.host.read and not cursor.blockers:
            self.host.check(tensors_of(args, kwargs))
        for arriving in self.transfers.arriving(args, kwargs):
            waiting = Overload.of(wait_operator().overload, self._split)
            self.transfers.meet(self._steps(), waiting, arriving, {})
        if (
            self.taken.places
            and not cursor.blockers
            and (taken := self.taken.among(tensors_of(args, kwargs)))
        ):
            if func.is_view:
                return self._look(func, args, kwargs, taken)
            if only_reads(func) and self._may_gather(facts, args, kwargs):
                resolve_lazily()
                args = self._gathered(args)
                kwargs = {name: self._gathered(each) for name, each in kwargs.items()}
            elif only_reads(func) and (view := self._written(facts, args, kwargs)) is not None:
                return self._write(view, func, args, kwargs)
            else:
                self.stray(taken)
        resolve_lazily()
        if known.vectors and self._vectorless:
            args = without_vectors(facts, args)
        mode = cursor.mode
        if cursor.blockers and mode is _OBSERVE:  # nothing of this call is kept
            self.writes.note(written_operands(facts, args, kwargs))
            return self.runner.seen(func, *args, **kwargs)
        if func is LAZY_ZEROS:  # forward-mode AD: no memory, so nothing that a replay would have to make
            self._lazy_zeros = True
            return self.runner.seen(func, *args, **kwargs)
        zero = self._lazy_zeros and any(map(is_lazy_zero, tensors_of(args, kwargs)))
        if zero and func.is_view:  # a zero again
            return self.runner.seen(func, *args, **kwargs)
        if zero or (parts is not None and torch.is_inference_mode_enabled()):
            with self:  # the parts come back here, one by one
                return self.runner.seen(parts or on_zeros(func), *args, **kwargs)
        if facts.transfers and self.transfers.sees(known, args):
            return self.transfers.meet(self._steps(), known, args, kwargs)
        if mode is not _FOLLOW and (facts.collective or facts.ticketed):
            return self._unrecorded(facts, func, args, kwargs)
        if known.special:
            if func is DETACH:
                return self._detached(func, args[0])
            if not cursor.storages.knows(args[0]):
                return self.host.lifted(args[0])
        if facts.seeded and (generator := generator_in(args, kwargs)) is not None:
            return self._draw(known, generator, args, kwargs)
        odd = facts.hidden or known.apart or known.special or known.seen
        if not odd:
            if self._handed is not None:
                args, kwargs = self._handed.operands(func, args, kwargs)
            elif self._nodes is not None:
                args, kwargs = self._nodes.operands(func, args, kwargs)
        operation, tensors, tokens, placement = self._before(known, args, kwargs)
        if placement not in _RUNS and self._numbers is not None and holds(Computed, args, kwargs):
            if self._handed is not None:
                self._handed.taken.clear()
            else:
                self._numbers.pin_computed(*args)
            args, kwargs = replaced(Computed, "value", args, kwargs)
            operation, tensors, tokens, placement = self._before(known, args, kwargs)
        if placement is not _CAPTURED and self.selected.known and placement is not Placement.ANYWHERE:
            self.leave_selected()
        if placement is not _CAPTURED and placement in _READS:
            return self.runner.seen(self._branch, operation, func, args, kwargs)
        if mode is _FOLLOW:
            if self._numbers is not None:
                args, kwargs = replaced(Computed, "value", args, kwargs)
            out = self.runner.seen(self.follower.run, operation, func, args, kwargs, tensors)
        else:
            out = self.runner.run(operation, known, args, kwargs, placement)
            self._after(operation, facts, tensors, tokens, out)
        if facts.blank:
            self.unwritten.made(facts.name, out)
        return out

    def _steps(self) -> Steps:
        return Steps(self._before, self.runner.run, self._after)

    # ------------------------------------------------------------------ views at positions that change

    def take(self, view: torch.Tensor, taken: TakenView) -> None:
        """The call has got a view at a position that changes."""
        self.taken.add(view, taken)
        self.cursor.storages.told = self.taken.meet

    def _look(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], taken: list[TakenView]) -> Any:
        """A view of such a view is one as well, if it is known where it lies."""
        out = self.runner.seen(func, *args, **kwargs)
        tensors = tensors_of(args, kwargs)
        if len(tensors) > 1 or not self.taken.derive(func.overloadpacket.__name__, tensors[0], out):
            self.stray(taken)
        return out

    def _may_gather(self, facts: Facts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether an operation only reads what lies in a view. Its backward finds the view that was saved."""
        if self.taken.among(written_operands(facts, args, kwargs)):
            return False
        tensors = tensors_of(args, kwargs)
        if not torch.is_grad_enabled() or not any([each.requires_grad for each in tensors]):
            return True
        if any([each.requires_grad for each in tensors if self.taken.find(each) is not None]):
            return False
        self.taken.save(self.taken.among(tensors))
        return True

    def _written(self, facts: Facts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TakenView | None:
        """The view that an operation writes in place, if nothing else that it takes lies in that memory."""
        tensors, written = tensors_of(args, kwargs), written_operands(facts, args, kwargs)
        if torch.is_grad_enabled() and any([each.requires_grad for each in tensors]):
            return None
        taken = self.taken.find(args[0]) if len(written) == 1 and written[0] is args[0] else None
        if taken is None or facts.relocates or self.unwritten.reasons("", [taken.base], user_site()):
            return None
        own = taken.base.untyped_storage()._cdata
        beside = [each for each in tensors[1:] if has_memory(each) and each.untyped_storage()._cdata == own]
        return taken if not beside else None

    def _write(self, taken: TakenView, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operation in place on a view: what lies there is gathered, written, and put back."""
        if self._handed is not None:
            self._handed.operations -= 1  # it is counted where it runs
        flat, places, lies, looked = self._lying(args[0], taken)
        self._dispatch(func, (looked, *args[1:]), kwargs)
        with self._handing_none():
            if not looked.is_contiguous():  # others may write what lies between its elements meanwhile
                places, lies = self._elements(places, looked), self._elements(lies, looked)
            self._dispatch(torch.ops.aten.index_copy_.default, (flat, 0, places, lies), {})
        self.taken.write(args[0])
        return args[0]

    def _elements(self, flat: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """Some elements, one after the other: those at which a tensor looks in memory of its own."""
        aten, shape, strides = torch.ops.aten, list(like.shape), list(like.stride())
        seen = self._dispatch(aten.as_strided.default, (flat, shape, strides), {})
        dense = self._dispatch(aten.clone.default, (seen,), {"memory_format": torch.contiguous_format})
        return self._dispatch(aten.view.default, (dense, [-1]), {})

    def stray(self, taken: list[TakenView]) -> None:
        """A view is used in a way that is not understood: nothing of this call is kept."""
        self.taken.stray(taken)
        text = "what lies at a position that changes is not only read, so the position is a condition"
        self.cursor.block(reason(rules.VALUE_CHANGED, text, user_site()))

    def _gathered(self, operand: Any) -> Any:
        """An operand as an operation takes it: in the place of a view what lies there."""
        if type(operand) in (list, tuple):
            return type(operand)([self._gathered(each) for each in operand])
        taken = self.taken.find(operand) if isinstance(operand, torch.Tensor) else None
        return operand if taken is None else self._lying(operand, taken).looked

    @contextmanager
    def _handing_none(self) -> Generator[None]:
        """Operations in it are given none of the numbers that a function was given."""
        before, self._handed = self._handed, None
        try:
            yield
        finally:
            self._handed = before

    def _lying(self, view: torch.Tensor, taken: TakenView) -> LyingElements:
        """What lies in a view now."""
        numbers = self._numbers if self._numbers is not None and self._numbers.follows else None
        begin, span, aten = taken.begin(numbers), span_of(view), torch.ops.aten
        form: dict[str, Any] = {"dtype": torch.int64, "device": view.device}

        def build() -> torch.Tensor:
            first = BuiltNumbers(begin).now()
            return torch.arange(first, first + span, **form)

        token, shape, strides = self.cursor.storages.token, list(view.shape), list(view.stride())
        data = HostValues(operand_of([begin, span], token), (), torch.int64, view.device.type)
        made = None if numbers is None else index_maker(begin, span, view.device)
        with self._handing_none():
            index = self.host.computed_tensor(self.host.aside(build), TAKEN, data, build, made)
            flat = self._dispatch(aten.as_strided.default, (taken.base, [span_of(taken.base)], [1]), {})
            lies = self._dispatch(aten.index_select.default, (flat, 0, index), {})
            looked = self._dispatch(aten.as_strided.default, (lies, shape, strides), {})
        return LyingElements(flat, index, lies, looked)

    # ------------------------------------------------------------------ what masks select

    def select(
        self, tensor: torch.Tensor, mask: torch.Tensor, get: Callable[[], Any], *, lazily: bool
    ) -> Any:
        """The call reads what a mask selects; ``lazily`` where earlier calls have only written that back."""
        real = self._has_values
        selected = self.selected.select(tensor, mask, running_lines(), lazily=lazily, real=real or not lazily)
        out = get() if not lazily else self.host.aside(get) if real else self._standing(selected)
        self.selected.add(out, selected)
        return out

    @property
    def _has_values(self) -> bool:
        """Whether tensors have their values while the call runs."""
        mode, tape = self.cursor.mode, self.cursor.tape
        return mode is _OBSERVE or (mode is Mode.RECORD and tape is not None and tape.executes)

    def _standing(self, selected: SelectedElements) -> torch.Tensor:
        """What the call gets where it cannot get the elements: of that kind, and of another size."""
        like = selected.all
        if like is None:
            raise InternalError("elements were to be stood for of which nothing is known")
        rows = like.shape[: like.dim() - selected.rest].numel()
        shape = [rows, *like.shape[like.dim() - selected.rest :]]
        return self.host.aside(lambda: torch.empty((), dtype=like.dtype, device=like.device).expand(shape))

    def _on_selected(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operation while there are elements that a mask has selected."""
        selected, tensors = self.selected, tensors_of(args, kwargs)
        found = selected.among(tensors) if not self.cursor.suspended else []
        joined = selected.joined(func, tensors, kwargs, self.cursor.done) if found else None
        if joined is None:
            self.stray_selected(found)
            return self._dispatch(func, args, kwargs)
        if found[0].all is None:
            out = self._dispatch(func, args, kwargs)
            selected.add(out, joined)
            return out
        out = self.host.aside(lambda: func(*args)) if joined.real else None  # what raises does so as in eager
        parts = [self._all_of(each) for each in args]
        if inplace := writes_first(func):
            with self._handing_none():
                parts[0] = self._dispatch(torch.ops.aten.clone.default, (parts[0],), {})
        every = self._dispatch(func, tuple(parts), {})
        joined = selected.whole(joined, every)
        if out is None:
            out = args[0] if inplace else self._standing(joined)
        selected.add(out, joined)
        if every.dtype not in (found[0].all.dtype, torch.bool):
            self.stray_selected([joined])
        return out

    def _all_of(self, operand: Any) -> Any:
        found = self.selected.find(operand)
        return found.all if found is not None else operand

    def stray_selected(self, found: Iterable[SelectedElements]) -> None:
        """Selected elements are not only written back: nothing of this call is kept.

        Raises:
            RestartError: A capture has no values of them.
            MisuseError: The recorded call has only written them back.
        """
        lazily = [each for each in found if each.all is not None]
        unreal, cursor, site = self.selected.stray(found), self.cursor, user_site()
        if not lazily or cursor.suspended:
            return
        text = "what a mask selects is not only written back through it, so its size is a condition"
        begun = cursor.tape is not None and cursor.tape.is_open
        if cursor.mode is _FOLLOW or (unreal and not begun):
            raise MisuseError(f"the callable took another way on the same inputs at {site}: {text}")
        cursor.block(reason(rules.DYNAMIC_SHAPE, text, site))
        if unreal:
            cursor.recorder.failure = text
            raise RestartError(text)

    def leave_selected(self, *, ends: bool = False) -> None:
        """The host reads, a segment or the call ends: what is selected and still there, strays."""
        if self.selected.known and self.cursor.mode is not _FOLLOW and not self.cursor.suspended:
            alive = [selected for _, selected in self.selected.known.values()]
            self.stray_selected([each for each in alive if ends or each.all is not None])
        if ends:
            self.selected.known.clear()

    # ------------------------------------------------------------------ numbers

    def hand(self, handed: HandedNumbers, call: Callable[[], Any]) -> Any:
        """Call a function with numbers that change; they may become operands of what it dispatches."""
        before, self._handed = self._handed, handed
        try:
            return call()
        finally:
            self._handed = before

    def follows_back(self, result: Any, given: Mapping[str, Any]) -> bool:
        """Whether it is known what the backward of an operation does with numbers that it was given."""
        return self._nodes is None or self._nodes.follow(result, given)

    def know_numbers(self, saved: Iterable[tuple[SavedNumber, Any]]) -> None:
        """The call walks a recorded graph, which keeps these numbers of the present call."""
        if self._nodes is not None:
            for each, number in saved:
                self._nodes.know(each.node, {each.operand: number})

    def saved_numbers(self) -> list[SavedNumber]:
        """What the graph of a result keeps of numbers that change."""
        return self._nodes.saved() if self._nodes is not None else []

    def _draw(
        self, known: Overload, generator: torch.Generator, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run an operation that draws from a generator which Python hands to it."""
        cursor = self.cursor
        generators, node = self.generators, cursor.node
        drawn = generators.drawn(generator, user_site())
        operation, tensors, tokens, placement = self._before(
            known, *exchanged(args, kwargs, generator, drawn)
        )
        if placement in _READS:
            cursor.block(
                reason(rules.GENERATOR_INSIDE, f"{operation.name} draws on the host", operation.site)
            )
            return self.runner.seen(known.func, *args, **kwargs)
        if cursor.mode is _FOLLOW:
            out = self.runner.seen(self.follower.run, operation, known.func, args, kwargs, tensors)
            generators.follow(generator, node.stands)
            return out
        stand = generator
        if cursor.mode is Mode.RECORD and cursor.tape is not None:
            stand, reseed = generators.stand_in(generator, drawn, node.stands)
            if reseed is not None:
                if drawn.is_outside and cursor.on_host:  # it may have been drawn from before, in that segment
                    cursor.tape.close(cursor)
                cursor.tape.prepare(reseed)
        try:
            out = self.runner.run(operation, known, *exchanged(args, kwargs, generator, stand), placement)
        finally:
            if stand is not generator and is_of_host(generator):
                generator.set_state(stand.get_state())
        generators.note(generator)
        self._after(operation, known.facts, tensors, tokens, out)
        return out

    def _before(
        self,
        known: Overload,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        there: Placement | None = None,
    ) -> tuple[Operation, list[torch.Tensor], list[Token], Placement]:
        """All that is noted of an operation before it runs, ``there`` if that is known."""
        cursor = self.cursor
        storages, facts = cursor.storages, known.facts
        tensors, tokens, operands, named = operands_of(args, kwargs, storages.token)
        # The seed of an attention lies on the host or on the device, as it was drawn in a segment or not.
        apart = known.apart or (is_kept_out() and not facts.op.is_view and not known.seeds)
        if known.seen and facts.foreign and not (apart or cursor.on_host):
            apart = self._tried(facts, args, kwargs) is not GraphTrial.REPEATS
        if there is not None:
            placement = there
        else:
            placement = self.placer.place(facts, tensors, args, kwargs, apart=apart)
        self.placer.note_devices(tensors)
        if self._numbers is not None and placement is _CAPTURED and holds(Computed, args, kwargs):
            placement = _CAPTURED if cursor.takes_numbers(facts, args, kwargs) else Placement.ISLAND
        site = self._sites.here()
        operation = Operation.called(placement._value_, facts.name, operands, named, site)
        if len(storages.external_sites) < len(storages.externals):
            storages.note_readers(facts.name, site)
        if self.unwritten.makers:
            self._note_contents(facts, args, kwargs, site)
        if facts.seeded or facts.written:
            self._note_effects(facts, args, kwargs)
        return operation, tensors, tokens, placement

    def _tried(self, facts: Facts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> GraphTrial:
        """What a graph makes of an operator that a library brings."""
        cursor = self.cursor
        found = TRIED.find(facts.op, args, kwargs)
        if found is None:
            if cursor.tape is not None:
                cursor.tape.close(cursor)
            found = TRIED.attempt(facts.op, args, kwargs, self._alone)
        if found in _UNFIT:
            text = f"{facts.name} {_UNFIT[found]}"
            cursor.block(reason(rules.CAPTURE_FAILED, text, user_site(), "Call it outside of the callable."))
        return found

    def _note_contents(self, facts: Facts, args: tuple[Any, ...], kwargs: dict[str, Any], site: Site) -> None:
        for why in self.unwritten.meet(facts, args, kwargs, site):
            self.cursor.block(why)

    def _note_effects(self, facts: Facts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        cursor = self.cursor
        if facts.seeded and not without_dropout(facts, args, kwargs):
            cursor.node.pure = False
        if facts.written:
            parts, written = self.sharded.divide(facts.name, written_operands(facts, args, kwargs))
            self.writes.note(parts, counted=False)
            self.writes.note(written, counted=facts.mutable)
            self.resized.write(written)

    def _detached(self, func: Any, tensor: torch.Tensor) -> Any:
        """Make an alias, which is no operation: autograd makes some itself, and others under hooks."""
        cursor = self.cursor
        storages = cursor.storages
        storages.token(tensor)
        if len(storages.external_sites) < len(storages.externals):
            storages.note_readers("aten::detach", user_site())
        self.writes.know_detached(tensor)
        return func(tensor)

    def meet_compiled(self, graph: Any, inputs: list[Any]) -> Any:
        """The call runs a region that Inductor has compiled: one operation, whatever kernels it launches."""
        if taken := self.taken.among(inputs):
            self.stray(taken)
        self.leave_selected()
        region = REGIONS.of(graph, inputs)
        operands = RegionOperands.sorted_out(inputs, region.written)
        if operands is None:
            text = "compiled code takes an input that is no tensor and no number"
            self.cursor.block(reason(rules.UNSUPPORTED_TENSOR, text, user_site()))
            return self.runner.seen(run_compiled, graph, inputs)
        if region.collective:
            text = "compiled code has collectives in it"
            remedy = 'Compile with backend="rote", or call them outside of the compiled function.'
            self.cursor.block(reason(rules.COLLECTIVE, text, user_site(), remedy))
        elif takes_tickets(graph):
            self._block_ticket()
        if region.collective or takes_tickets(graph):
            return self.runner.seen(run_compiled, graph, inputs)
        if self.cursor.blockers and self.cursor.mode is _OBSERVE:  # nothing of this call is kept
            self.writes.note(operands.written)
            return self.runner.seen(run_compiled, graph, inputs)
        inputs.clear()  # as compiled code does, so that what is needed no more is freed
        return self.__torch_dispatch__(region.overload, (), tuple(operands))

    def _made_as(self, made: ConstructorCall, out: Any) -> Any:
        """What an operation gives to a constructor, which takes no other object for its own."""
        if isinstance(out, torch.Tensor) and made.runs():
            return out.as_subclass(made.kind)
        self.made = None
        return out

    def meet_launch(self, call: LaunchCall) -> Any:
        """The call launches a kernel of Triton: one operation, like a region that Inductor has compiled."""
        try:
            launch, inputs = LAUNCHES.of(call.chosen())
        except UnseenLaunchError as error:
            text = f"the kernel {call.name} is launched in a way that is not understood: {error}"
            self.cursor.block(reason(rules.FOREIGN_KERNEL, text, user_site()))
            return self.runner.seen(call.plainly)
        if self._numbers is not None:
            self._numbers.pin_inside(inputs)
        self.meet_compiled(launch, inputs)
        return None

    def meet_script(self, call: ScriptCall) -> Any:
        """The call runs a function of TorchScript, which makes numbers past the dispatcher."""
        self.leave_selected()
        outer, self._script = self._script, MadeByScript(self.host, self.cursor.storages, call)
        try:
            return self._script.handed(call.run())
        finally:
            self._script = outer

    def aside(self, call: Callable[[], Any]) -> Any:
        """Run compiled code that is not ready, as a plain call would; nothing of this call is recorded."""
        cursor = self.cursor
        if cursor.mode is _FOLLOW:
            raise MisuseError(
                f"compiled code at {user_site()} is not what it was when the call was recorded; what it "
                "depends on is neither an argument nor state that rote can see. Pass it in as an argument."
            )
        cursor.block(reason(rules.NOT_YET, "torch.compile compiles in this call", user_site()))
        if cursor.tape is not None:
            cursor.tape.close(cursor)  # what it reads has to be there
            cursor.stop_recording()
        with self._unprofiled(), untraced():
            return call()

    @contextmanager
    def _unprofiled(self) -> Generator[None]:
        profiler = our_profiler()
        if profiler is not None:
            set_profile(None)
        try:
            yield
        finally:
            if profiler is not None:
                set_profile(profiler)

    def resize(self, storage: torch.UntypedStorage, nbytes: int) -> bool:
        """The call gives memory to an empty storage from outside, or takes it back."""
        if self.cursor.suspended:
            return True
        had = storage.nbytes()
        if had and nbytes not in (0, had):
            return False
        if not had and nbytes:
            known = Overload.of(GIVES_MEMORY)
            made = self.resized.fill(self._steps(), known, storage, nbytes)
            if made is not None:
                self.unwritten.made(GIVES_MEMORY.name(), made)
        elif had and not nbytes:
            self.resized.empty(storage)
        return True

    def meet_operator(self, name: str) -> None:
        """The call comes to an operator over Python functions, which is not looked into."""
        cursor = self.cursor
        self.leave_selected()
        remedy = "Write the branch or the loop in Python, or call it outside."
        cursor.block(reason(rules.UNSUPPORTED_TENSOR, f"{name} takes Python functions", user_site(), remedy))

    def _unrecorded(self, facts: Facts, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator that acts on other processes as no replay does, or keeps a graph."""
        cursor = self.cursor
        if facts.collective:
            text = f"{func.name()} acts on other processes in a way that no replay does"
            cursor.block(reason(rules.COLLECTIVE, text, user_site(), "Call it outside."))
        else:
            self._block_ticket()
        if cursor.tape is not None:
            cursor.tape.close(cursor)  # what it reads has to be there
        self.writes.note(tensors_in((*args, *kwargs.values()), []))  # schemas do not say it
        return self.runner.seen(func, *args, **kwargs)

    def _block_ticket(self) -> None:
        remedy = "Compile with backend='rote', or graph one of the two callables, not both."
        text = "compiled code that calls a graphed callable keeps the way back through it to itself"
        self.cursor.block(reason(rules.OUTPUT_GRADIENT, text, user_site(), remedy))

    def _after(
        self, operation: Operation, facts: Facts, tensors: list[torch.Tensor], tokens: list[Token], out: Any
    ) -> None:
        """All that is noted of an operation once it has run."""
        cursor = self.cursor
        if facts.reshapes:
            self._check_metadata(operation, tensors, tokens)
        made = cursor.storages.made
        if type(out) is torch.Tensor:
            structure, results = "one", (self._result(operation, facts, out, tensors),)
        else:
            structure, parts = results_of(out)
            results = tuple([self._result(operation, facts, part, tensors) for part in parts])
        new = cursor.storages.made - made == len(results)  # then none of them is a view
        may_look = not new and operation.kind == ops.CAPTURED and not facts.mutable
        looks = may_look and _look_only(results, tokens)
        cursor.meet(operation.ended(structure, results, ops.VIEWED if looks else None))

    def _check_metadata(self, operation: Operation, tensors: list[torch.Tensor], tokens: list[Token]) -> None:
        """Refuse to give a tensor made outside another shape: a replay would do so to a copy of it."""
        cursor = self.cursor
        for tensor, token in zip(tensors, tokens, strict=True):
            if token[0][0] is NEW or not token.shape:
                continue
            if tensor.shape != token.shape or tensor.stride() != token.stride:
                text = f"{operation.name} changes the shape of a tensor made outside the call"
                cursor.block(reason(rules.RESHAPED, text, operation.site))

    def _result(self, operation: Operation, facts: Facts, part: Any, tensors: list[torch.Tensor]) -> Any:
        """A token; a reference to the operand that the result is; a value; or None where there is none."""
        cursor = self.cursor
        if not isinstance(part, torch.Tensor):
            return None if part is None or operation.kind == ops.ANYWHERE else self._value(operation, part)
        for position, tensor in enumerate(tensors):
            if tensor is part:
                return Reference(position, self._moved(part) if facts.relocates else None)
        if part.is_meta:
            return None
        return cursor.storages.result(part, operation.name, operation.site)

    def _moved(self, tensor: torch.Tensor) -> Token | None:
        """How an operand looks that now lies elsewhere, or has another shape."""
        storages = self.cursor.storages
        return storages.token(tensor) if not tensor.is_meta and storages.knows(tensor) else None

    def _value(self, operation: Operation, part: Any) -> Value:
        """A result that is no tensor; a call that follows gets it back."""
        cursor = self.cursor
        if isinstance(part, torch.ScriptObject):
            text = f"{operation.name} returns a {type(part).__name__}, which a replay could not make"
            cursor.block(reason(rules.UNSUPPORTED_TENSOR, text, operation.site))
        return Value.of(part)

    def _branch(self, operation: Operation, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The host reads a value or a shape."""
        cursor = self.cursor
        followed = self._numbers is not None and running_lines() in self._numbers.reading
        if operation.kind == ops.READ and args and cursor.mode is not Mode.FOLLOW and not followed:
            self._note_optimizer(args[0], operation.site)
        facts = facts_of(func)
        read = caught(func) if facts.checks else func

        def run() -> Any:
            return read(*args, **kwargs)

        def keep() -> Any:
            if func is _ITEM and args[0].numel() == 1:
                return cursor.aliases.keep(args[0]).item  # without the overload's way through Python
            return kept_call(read, args, kwargs, cursor.aliases)

        rule = rules.REFUSED if facts.checks else rules.HOST_READ if facts.beside else None
        out = self.reads.branch(operation, run, keep, shaped=operation.kind == ops.SHAPED, rule=rule)
        if isinstance(out, Raised):
            raise out.again()
        return out

    def _note_optimizer(self, tensor: torch.Tensor, site: Site) -> None:
        """An optimizer reads on the host: a count it keeps blocks; a learning rate may have many values."""
        cursor = self.cursor
        running = stepping()
        if running is None:
            cursor.node.excess = cursor.node.excess or average_reason(site)
            return
        origin = cursor.storages.origin(tensor)
        if origin is not None and origin[0] is EXTERNAL and origin[1] in self.writes.externals:
            why = count_reason(running, tensor, site)
            if why is not None:
                cursor.block(why)
        elif cursor.node.excess is None:
            cursor.node.excess = rate_read_reason(running, site)


def _look_only(results: Sequence[Any], tokens: list[Token]) -> bool:
    """Whether all results of an operation look at memory of its operands; it is known to write nothing."""
    origins = [token[0] for token in tokens]
    for result in results:
        if result is None or type(result) is Value or (type(result) is Token and result[0] not in origins):
            return False
    return bool(results)
