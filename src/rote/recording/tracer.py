"""Runs a callable while following, observing or recording what it does.

One dispatch mode does three jobs, often one after the other in a single call:

- **follow**: the prefix of a known path has just been replayed, so its operations must not run again. The
  Python code runs, and each operation returns the recorded tensors. Views run for real (they only make
  metadata), everything else does not.
- **record**: operations go to the backend's session; what cannot be captured ends the segment.
- **observe**: operations run as in eager, and are noted.

While observing and recording, every operation is compared with what earlier calls did at the same place
(:class:`~rote.recording.tree.Node`). The first difference makes the call unsteady: it still finishes
correctly, but nothing of it is kept as a recording.

What this cannot see: kernels launched past PyTorch's dispatcher. They are captured by CUDA all the same, but
when a path is followed they would run a second time.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import torch

from ..backends.host.operations import tensors_in
from ..base.identity import identity
from ..base.location import Site, user_site
from ..hazards import rules
from ..hazards.rules import reason
from ..partition.boundaries import Placement
from ..partition.facts import Facts, facts_of, written_operands
from ..signature.compat import count_versions, is_lazy_zero, resolve_lazily
from ..signature.executed import our_profiler
from ..signature.modes import DispatchMode
from . import events as ev
from .cursor import Mode
from .edges import Raised, caught
from .events import Event, Value, operands_of, results_of, tensors_of, tokens_in
from .generators import exchanged, generator_in, is_of_host
from .host_tensors import CHANGED
from .ledger import EXTERNAL, INPUT, NEW, Token, UnsupportedTensorError
from .looks import Look
from .operands import DECOMPOSITIONS, is_view, without_dropout, without_vectors
from .optimizers import average_reason, count_reason, rate_read_reason, stepping
from .overloads import DETACH, Overload
from .repeated import Repeated
from .tape import kept_call
from .zeros import LAZY_ZEROS, on_zeros

_FOLLOW, _OBSERVE = Mode.FOLLOW, Mode.OBSERVE  # to look a member up takes ten times as long, in Python 3.11
_CAPTURED = Placement.CAPTURED
_READS = (Placement.READ, Placement.SHAPED)


class Tracer(Repeated, DispatchMode):
    """Dispatch mode for one run of the callable; the arguments are those of :class:`.cursor.Cursor`."""

    supports_higher_order_operators = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        DispatchMode.__init__(self)
        Repeated.__init__(self, *args, **kwargs)
        self._known: dict[int, Overload] = {}
        self._thread, self._vectorless, self._lazy_zeros = get_ident(), False, False

    def __enter__(self) -> Any:
        """Enter the mode, on the thread that the callable runs on."""
        if self.profiler is None:
            self.profiler, self._thread = our_profiler(), get_ident()
        return super().__enter__()

    @property
    def suspended(self) -> bool:
        """Operations that run now are the recorder's own, no part of the call."""
        return self._suspended

    @contextmanager
    def without_vectors(self) -> Generator[None]:
        """While functions run that leave the vectors of a decomposition out where no gradient needs them.

        They ask whether a mode is active and then leave nothing out; the values differ in their last bits.
        """
        before, self._vectorless = self._vectorless, True
        try:
            yield
        finally:
            self._vectorless = before

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        profiler = self.profiler
        if profiler is not None:  # first of all: it is told of every call of a function
            if sys.getprofile() is profiler:
                sys.setprofile(None)
            else:  # another thread, or inside of an operation that is seen
                profiler = None
        try:
            return self._dispatch(func, args, kwargs or {})
        except UnsupportedTensorError as error:
            if self.mode is not _OBSERVE:
                raise
            resolve_lazily()
            site = user_site()
            self.block(reason(rules.UNSUPPORTED_TENSOR, f"{func.name()} met a {error} tensor", site))
            return self._seen(func, *args, **(kwargs or {}))
        finally:
            if profiler is not None:
                sys.setprofile(profiler)

    def _dispatch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._suspended:
            resolve_lazily()
            return self._seen(func, *args, **kwargs)
        known = self._known.get(identity(func))
        if known is None and isinstance(func, torch._ops.OpOverload):
            known = self._known[identity(func)] = Overload.of(func, self.split)
        if known is not None and known.inside:
            count_versions()
        if known is not None and known.repeats and self.node.complete and not self._lazy_zeros:
            was = self._again(known.facts, args, kwargs)
            if was is not None:
                return self._repeat(was, known, args, kwargs)
        resolve_lazily()
        if self._vectorless and func in DECOMPOSITIONS:
            args = without_vectors(func, args)
        mode = self.mode
        if self.blockers and mode is _OBSERVE:  # nothing of this call will be kept
            if isinstance(func, torch._ops.OpOverload):
                self._note_writes(written_operands(facts_of(func), args, kwargs))
            return self._seen(func, *args, **kwargs)
        if known is None:
            return self._seen(func, *args, **kwargs)  # an operator over Python functions
        if func is LAZY_ZEROS:  # forward-mode AD: no memory, so nothing that a replay would have to make
            self._lazy_zeros = True
            return self._seen(func, *args, **kwargs)
        facts, parts = known.facts, known.parts
        zero = self._lazy_zeros and any(map(is_lazy_zero, tensors_of(args, kwargs)))
        if zero and func.is_view:  # a zero again
            return self._seen(func, *args, **kwargs)
        if zero or (parts is not None and torch.is_inference_mode_enabled()):
            with self:  # they come back here, one by one
                return self._seen(parts or on_zeros(func), *args, **kwargs)
        if facts.collective and mode is not _FOLLOW:
            return self._collective(func, args, kwargs)
        if known.special:
            if func is DETACH:
                return self._detached(func, args[0])
            if not self.ledger.knows(args[0]):
                return self._lifted(args[0])
        if facts.seeded and (generator := generator_in(args, kwargs)) is not None:
            return self._draw(known, generator, args, kwargs)
        event, tensors, tokens, placement = self._before(known, args, kwargs)
        if placement is not _CAPTURED and placement in _READS:
            return self._seen(self._branch, event, func, args, kwargs)
        if mode is _FOLLOW:
            out = self._seen(self._followed, event, func, args, kwargs, tensors)
        else:
            out = self._run(event, known, args, kwargs, placement)
            self._after(event, facts, tensors, tokens, out)
        if known.blank:
            self.unwritten.made(facts.name, out)
        return out

    def _draw(
        self, known: Overload, generator: torch.Generator, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """An operation that draws from a generator which Python hands to it."""
        generators, node = self.generators, self.node
        drawn = generators.drawn(generator, user_site())
        event, tensors, tokens, placement = self._before(known, *exchanged(args, kwargs, generator, drawn))
        if placement in _READS:
            self.block(reason(rules.GENERATOR_INSIDE, f"{event.operation} draws on the host", event.site))
            return self._seen(known.func, *args, **kwargs)
        if self.mode is _FOLLOW:
            out = self._seen(self._followed, event, known.func, args, kwargs, tensors)
            generators.follow(generator, node.stands)
            return out
        stand = generator
        if self.mode is Mode.RECORD and self.tape is not None:
            stand, reseed = generators.stand_in(generator, drawn, node.stands)
            if reseed is not None:
                if drawn.is_outside and self._on_host:  # it may have been drawn from before, in that segment
                    self.tape.close()
                self.tape.prepare(reseed)
        try:
            out = self._run(event, known, *exchanged(args, kwargs, generator, stand), placement)
        finally:
            if stand is not generator and is_of_host(generator):
                generator.set_state(stand.get_state())
        generators.note(generator)
        self._after(event, known.facts, tensors, tokens, out)
        return out

    def _repeat(self, was: Event, known: Overload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What :meth:`_dispatch` does with an operation that another call ran here, on the same operands."""
        facts, complexes = known.facts, self.ledger.looks.complex
        if known.alias and was.kind == ev.VIEW and not complexes:  # nothing is launched, and nothing is new
            out = known.raw(*args, **kwargs)
            self.index += 1
            return out
        if complexes or (self._on_host and self.mode is not _OBSERVE):
            resolve_lazily()  # no kernel of PyTorch's own makes a lazy tensor of real ones for itself
        if self.unwritten.makers:
            self._note_contents(known, args, kwargs, was.site)
        if not known.quiet:
            self._note_effects(facts, args, kwargs)
        out = self._run(was, known, args, kwargs, _CAPTURED)
        if facts.reshapes:
            self._check_metadata(was, tensors_of(args, kwargs), tokens_in(was.operands))
        if not self.blockers and self._is_made_again(was, args, kwargs, out):
            self.index += 1
            return out
        event, tensors, tokens, _ = self._before(known, args, kwargs)
        self._after(event, facts, tensors, tokens, out)
        return out

    def _before(
        self, known: Overload, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Event, list[torch.Tensor], list[Token], Placement]:
        """All that is noted of an operation before it runs."""
        ledger, facts = self.ledger, known.facts
        tensors, tokens, operands = operands_of(args, kwargs, ledger.token)
        if (
            facts.simple
            and tensors
            and not known.apart
            and "device" not in kwargs
            and self._are_at_home(tensors, tokens)
        ):
            refused = self.node.refused
            placement = Placement.ISLAND if refused and self.index in refused else _CAPTURED
        else:
            placement = self._place(facts, tensors, args, kwargs)
            if known.apart and placement is _CAPTURED:
                placement = Placement.ISLAND
            self._note_devices(tensors)
        site = self._sites.here()
        event = Event(placement._value_, facts.name, operands, (), "none", site)
        if len(ledger.external_sites) < len(ledger.externals):
            ledger.note_readers(facts.name, site)
        if self.unwritten.makers:
            self._note_contents(known, args, kwargs, site)
        if facts.seeded or facts.written:
            self._note_effects(facts, args, kwargs)
        return event, tensors, tokens, placement

    def _note_contents(
        self, known: Overload, args: tuple[Any, ...], kwargs: dict[str, Any], site: Site
    ) -> None:
        for why in self.unwritten.meet(known.func, known.facts, args, kwargs, site):
            self.block(why)

    def _note_effects(self, facts: Facts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if facts.seeded and not without_dropout(facts, args, kwargs):
            self.node.pure = False
        if facts.written:
            self._note_writes(written_operands(facts, args, kwargs), counted=facts.mutable)

    def _detached(self, func: Any, tensor: torch.Tensor) -> Any:
        """An alias is no event: autograd makes some of its own, and not the same ones under hooks."""
        ledger = self.ledger
        ledger.token(tensor)
        if len(ledger.external_sites) < len(ledger.externals):
            ledger.note_readers("aten::detach", user_site())
        return func(tensor)

    def meet_operator(self, name: str) -> None:
        """The call comes to an operator over Python functions, which is not looked into."""
        remedy = "Write the branch or the loop in Python, or call it outside."
        self.block(reason(rules.UNSUPPORTED_TENSOR, f"{name} takes Python functions", user_site(), remedy))

    def _collective(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An operator that acts on other processes: it runs, and nothing of the call is recorded."""
        text = f"{func.name()} acts on other processes"
        self.block(reason(rules.COLLECTIVE, text, user_site()))
        if self.tape is not None:
            self.tape.close()  # what it reads has to be there
        self._note_writes(tensors_in((*args, *kwargs.values()), []))  # schemas do not say it
        return self._seen(func, *args, **kwargs)

    def _note_writes(self, written: list[torch.Tensor], *, counted: bool = True) -> None:
        for tensor in written:
            origin = self.ledger.origin(tensor)
            if origin is not None and origin[0] is not NEW and origin not in self.write_sites:
                self.write_sites[origin] = self._sites.here()
            if origin is not None and counted:
                self.counted.add(origin)
            if origin is not None and origin[0] == INPUT:
                self.written_inputs.add(origin[1])
            elif origin is not None and origin[0] == EXTERNAL:
                self.node.pure = False
                self.written_externals.add(origin[1])
            elif origin in self._constants:
                self._constants.discard(origin)
                if origin in self._over_arrays:  # whatever is written, another call writes something else
                    self.block(reason(rules.HOST_DATA, CHANGED, user_site()))
                elif tensor.is_cpu and not self._on_host:
                    text = "a tensor built on the host from plain data is changed in place"
                    self.block(reason(rules.HOST_DATA, text, user_site()))

    def _after(
        self, event: Event, facts: Facts, tensors: list[torch.Tensor], tokens: list[Token], out: Any
    ) -> None:
        """All that is noted of an operation once it has run."""
        if facts.reshapes:
            self._check_metadata(event, tensors, tokens)
        made = self.ledger.made
        first = tokens[0][1] if tokens else None
        if type(out) is torch.Tensor:
            event.shape = "one"
            event.results = (self._result(event, out, tensors, first, 0),)
        else:
            event.shape, parts = results_of(out)
            event.results = tuple(
                [self._result(event, part, tensors, first, position) for position, part in enumerate(parts)]
            )
        new = self.ledger.made - made == len(event.results)  # then none of them is a view
        if not new and event.kind == ev.CAPTURED and not facts.mutable and is_view(event, tokens):
            event.kind = ev.VIEW
        self._meet(event)

    def _check_metadata(self, event: Event, tensors: list[torch.Tensor], tokens: list[Token]) -> None:
        """An operation that gives a tensor made outside another shape would do so to a copy of it."""
        for tensor, token in zip(tensors, tokens, strict=True):
            if token[0][0] is NEW or not token.shape:
                continue
            if tensor.shape != token.shape or tensor.stride() != token.stride:
                text = f"{event.operation} changes the shape of a tensor made outside the call"
                self.block(reason(rules.RESHAPED, text, event.site))

    def _result(
        self, event: Event, part: Any, tensors: list[torch.Tensor], first: Look | None, number: int
    ) -> Any:
        """A token; the position of the operand that the result is; a value; or None where there is none.

        Args:
            event: The operation.
            part: The result, or one of several.
            tensors: The operands.
            first: What the first of them looks like, as do results of most operations.
            number: Which of the results it is.
        """
        if not isinstance(part, torch.Tensor):
            return None if part is None or event.kind == ev.ANYWHERE else self._value(event, part)
        for position, tensor in enumerate(tensors):
            if tensor is part:
                return position
        if part.is_meta:
            return None
        if first is None:
            return self.ledger.result(part, event.operation, event.site)
        guess = (event.operation, number)
        like = first.guesses.get(guess, first)
        token = self.ledger.result(part, event.operation, event.site, like=like)
        if token[1] is not like:
            first.guesses[guess] = token[1]
        return token

    def _value(self, event: Event, part: Any) -> Value:
        """A result that is no tensor: worked out from operands, it is given back where a path is followed."""
        if isinstance(part, torch.ScriptObject):
            text = f"{event.operation} returns a {type(part).__name__}, which a replay could not make"
            self.block(reason(rules.UNSUPPORTED_TENSOR, text, event.site))
        return Value.of(part)

    def _branch(self, event: Event, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if event.kind == ev.READ and args and self.mode is not Mode.FOLLOW:
            self._note_optimizer(args[0], event.site)
        checks, beside = facts_of(func).checks, facts_of(func).beside
        read = caught(func) if checks else func

        def run() -> Any:
            return read(*args, **kwargs)

        def keep() -> Any:
            return kept_call(read, args, kwargs, self.aliases)

        rule = rules.REFUSED if checks else rules.HOST_READ if beside else None
        out = self.branch(event, run, keep, shaped=event.kind == ev.SHAPED, rule=rule)
        if isinstance(out, Raised):
            raise out.again()
        return out

    def _note_optimizer(self, tensor: torch.Tensor, site: Site) -> None:
        """An optimizer reads on the host: a count it keeps blocks; a learning rate may have many values."""
        running = stepping()
        if running is None:
            self.node.excess = self.node.excess or average_reason(site)
            return
        origin = self.ledger.origin(tensor)
        if origin is not None and origin[0] is EXTERNAL and origin[1] in self.written_externals:
            why = count_reason(running, tensor, site)
            if why is not None:
                self.block(why)
        elif self.node.excess is None:
            self.node.excess = rate_read_reason(running, site)
