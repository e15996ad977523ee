"""The trace of one call: what lies outside of it, what it read there and what it wrote."""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from types import CodeType, FrameType, FunctionType
from typing import Any, cast

import numpy
import torch

from ....base import InternalError, identity, is_instance, is_own
from ...arguments import Call, GivenParts
from ...arguments import address_of as generator_address
from ...numbers import GLOBAL_GENERATORS, TrackedNumbers
from ...objects import Position, base_of, members, module_of, said_module, said_name, scripted
from ...pytorch import (
    EMPTY,
    NO_RUN,
    QUEUED,
    READY,
    RESTS,
    CallRun,
    Contact,
    GroupCall,
    LeftForwards,
    Reducers,
    scripted_names,
)
from ...state import CELL, HELD, ITEM, LAST, SCRIPTED, VARIABLE, Entry, Read, form_of, read, same
from ..bytecode import Swaps
from ..table import Rows
from .bindings import Bindings
from .callables import Callables, names_of
from .classes import Classes
from .effects import OutsideEffects
from .followed import FollowedNumbers
from .given import Given
from .kinds import is_readable, table
from .noted import Noted, Output, Setting
from .outside import Outside
from .running import RunningCode
from .writing import OutsideWrites
from .written import SlotChange, Slots, WrittenSlot, changed_members, contents, is_same, target_of

_OURS = f"{__name__.partition('.')[0]}."
_FROM_TEXT = "<string>"
"""The file of code that was made of text, as the methods of named tuples are."""

Aside = Callable[[Callable[[], Any]], Any]
"""Runs what is no part of the traced call, with no mode of rote's in force."""

_LYING = frozenset({ITEM, CELL, VARIABLE, HELD})
"""Kinds of reads that say what lies in a slot."""

_TENSORS = (torch.Tensor, torch.nn.Parameter)
"""The classes of what every call computes with."""


class Trace:
    """What one call reads and writes.

    Attributes:
        outside: The objects that were there before it, and what it reads of them.
        running: The code that runs, and what is not known of it.
        numbers: What of them changes from call to call, if anything does.
        followed: What becomes of these.
        seen: What was noted already, so that it is not looked at again; keys are the notes' own.
    """

    def __init__(
        self,
        swaps: Swaps,
        rows: Rows,
        answers: weakref.WeakValueDictionary[Any, Any],
        meet: Callable[[Any], None],
        aside: Aside,
        numbers: TrackedNumbers | None = None,
        run: CallRun = NO_RUN,
        *,
        keeps: bool = False,
    ) -> None:
        self.numbers = numbers
        self.kinds = table()
        self.seen: set[Any] = set()
        self.held: Counter[int] = Counter()  # how often the call has acquired locks, by their identity
        self.running = RunningCode(swaps, rows)
        self.followed = FollowedNumbers(numbers, self.running)
        self.outside = Outside(self.kinds, Slots(), self.running, self.followed, meet)
        self.classes = Classes(self.outside, self.seen)
        self.callables = Callables(self.outside)
        self.writes = OutsideWrites(self.outside, self.classes, self.callables, keeps=keeps)
        self._bindings = Bindings(self.outside)
        self._answers = answers
        self._aside = aside
        self._makes = False  # instances of classes of tensors
        self._run = run
        self._scripts: dict[int, Any] = {}
        self._output: dict[Output, None] = {}
        self._cached = list[tuple[Any, tuple[weakref.ref[torch.Tensor], ...]]]()
        self._contact: Contact | None = None
        self.collective: GroupCall | None = None  # that is about to be made
        self.reducers = Reducers(self._refuses_reducer, self._asks_reducer)
        self.settings: list[Setting] = []  # where the call has set random generators, in order
        # notes that something is about to be called: names of the last arguments, it, its arguments
        self.call: Callable[..., None] = rows.called(self)
        # identity of the exception that the caller is handling, and keeps; None if there is none
        self.handled: int | None = None
        self.around: Trace | None = None  # the trace of a call around this one, on the same thread
        self.at_work = False  # a note is being taken: what runs meanwhile is none of the call's
        # where ``print`` was called last: the identity of the frame, and its instruction
        self.printing: tuple[int, int] | None = None

    def take_back(self, slots: Iterable[tuple[str, int, Any]]) -> None:
        """What was given lies in these slots again, in place of what stood for it."""
        self.outside.slots.taken_back.update(self.outside.slots.carried.keys() & slots)

    def take(self, call: Call, given: GivenParts, stood: Mapping[int, torch.Tensor]) -> None:
        """The callable is about to be called with these arguments, perhaps once more."""
        outside = self.outside
        self.writes.put_back()
        names = call.names() if stood else []
        outside.arguments.update({identity(each): names[index] for index, each in stood.items()})
        outside.tensors.update(outside.arguments)
        before, outside.given = outside.given, Given()
        self.writes.forget_told()
        self.followed.begin_again()
        for kind in _TENSORS:
            self.classes.read_operators(kind)
        error = sys.exc_info()[1]
        self.handled = None if error is None else identity(error)
        outside.slots.begin_again(lambda container: before.branch(container) is not None)
        for place in call.carried:
            container = place.found()
            outside.slots.carried[place.kind, identity(container), place.key] = given[2][place.name]
            if place.kind == LAST and container is not None:
                outside.slots.last[identity(container), members.length(container) - place.key] = place.key
            outside.hold(container)
            outside.pin(container)  # what lies in another one's slot is not carried
        for name, value in outside.given.take(call, given):
            if outside.has(value) and identity(value) not in before.objects:
                outside.identify(value, "finds it in another argument, too")
            outside.find(value, None, name)
        self.followed.take_arrays(outside.given.arrays_of(call))
        for value in outside.given.shared:
            outside.identify(value, "shares its attributes with another argument")

    # ------------------------------------------------------------------ code

    def run_aside(self, call: Callable[[], Any]) -> Any:
        """Run what is no part of the call, with every function as it is."""
        before, self.at_work = self.at_work, True
        try:
            with self.running.swaps.withdrawn():
                return self._aside(call)
        finally:
            self.at_work = before

    def is_tool(self, code: CodeType) -> bool:
        """Whether code is of what takes notes."""
        file = code.co_filename
        if file != _FROM_TEXT:
            return is_own(file)
        return identity(code) in _makers_of_tuples()

    def original(self, code: CodeType) -> CodeType:
        """What code was before it was made to tell what it reads."""
        return self.running.swaps.original(code)

    def ran_apart(self, code: CodeType, frame: FrameType) -> bool:
        """Python code was entered that is not followed; whether that counts."""
        return self.running.ran_apart(code, frame)

    def entered(self, code: CodeType, frame: FrameType) -> None:
        """Code that C calls was entered: the names by which a class has it are read."""
        try:
            value = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
            kind: Any = value if issubclass(type(value), type) else type(value)
            if (kind, identity(code)) not in self.seen:
                self.outside.hold((kind, code))
                self.seen.add((kind, identity(code)))
                for name in names_of(kind, code, self.original):
                    self.classes.read(kind, name)
        except Exception as error:  # the call itself is none the worse for it
            self.running.failed("entered", error)

    def same_answer(self, key: tuple[Any, ...], function: Callable[[], str]) -> Callable[[], str]:
        """What an earlier trace has asked in place of ``function``, if that is still asked by a recording.

        A guard of two calls would ask both.
        """
        return self._answers.setdefault(key, function)

    # ------------------------------------------------------------------ in C

    def has_filled(self, array: Any) -> bool:
        """Whether replays may make an array of the result: no slot holds it that they do not bind."""
        slots, bound, base = self.outside.slots, self._bindings.bound, base_of(array)
        held = [each.now() for each in slots.written.values() if each.address not in bound]
        left = [each.container for each in slots.changed.values() if each.address not in bound]
        held += [part for each in left if is_readable(each) for part in members.values(each)]
        kept = any([type(each) is numpy.ndarray and base_of(each) is base for each in held])
        return not kept and self.outside.has_filled(array)

    def acts(self, name: str) -> None:
        """A function in C of PyTorch's distributed code is about to be called."""
        self._contact = self._contact or Contact(name, self.running.site(), wraps=False)

    def _refuses_reducer(self, what: str, soon: bool) -> None:
        self._contact = self._contact or Contact(what, self.running.site(), wraps=True, soon=soon)

    def _asks_reducer(self, check: Callable[[], str]) -> None:
        self.outside.find(check, None, "the reducer of DistributedDataParallel")
        self.outside.answers(check, READY)

    def left_forwards(self) -> list[LeftForwards]:
        """The call has returned: what it leaves behind for a backward of FSDP's to come.

        A backward looks at the forwards that there were before the call, so there may be none.
        """
        forwards, running = self.outside.forwards, self.running
        if any([each.key == QUEUED for each in self.outside.slots.written.values()]):
            asks = forwards.rested()
            if asks is None:
                running.refuse(
                    "fully_shard", "has a backward, with forwards before or behind it that have none"
                )
            for ask in asks or ():
                self.outside.find(ask, None, "what FSDP does")
                self.outside.answers(ask, RESTS)
            return []
        steps = forwards.left()
        if steps is None:
            running.refuse("fully_shard", "changes the list of forwards without a backward")
        return steps or []

    def take_collective(self) -> GroupCall | None:
        """The collective that was about to be made, and is."""
        found, self.collective = self.collective, None
        return found

    # ------------------------------------------------------------------ storages

    def knows_size(self, storage: torch.UntypedStorage) -> bool:
        """Whether the size of a storage is known: it is empty, or the call has resized it."""
        emptied = self.outside.emptied
        if emptied.has(storage):
            return True
        if storage.nbytes():
            return False
        if self._run.has_made(storage):
            return True
        if not emptied.any():
            self.outside.find(emptied, None, "the storages of tensors")
            self.outside.answers(emptied, EMPTY)
        emptied.add(storage)
        return True

    def resizes(self, storage: torch.UntypedStorage, nbytes: int) -> None:
        """A storage is about to get memory, or to lose it."""
        if not (self.knows_size(storage) and self._run.resize(storage, nbytes)):
            text = "resizes the storage of a tensor, which has memory"
            self.running.refuse("torch.UntypedStorage.resize_", text)

    def writes_output(self, output: Output) -> None:
        """The call writes something for somebody to read, once in a line that is enough to tell."""
        self._output[output] = None

    def makes(self, kind: type) -> None:
        """The call that is noted makes an instance of a class of tensors, by the constructor in C."""
        self._makes = True
        self._run.makes(kind, self.running.frame())

    def asks_cache(self, function: Any, args: Iterable[Any]) -> bool:
        """A function with a cache is called; whether tensors of the call's own are among the arguments.

        Each of them is another one, so the cache does not have the answer, and nobody finds what it keeps.
        """
        made = [
            each for each in args if is_instance(each, torch.Tensor) and not self.outside.has_tensor(each)
        ]
        if made:
            self._cached.append((function, tuple(map(weakref.ref, made))))
        return bool(made)

    def runs_script(self, script: Any) -> None:
        """Code of TorchScript is about to run: it reads attributes that lie in C++, of any of its modules."""
        self._run.runs_script()
        if identity(script) in self._scripts:
            return
        self._scripts[identity(script)] = script
        for value in list(self.outside.values()):
            if issubclass(type(value), torch.jit.ScriptModule):
                self._read_script(value)

    def _read_script(self, module: torch.jit.ScriptModule) -> None:
        for name in scripted_names(module):
            self.outside.read(SCRIPTED, module, name, scripted(module, name), f".{name}")
        for name, each in module.named_children():
            self.outside.find(each, module, f".{name}")
            self._read_script(cast(torch.jit.ScriptModule, each))

    # ------------------------------------------------------------------ random generators

    def sets(self, generator: torch.Generator, state: Any) -> None:
        """The call sets the state of a random generator, perhaps to what a tensor holds."""
        address = generator_address(generator)
        given = isinstance(state, torch.Tensor) and self.outside.has_tensor(state)
        setting = Setting(address, self.outside.has(generator), state, given, self.running.site())
        self.settings.append(setting)

    def looks_at_state(self, generator: Any) -> None:
        """A generator is not drawn from but looked at, or set: nothing is drawn from it by replays, too."""
        if self.followed.is_drawn_from(generator):
            name = self.outside.name(generator)
            self.running.refuse(name, "looks at the state of a random generator, or sets it")

    def draws(self, generator: Any, *, draws: bool) -> None:
        """The call draws a number from a random generator made outside, or sets it.

        A call that leaves the generator as it was is right where it is that.
        """
        self.followed.draw(generator)
        if draws and self.followed.is_drawn_from(generator):
            self.outside.pin(generator)
            return
        self.looks_at_state(generator)
        if any(generator is each for each in GLOBAL_GENERATORS):
            library = type(generator).__module__.partition(".")[0]
            self.outside.find(generator, None, f"the generator of {library}")
            self.outside.read_held(generator)
        else:
            self.writes.change(generator)

    # ------------------------------------------------------------------ the end

    def bound(
        self,
        value: Any,
        often: Collection[tuple[str, int, Any]] = (),
        by_value: Collection[object] = (),
        *,
        others: bool = True,
    ) -> Any:
        """The call has returned: its result, with the slots outside that it has bound to something else.

        Slots that calls have often bound to something else are bound if nothing changes, too; ``others`` need
        a change. A number in the slots ``by_value`` is bound where it was another one before.
        """
        return self._bindings.of(value, often, by_value, others=others)

    def changes(self) -> Iterator[SlotChange]:
        """What is not as the call found it, slot by slot; what holds again what it held is left out."""
        outside, slots = self.outside, self.outside.slots
        for each in slots.written.values():
            now = each.now()
            if not is_same(each.was, outside.form(now)):
                yield self._change(each, each.suffix, each.kind, each.key, each.was, now)
        grown = {which: each.written for which, each in slots.growing.items()}
        for each in {**slots.changed, **grown}.values():
            held = contents(each.container)
            for suffix, key, was, now in changed_members(each.container, each.was, held):
                yield self._change(each, suffix, ITEM if suffix.startswith("[") else "", key, was, now)
        told = slots.changed.keys() | grown.keys()
        for address, each in list(outside.reads.items()):  # C may have changed it
            if each.kind not in _LYING or address in slots.written or type(each.value) is Position:
                continue
            now = read(Entry(*each[:4], each))
            if told.isdisjoint((address[1], identity(now))) and not same(
                each.value, form_of(each.value, now)
            ):
                yield self._change(each, each.suffix, each.kind, each.key, each.value, now)

    def _change(
        self, slot: WrittenSlot | Read, suffix: str, kind: str, key: Any, was: Any, now: Any
    ) -> SlotChange:
        names = self.outside.names
        owners = tuple([self.outside.get(owner) for owner in names.owners(slot.owner)])
        site = slot.site if isinstance(slot, WrittenSlot) else None
        return SlotChange(names.path(slot.owner, suffix), kind, slot.container, key, was, now, owners, site)

    def finish(self) -> Noted:
        """All that was noted; nothing is held any more."""
        outside, running, slots = self.outside, self.running, self.outside.slots
        self.followed.end()
        self.reducers.end()
        for each in [value for which, value in outside.items() if self.held[which] > 0]:
            running.refuse(outside.name(each), f"acquires {outside.name(each)} and does not release it")
        for each in [said for ask in outside.resting.values() if (said := ask()) != RESTS]:
            running.refuse("fully_shard", f"leaves {each}")
        effects = tuple(OutsideEffects(outside, self._bindings.bound).found())
        self.followed.put_back(
            (target_of(each.kind, each.container, each.key, outside.get(each.owner), ""), each.now())
            for each in slots.written.values()
        )
        self.followed.put_members_back(slots)
        outside.carry_replaced()
        scripts = tuple(self._scripts.values())
        noted = Noted(
            outside.all_reads(), effects, running.unseen, running.late, tuple(self._output),
            self.followed.draws, outside.reads_arrays,
            tuple(outside.given.missing), scripts, self._contact,
            self.callables.has_switched or self._makes, running.trusts or bool(scripts),
            outside.tells_tensors, frozenset(self.reducers.buckets),
            outside.emptied.any() or outside.forwards.any(),
            self.writes.turns or bool(slots.changed or slots.growing or slots.reordered),
            tuple(self._cached),
        )  # fmt: skip
        for each in (outside, slots, self.classes, self.writes):
            each.let_go()
        for held in (self._scripts, outside.under_tensors, self.followed.drawn):
            held.clear()
        self._run = NO_RUN
        self._aside = _over  # it leads to what ran the call
        return noted


def _over(call: Callable[[], Any]) -> Any:
    raise InternalError("something is to run beside a call that is over")


@cache
def _makers_of_tuples() -> frozenset[int]:
    """The code by which named tuples of ours are made, by its identity: thousands are in a traced call."""
    ours = [kind for kind in tuple.__subclasses__() if said_module(kind).startswith(_OURS)]
    made = [kind.__new__ for kind in ours if module_of(kind)]
    codes = [each.__code__ for each in made if type(each) is FunctionType]
    return frozenset(identity(code) for code in codes if code.co_filename == _FROM_TEXT)


def handled_kind() -> str | None:
    """The class of the exception that is being handled where this is called, by its name."""
    kind = sys.exc_info()[0]
    return None if kind is None else said_name(kind)
