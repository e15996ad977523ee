"""Host data on its way into and out of tensors, seen above the dispatcher.

``torch.tensor`` and similar functions read Python lists and numpy arrays below the dispatch mode, and
``numpy()`` and ``tolist()`` hand memory out there; the text of a tensor is made where no mode is active. This
function mode catches them by name.

Data from plain Python values are constants of the path: they are compared between calls, and the state they
come from is under guard. A numpy array that outlives the call is read again at every replay; the tracer sees
``from_numpy`` itself. An array that changes inside the call cannot be made again without Python, so such a
call stays eager. Operations that read tensors in the same way are in :mod:`.composites`.

All other functions pass through. Functions in C lead straight to the tracer. The profiler that watches the
callable on Python 3.11 is off until then, unless the user's code may run on the way: to give the value of an
operand, or to save one for a backward.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial
from types import (
    BuiltinFunctionType,
    FunctionType,
    GetSetDescriptorType,
    MethodDescriptorType,
    WrapperDescriptorType,
)
from typing import Any, NamedTuple, cast

import numpy
import torch
import torch.utils.checkpoint
from torch.overrides import TorchFunctionMode

from ...base import Lines, identity, running_lines, user_site
from ...hazards import rules
from ...hazards.rules import Rule, reason
from ..arguments import is_plain
from ..autograd import GradientUse
from ..autograd.graph import nodes_below
from ..numbers import INDEX_TYPES, TrackedNumbers
from ..objects import form_of, pointer_of
from ..operators import tensors_of
from ..program import (
    INPUT,
    HostBytes,
    HostValues,
    Operation,
    below_transforms,
    history_of,
    in_backwards,
    operand_of,
    replaced_kernels,
    saving_is_hooked,
    unwrapped,
)
from ..program import operations as ops
from ..pytorch import is_wrapped
from ..state import get_profile, set_profile
from .composites import COMPOSITES, call_composite
from .elements import (
    PUT,
    TakenView,
    WrittenPlace,
    asks_nothing,
    choose,
    index_with_numbers,
    is_mask_of,
    may_be_selected,
    may_be_stored,
    places_of,
    put_at,
    read_at,
)
from .elements import READS_PLACE as _READS_PLACE
from .path import (
    BuiltNumbers,
    HandedNumbers,
    Mode,
    ReadArray,
    ReadList,
    built_of,
    factors_in,
    given_numbers,
    in_list,
    may_be_handed,
)
from .tracer import Tracer

_Tensor: Any = torch.Tensor
_BUILDERS = frozenset({torch.tensor, torch.as_tensor, torch.asarray, _Tensor.new_tensor})
_CONVERTS = frozenset({torch.tensor, torch.as_tensor, torch.asarray})
"""Those that convert as ``to`` does."""
_MADE = frozenset({"data", "dtype", "device"})
_ENGINE = frozenset({_Tensor.backward, torch.autograd.backward, torch.autograd.grad})
_HOOKS = frozenset({
    _Tensor.register_hook, _Tensor.register_post_accumulate_grad_hook, _Tensor.retain_grad,
    _Tensor.grad_fn.__get__,
})  # fmt: skip
_SLOT = frozenset({_Tensor.grad.__get__, _Tensor.grad.__set__, _Tensor.grad.__delete__})
_PLACE = frozenset({
    _Tensor.grad.__get__, _Tensor.is_leaf.__get__, _Tensor.output_nr.__get__, _Tensor.grad_fn.__get__,
})  # fmt: skip
"""What tells where in a graph a tensor is."""
_FLAGS = frozenset({_Tensor.requires_grad.__get__, _Tensor.is_leaf.__get__, _Tensor.grad_fn.__get__})
_FREEZES = frozenset({_Tensor.requires_grad_, _Tensor.requires_grad.__set__})
_DETACHES = frozenset({_Tensor.detach_, torch.detach_})
_ASKS_PLACE = frozenset({
    _Tensor.storage_offset, _Tensor.data_ptr, getattr(_Tensor, "const_data_ptr", _Tensor.data_ptr),  # 2.12
    _Tensor.is_set_to, _Tensor._is_view, _Tensor._base.__get__, _Tensor.is_pinned, torch.Tensor.is_shared,
    _Tensor.untyped_storage, _Tensor.storage, _Tensor._typed_storage,
})  # fmt: skip
"""What tells where a tensor lies."""
_TELLS_PLACE = _ASKS_PLACE - {_Tensor.untyped_storage, _Tensor.storage, _Tensor._typed_storage}
"""What tells it at once; a storage is asked for more."""
_NOT_ASKING = ("torch._dynamo.", "torch._functorch.", "torch._inductor.", "rote.")
"""Packages that ask for what the call does not see."""
_TOLD_OTHERWISE = frozenset({
    "H", "T", "_backward_hooks", "_base", "_cdata", "_grad", "_grad_fn", "_post_accumulate_grad_hooks",
    "_version", "data", "grad", "imag", "mH", "mT", "output_nr", "real", "retains_grad",
})  # fmt: skip
"""Attributes that are views, say nothing of how a tensor lies, or are noted by a rule of their own."""
_LOOKS = _FLAGS | _FREEZES | _DETACHES | frozenset({
    *[
        each.__get__ for name, each in vars(_Tensor.__base__).items()
        if type(each) is GetSetDescriptorType and name not in _TOLD_OTHERWISE
    ],
    *(_Tensor.size, _Tensor.dim, _Tensor.ndimension, _Tensor.numel, _Tensor.nelement, _Tensor.__len__),
    *(_Tensor.stride, _Tensor.is_contiguous, _Tensor.is_floating_point, _Tensor.is_complex),
    *(_Tensor.is_signed, _Tensor.is_conj, _Tensor.is_neg, _Tensor.type, _Tensor.storage_type),
    *(_Tensor.dim_order, _Tensor.element_size, _Tensor.get_device, _Tensor.is_same_size, torch.is_same_size),
    *(torch.numel, torch.is_floating_point, torch.is_complex, torch.is_signed, torch.is_conj, torch.is_neg),
    *(torch.get_device, torch.result_type, torch.typename),
})  # fmt: skip
"""What is asked of a tensor without an operation, and the answer to which ``.data = ...`` may change."""
_TOUCHES = frozenset({
    *(_Tensor.register_hook, _Tensor.register_post_accumulate_grad_hook, _Tensor.retain_grad),
    *(_Tensor._backward_hooks.__set__, _Tensor.detach_, torch.detach_),
})  # fmt: skip
_ESCAPES = frozenset({
    _Tensor.numpy, _Tensor.__array__, _Tensor.__dlpack__, torch.to_dlpack,
    _Tensor.apply_, _Tensor.map_, _Tensor.map2_,
})  # fmt: skip
_WHOLE = "numpy"
"""The read of all numbers of a tensor, in an array."""
MOST_READ = 1 << 16
"""Bytes of an array that are compared at each replay."""
_READ = "numpy() hands the memory of a tensor to code that reads or writes it past PyTorch"
_LENDS = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})
_ASKED = _HOOKS | _SLOT | _PLACE | _FREEZES
_REBINDS = _Tensor.data.__set__
_INDEXING = frozenset({list, numpy.ndarray})
_INDEXING_ALONE = _INDEXING | {tuple}
"""Types of indices of which PyTorch makes tensors."""
_INDEXES = frozenset({_Tensor.__getitem__, _Tensor.__setitem__})
_CHECKPOINT = torch.utils.checkpoint.__file__
"""Looks at a history of its own in torch 2.11; that a call checkpoints is a reason by itself."""
_BY_INDEX = "aten::index.Tensor"
_GIVES_NUMBER = frozenset({_Tensor.item, _Tensor.__float__, _Tensor.__int__, _Tensor.__index__})
_TO_PYTHON = frozenset({_Tensor.tolist, _Tensor.__repr__, _Tensor.__format__})
_SPECIAL = _BUILDERS | _ENGINE | _ASKED | _ESCAPES | COMPOSITES | _TO_PYTHON | {_REBINDS}
_NOTED = _SPECIAL | _LOOKS | _TOUCHES
_IN_C = (BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType)
_OF_PROPERTY = type(_Tensor.shape.__get__)
_PLAIN = frozenset({
    torch.Tensor, torch.nn.Parameter, torch.Size, torch.dtype, torch.device,
    int, float, bool, str, type(None),
})  # fmt: skip


def _method_behind(func: Any) -> Any:
    """The method in C that was called, where the user has put a function in its place in ``torch.Tensor``.

    PyTorch names a method to a mode by what the class has under its name. Without a mode, a method in C that
    such a function calls is that method, and not the function once more.
    """
    if type(func) is _OF_PROPERTY:
        return func  # it is made anew each time, so no class has it
    if type(func) is FunctionType and str(func.__globals__.get("__name__")).partition(".")[0] == "torch":
        return func
    names = [name for name, value in vars(_Tensor).items() if value is func]
    found = [getattr(_Tensor.__base__, name, None) for name in names]
    return next((each for each in found if type(each) in _IN_C), func)


class LentTensor(NamedTuple):
    """A tensor over whose memory the call has made an array, and how often it was written until then."""

    tensor: torch.Tensor
    written: int
    writes_of: Callable[[torch.Tensor], int]

    @property
    def is_written(self) -> bool:
        """Whether it was written since."""
        return self.writes_of(self.tensor) != self.written


class HostDataMode(TorchFunctionMode):
    """The function mode beside a tracer."""

    def __init__(
        self,
        tracer: Tracer,
        use: GradientUse,
        given: Mapping[int, bool],
        is_shown: Callable[[], bool],
        numbers: TrackedNumbers | None = None,
        lend: Callable[[Any, Callable[[bool], bool]], None] = lambda array, stray: None,
        whole: Collection[Lines] = (),
        selecting: Collection[Lines] = (),
    ) -> None:
        super().__init__()
        self._lend = lend
        self._whole = whole
        self._selecting = selecting
        self.strayed: dict[Lines, None] = {}  # which lines have made arrays that are read
        self.read: list[LentTensor] = []  # those of which all numbers were read then
        self._numbers = numbers if numbers is not None and numbers.follows else None
        self._checks = numbers is not None and not numbers.follows
        self._places = numbers
        self._tracer = tracer
        self._runner = tracer.runner
        self._use = use
        self._given = given  # whether each tensor argument requires grad, by its identity
        self._is_shown = is_shown
        self._replaced = replaced_kernels()
        self.roots: list[torch.Tensor] = []
        self.frees = False  # autograd has gone through a graph: what it has saved may be gone
        self.lent: list[LentTensor] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if type(func) not in _IN_C:
            func = _method_behind(func)
        if kwargs and isinstance(generator := kwargs.get("generator"), torch.Generator):
            self._tracer.generators.meet(generator)
        if func in _GIVES_NUMBER and self._numbers is not None:
            self._numbers.leave_unseen()
            found = self._numbers.undisturbed(partial(func, *args, **kwargs or {}))
            return self._numbers.hand(self._numbers.read(found))
        if kwargs and (factors := factors_in(func, kwargs)):
            kwargs = {**kwargs, **{name: self._read_number(kwargs[name]) for name in factors}}
        if func in _INDEXES and type(args[1]) in _INDEXING_ALONE:
            args = args[0], self._without_lists(args[0], args[1]), *args[2:]
        if self._tracer.selected.known and self._ends_selected(func, args, kwargs or {}):
            return None
        if func is _Tensor.__getitem__ and self._selects(args):
            lazily = self._is_written_back()
            return self._tracer.select(args[0], args[1], partial(func, *args), lazily=lazily)
        if self._places is not None and func in _INDEXES:
            args = args[0], index_with_numbers(args[1], self._read_number), *args[2:]
        if self._places is not None and func in _READS_PLACE:
            taken = self._take(self._places, func, args, kwargs or {})
            if taken is not None:
                return taken
        if func in _ASKS_PLACE:
            self._ask_place(func, args)
        if self._places is not None and func is _Tensor.__setitem__:
            tensor, key, new = args
            if may_be_stored(tensor, key, new):
                return self._store(tensor, key, new)
            if self._tracer.taken.is_back(tensor, key, new, self._places) and self._settles(key):
                return None  # what an operation in place has written there already
        if self._numbers is not None and self._numbers.owed:
            return self._with_numbers(self._numbers, func, args, kwargs or {})
        if func in _NOTED:
            return self._noted(func, args, kwargs or {})
        checks = self._checks and func is _Tensor.__setitem__ and self._tracer.host.writes_at_position
        if checks and self._put(None, *args):
            return None
        profiler = self._runner.profiler
        if profiler is None or type(func) not in _IN_C or get_profile() is not profiler:
            return func(*args, **kwargs) if kwargs else func(*args)
        set_profile(None)  # on the way to the tracer's handler it would be told of PyTorch's own calls
        if (
            kwargs  # operands of other types may be asked for numbers or elements, by the user's code
            or not _PLAIN.issuperset(map(type, args))
            or self._replaced
            or (torch.is_grad_enabled() and saving_is_hooked())
        ):
            set_profile(profiler)
            return func(*args, **(kwargs or {}))
        try:
            return func(*args)
        finally:
            set_profile(profiler)

    def _with_numbers(
        self, numbers: TrackedNumbers, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call a function that is given numbers which change."""
        if func is _Tensor.__setitem__ and self._put(numbers, *args):
            return None
        given = given_numbers(numbers, args, kwargs)
        if func in _BUILDERS and numbers.stopped is None:
            return self._build_with_numbers(numbers, func, args, kwargs)
        if func in _NOTED or not given or not may_be_handed(func, args, kwargs):
            numbers.settle_owed()
            return self._noted(func, args, kwargs) if func in _NOTED else func(*args, **kwargs)
        owed = numbers.take_owed()
        handed = HandedNumbers(numbers, getattr(func, "__name__", ""), given)
        kept: list[int] = []
        try:
            result = self._tracer.hand(handed, lambda: func(*args, **kwargs))
            if handed.is_handed and self._tracer.follows_back(result, handed.taken):
                kept = [id(part) for each in handed.taken.values() for part in in_list(each)]
        finally:
            parts = [part for each in given.values() for part in in_list(each)]
            numbers.pin(*[each for each in (*owed, *parts) if id(each) not in kept])
        return result

    def _store(self, tensor: torch.Tensor, key: Any, number: Any) -> None:
        """Store a number in elements of a tensor, by operations that take it as it is."""
        owed = self._numbers.take_owed() if self._numbers is not None else []

        def call(func: Any, *args: Any, **kwargs: Any) -> Any:
            return self.__torch_function__(func, (), args, kwargs)

        def give(*values: Any) -> None:
            if self._numbers is not None:
                self._numbers.owe(*values)

        give(number)
        if is_mask_of(key, tensor):
            call(_Tensor.masked_fill_, tensor, key, number)
            return
        stored = call(torch.full, (), number, dtype=tensor.dtype, device=tensor.device)
        give(*[each for each in owed if each is not number])
        call(_Tensor.__setitem__, tensor, key, stored)

    def _settles(self, key: Any) -> bool:
        """Whether what a function is given of numbers that change is an index, which is no condition then."""
        owed = self._numbers.owed if self._numbers is not None else {}
        parts = cast("tuple[Any, ...]", key) if type(key) is tuple else (key,)
        ends = [(part.start, part.stop) if type(part) is slice else (part,) for part in parts]
        known = owed.keys() <= {identity(end) for part in ends for end in part}
        if known and self._numbers is not None:
            self._numbers.take_owed()
        return known

    def _put(self, numbers: TrackedNumbers | None, tensor: Any, key: Any, new: Any) -> bool:
        """Write a tensor at a position that changes, if that is understood; a check has no numbers."""
        places = places_of(tensor, key, new, numbers)
        if places is None:
            return False
        ends = [end for each in places for end in each.ends]
        if numbers is not None:
            if numbers.stopped is not None or set(numbers.owed) - {identity(end) for end in ends}:
                return False
            numbers.take_owed()
        indices = [self._index_at(numbers, tensor, each) for each in places]
        put_at(tensor, places, indices, new)
        return True

    def _index_at(
        self, numbers: TrackedNumbers | None, tensor: torch.Tensor, place: WrittenPlace
    ) -> torch.Tensor:
        """The index of a position in a dimension, which a replay makes again."""
        values, made = cast("Any", place.ends), None
        followed = built_of(numbers, place.ends) if numbers is not None else None
        if numbers is not None and followed is not None:
            values, made = followed.values, place.made(numbers, tensor)
            place.ask(numbers, tensor.shape[place.dim])

        def build() -> torch.Tensor:
            return WrittenPlace(place.dim, BuiltNumbers(values).now()).index().to(tensor.device)

        host, token = self._tracer.host, self._tracer.cursor.storages.token
        data = HostValues(operand_of(values, token), (), torch.int64, tensor.device.type)
        return host.computed_tensor(host.aside(build), PUT, data, build, made)

    def _read_number(self, tensor: torch.Tensor) -> Any:
        """The number that C would read from a tensor that is given where it takes a number."""
        if self._numbers is None:
            return tensor.item()
        self._numbers.leave_unseen()
        number = self._numbers.read(tensor.item())
        self._numbers.owe(number)
        return number

    def _without_lists(self, tensor: torch.Tensor, key: Any) -> Any:
        """An index with tensors for its lists of numbers.

        PyTorch would make the same tensors below the dispatcher, where nobody sees the copy to a GPU that
        fails in a capture.
        """
        if type(key) is not tuple:
            return self._index_of(tensor, key)
        if _INDEXING.isdisjoint(map(type, key)):
            return key
        return tuple([self._index_of(tensor, each) if type(each) in _INDEXING else each for each in key])

    def _index_of(self, tensor: torch.Tensor, numbers: Any) -> Any:
        if type(numbers) is numpy.ndarray:
            return self._index_of_array(tensor, numbers)
        kinds = {type(each) for each in numbers}
        if kinds != {int} and kinds != {bool}:
            return numbers
        data = {"dtype": torch.int64 if kinds == {int} else torch.bool, "device": tensor.device}
        if self._numbers is not None and built_of(self._numbers, numbers) is not None:
            return self._build_with_numbers(self._numbers, torch.tensor, (numbers,), data)
        return self._build(torch.tensor, (numbers,), data)

    def _index_of_array(self, tensor: torch.Tensor, array: Any) -> Any:
        """An index for an array that the call has made; it may be written afterwards, so it is copied."""
        numbers, host = self._numbers, self._tracer.host
        if array.dtype.type not in INDEX_TYPES or not array.ndim:
            return array
        if form_of(array) is not None and host.under(array) is not None:
            return array
        if numbers is not None and numbers.expression(array) is not None:
            numbers.take_owed(array)
        elif not host.is_made(pointer_of(array)):
            return array
        return self._build(torch.tensor, (array,), {"device": tensor.device})

    def _selects(self, args: tuple[Any, ...]) -> bool:
        """Whether a tensor is indexed by a mask, which is understood where that is only written back."""
        tracer = self._tracer
        fits = len(args) == 2 and type(args[1]) is torch.Tensor and may_be_selected(*args)
        if not fits or tracer.cursor.blockers or args[0].device != tracer.cursor.device:
            return False
        return not (tracer.taken.among(args) or tracer.selected.among(args))

    def _is_written_back(self) -> bool:
        """Whether calls have only written back what this line selects; a recorded one tells itself."""
        cursor = self._tracer.cursor
        if cursor.mode is not Mode.FOLLOW:
            return running_lines() in self._selecting
        known = cursor.expected
        return known is None or (known.kind, known.name, known.site) != (ops.SHAPED, _BY_INDEX, user_site())

    def _ends_selected(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a function has written back what a mask has selected; other uses may not be understood."""
        tracer, selected = self._tracer, self._tracer.selected
        found = [] if asks_nothing(func) else selected.among(tensors_of(args, kwargs))
        if not found:
            return False
        site = user_site()
        target, back = args[0], found[0]
        ends = func is _Tensor.__setitem__ and len(found) == 1
        ends = ends and selected.ends_at(target, args[1], args[2], tracer.cursor.done)
        if not ends or tracer.taken.among(args) or tracer.unwritten.reasons("", [target], site):
            tracer.stray_selected(found)
            return False
        selected.back.update(back.lines)
        if back.all is None:
            with selected.aside(args[2]):
                self.__torch_function__(func, (), args)
        else:
            choose(args[1], back.all, target)
        return True

    def _take(
        self, numbers: TrackedNumbers, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> torch.Tensor | None:
        """Read a tensor at a position that changes, if that is understood."""
        read = read_at(func, args, kwargs)
        if read is None or args[0].device != self._tracer.cursor.device:
            return None
        tensor, outer = args[0], self._tracer.taken.find(args[0])
        moving = [each for each in read if each.moves(numbers)]
        known = {identity(each) for place in moving for each in place.numbers}
        lines = running_lines() if moving else ()
        moves = bool(moving) and all([each.fits(tensor) for each in moving])
        moves = moves and not set(numbers.owed) - known and not self._tracer.cursor.blockers
        if not numbers.takes_next(lines, self._tracer.cursor.way, moves=moves):
            return None
        view = self._tracer.host.aside(lambda: func(*args, **kwargs))
        if numbers.follows:
            numbers.take_owed()
            for each in moving:
                each.ask(numbers, tensor.shape[each.dim])
        key = (args[1], (tuple(view.shape), view.stride())) if func is _Tensor.__getitem__ else None
        terms = tuple([(each.numbers[0], tensor.stride(each.dim)) for each in moving])
        rest = view.storage_offset() - tensor.storage_offset()
        rest -= sum([position * step for position, step in terms])
        if outer is not None:
            terms, rest = (*outer.terms, *terms), outer.rest + rest
        base = tensor if outer is None else outer.base
        self._tracer.take(view, TakenView(base, terms, rest, lines, key))
        return view

    def _noted(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function after noting what it tells of the call, or call it in another way."""
        if func in _LOOKS:
            sets = func in _FREEZES or func in _DETACHES
            self._look_at(args, flags=sets or func in _FLAGS, sets=sets)
        if func in _TOUCHES and args and isinstance(args[0], torch.Tensor):
            self._use.touch(args[0])
        if func not in _SPECIAL:
            return func(*args, **kwargs)
        if func in _BUILDERS:
            return self._build(func, args, kwargs)
        if func == _REBINDS:  # each look at it makes another one
            self._tracer.host.aside(lambda: self._tracer.rebound.note(args[0]))
            return func(*args)
        if func is _Tensor.tolist:
            return self._to_list(args[0])
        if func is _Tensor.__repr__:
            return self._text(args[0], func, **kwargs)
        if func is _Tensor.__format__:  # of a single number it reads that, by an operation
            return func(*args) if args[1] or not args[0].dim() else self._text(args[0], func, args[1])
        if func in COMPOSITES:
            return call_composite(self._tracer, self._looked_at, func, args, kwargs)
        if func is _Tensor.numpy and self._can_lend(args[0], kwargs):
            return self._as_array(args[0])
        if func is _Tensor.__array__ and self._can_lend(args[0], {}):
            found, dtype = self._as_array(args[0], at_once=True), kwargs.get("dtype")
            return found if dtype is None else found.astype(dtype, copy=False)
        if func in _ESCAPES and args and isinstance(args[0], torch.Tensor):
            self._block(rules.MEMORY_ESCAPE, f"{func.__name__}() hands the memory of a tensor out of PyTorch")
        elif func in _ENGINE:
            self._note_backward(func, args, kwargs)
            with in_backwards(_InBackward(self)):
                return func(*args, **kwargs)
        elif func in _HOOKS:
            if sys._getframe(1).f_code.co_filename != _CHECKPOINT:  # pyright: ignore[reportPrivateUsage]
                self._use.hook = self._use.hook or user_site()
                self._note_place(func, args)
        else:
            self._note_question(func, args, kwargs)
        return func(*args, **kwargs)

    def _note_question(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The call asks a tensor for its gradient, history or whether it requires grad, or sets that."""
        tensor = args[0]
        if func in _SLOT:
            self._use.look(tensor, self._tracer.cursor.storages)
        self._note_place(func, args)
        if func in _FREEZES and id(tensor) in self._given:
            flag = args[1] if len(args) > 1 else kwargs.get("requires_grad", True)
            if tensor.requires_grad is not flag:  # what stays so with the caller is told at the end
                self._use.asked = self._use.asked or user_site()
                self._use.gradient = True  # or hooks that were put there before

    def _note_place(self, func: Any, args: tuple[Any, ...]) -> None:
        """The call may ask where in the caller's graph an argument is, which nothing in its place tells.

        That there is nothing in the ``.grad`` of a leaf is told by the key.
        """
        tensor = args[0]
        tracked = self._given.get(id(tensor))
        if tracked is None or func not in _PLACE:
            return
        is_slot = func in _SLOT and tensor.is_leaf
        self._use.gradient = self._use.gradient or is_slot
        if self._use.was_filled(tensor) if is_slot else tracked:
            self._use.state = self._use.state or user_site()

    def _ask_place(self, func: Any, args: tuple[Any, ...]) -> None:
        """The call asks where tensors lie: an argument, or a view of one, lies elsewhere in a replay.

        What PyTorch's compiler makes of the answer is a call that does the same. Rote asks for itself.
        """
        if taken := self._tracer.taken.among(args):
            self._tracer.stray(taken)
        asker = str(sys._getframe(2).f_globals.get("__name__"))  # pyright: ignore[reportPrivateUsage]
        tells = func in _TELLS_PLACE and not asker.startswith(_NOT_ASKING)
        tensors = self._look_at(args) if tells else []
        origins = map(self._tracer.cursor.storages.origin, tensors)
        if any([origin is not None and origin[0] is INPUT for origin in origins]):
            asked = getattr(func, "__self__", func).__name__
            text = f"the call asks for {asked} of an argument or a view of one"
            self._block(rules.UNKNOWN_CODE, f"{text}, which lies elsewhere in a replay")

    def _look_at(
        self, args: tuple[Any, ...], *, flags: bool = False, sets: bool = False
    ) -> list[torch.Tensor]:
        """Note a look at the tensors among some arguments, and give them."""
        tensors = [each for each in args if isinstance(each, torch.Tensor)]
        for each in tensors:
            self._use.look_at(each, flags=flags, sets=sets)
        return tensors

    def _block(self, rule: Rule, text: str) -> None:
        self._tracer.cursor.block(reason(rule, text, user_site()))

    # ------------------------------------------------------------------ in

    def _build(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        position = 1 if func is _Tensor.new_tensor else 0
        data = args[position] if len(args) > position else kwargs.get("data", kwargs.get("obj"))
        if isinstance(data, torch.Tensor):
            return func(*args, **kwargs)
        if len(args) == position + 1 and _holds_single(data):
            return self._build_of_read(func, args, kwargs)
        options = [*args[position + 1 :], *sorted((k, str(v)) for k, v in kwargs.items() if k != "data")]
        if isinstance(data, numpy.ndarray):
            with below_transforms() as wrap:
                return wrap(self._from_array(func, data, args, kwargs))
        contents = _read_values(data)
        with below_transforms() as wrap:
            return wrap(self._from_values(func, contents, options, args, kwargs))

    def _build_of_read(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a tensor of numbers some of which lie in tensors: the host reads these, which are followed."""
        *owner, data = args
        read = self._with_read(data)
        named = {"dtype": self._tracer.host.aside(lambda: func(*args, **kwargs)).dtype, **kwargs}
        numbers = self._numbers
        if numbers is not None and built_of(numbers, read) is not None:
            return self._build_with_numbers(numbers, func, (*owner, read), named)
        if numbers is not None:
            numbers.settle_owed()
        return self._build(func, (*owner, read), named)

    def _with_read(self, data: Any) -> Any:
        """Lists of numbers, with the numbers that lie in tensors."""
        if isinstance(data, torch.Tensor):
            return self._read_number(data)
        return [self._with_read(each) for each in data] if type(data) in (list, tuple) else data

    def _build_with_numbers(
        self, numbers: TrackedNumbers, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Make a tensor of numbers that change: each replay makes it again.

        Not where some numbers do not fit the type of the tensor, which raises.
        """
        position, name = (1, "data") if func is _Tensor.new_tensor else (0, "data")
        data = args[position] if len(args) > position else kwargs.get(name)
        if type(data) is numpy.ndarray and set(numbers.owed) == {identity(data)}:
            numbers.take_owed()
            return self._build(func, args, kwargs)
        followed = built_of(numbers, data)
        plain = not any([numbers.expression(each) for each in (*args, *kwargs.values()) if each is not data])
        if followed is None or not plain or kwargs.get("requires_grad"):
            numbers.settle_owed()
            return self._noted(func, args, kwargs)
        with below_transforms() as wrap:
            tensor = self._tracer.host.aside(lambda: func(*args, **kwargs))
            if not followed.fits(tensor.dtype):
                numbers.settle_owed()
                return self._noted(func, args, kwargs)
            numbers.take_owed()
            token = self._tracer.cursor.storages.token
            others = [*args[position + 1 :], *sorted((k, str(v)) for k, v in kwargs.items() if k != name)]
            values = operand_of(followed.values, token)
            content = HostValues(values, operand_of(others, token), tensor.dtype, tensor.device.type)
            owner, made = args[:position], followed.made(tensor) if kwargs.keys() <= _MADE else None

            def build() -> torch.Tensor:
                given = {**kwargs, name: followed.now()} if name in kwargs else kwargs
                return func(
                    *owner, *(() if name in kwargs else (followed.now(),)), *args[position + 1 :], **given
                )

            return wrap(self._tracer.host.computed_tensor(tensor, func.__name__, content, build, made))

    def _from_values(
        self, func: Any, contents: Any, options: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> torch.Tensor:
        tracer = self._tracer
        tensor = tracer.host.aside(lambda: func(*args, **kwargs))
        detached = tensor.detach() if tensor.requires_grad else tensor
        if tensor.requires_grad:
            self._block(rules.HOST_DATA, "a tensor built in the call requires grad")
        token = tracer.cursor.storages.token
        values, others = operand_of(contents, token), operand_of(options, token)
        data = HostValues(values, others, tensor.dtype, tensor.device.type)
        built = tracer.host.host_tensor(detached, func.__name__, data)
        return tensor if tensor.requires_grad else built

    def _from_array(self, func: Any, data: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Read an array where it is, or copy it again at each replay."""
        tracer, name = self._tracer, func.__name__
        under = tracer.host.under(data) if func in _CONVERTS and form_of(data) is not None else None
        if under is not None:
            return self._converted(func, under, args, kwargs)
        made = tracer.host.is_made(pointer_of(data)) and not kwargs.get("requires_grad")
        if self._numbers is not None and self._numbers.expression(data) is not None:
            computed = self._from_followed(self._numbers, func, data, args, kwargs)
            if computed is not None:
                return computed
        if made or (func is not torch.tensor and func is not _Tensor.new_tensor):
            tensor = tracer.host.aside(lambda: func(*args, **kwargs))
            if tensor.is_cpu and tensor.data_ptr() == pointer_of(data):
                return tracer.host.lend_array(tensor, name) if made else tracer.host.alias_array(tensor)
            if made:  # the numbers as they lie in the array: a tensor on a device cannot be read here
                kept = (data.shape, data.dtype.str, data.tobytes(), tensor.dtype, tensor.device.type)
                return tracer.host.host_tensor(tensor, name, HostBytes(*kept))
        memory = operand_of(data, tracer.cursor.storages.token)
        operation = Operation.called(ops.HOST, name, (memory,), (), user_site())
        return tracer.host.copy_array(operation, pointer_of(data), lambda: func(*args, **kwargs))

    def _from_followed(
        self, numbers: TrackedNumbers, func: Any, data: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> torch.Tensor | None:
        """Make a tensor of an array that is followed, at each replay; None if that is not understood."""
        place = 1 if func is _Tensor.new_tensor else 0
        if kwargs.get("requires_grad") or len(args) <= place or args[place] is not data:
            numbers.pin(data)
            return None
        host = self._tracer.host

        def make(array: Any) -> torch.Tensor:
            return func(*args[:place], array, *args[place + 1 :], **kwargs)

        return host.array_tensor(data, host.aside(lambda: make(data)), func.__name__, make)

    def _converted(
        self, func: Any, under: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """What PyTorch makes of an array: it looks at its memory, and converts that."""
        options = {**dict(zip(("dtype", "device"), args[1:], strict=False)), **kwargs}
        others = options.keys() - {"dtype", "device", "data", "obj"}
        if any([options[each] for each in others]):
            self._block(rules.HOST_DATA, f"{func.__name__}() of an array with {', '.join(sorted(others))}")
        dtype, device = (options.get(each) for each in ("dtype", "device"))
        return under.to(
            device=device if device is not None else "cpu",
            dtype=dtype if dtype is not None else under.dtype,
            copy=func is torch.tensor,
        )

    # ------------------------------------------------------------------ out

    def _can_lend(self, tensor: torch.Tensor, kwargs: dict[str, Any]) -> bool:
        """Whether an array of a tensor is understood: a plain one, of which PyTorch makes an array at all."""
        if not kwargs.keys() <= {"force"} or type(tensor) not in _LENDS or not is_plain(tensor):
            return False
        forced = kwargs.get("force") is True
        return forced or (tensor.is_cpu and not (tensor.requires_grad or tensor.is_conj() or tensor.is_neg()))

    def _as_array(self, tensor: torch.Tensor, *, at_once: bool = False) -> Any:
        """An array over the memory of a tensor, which the program goes on to know.

        Args:
            at_once: Whoever asks for it reads it.
        """
        tracer, cursor, lines = self._tracer, self._tracer.cursor, running_lines()
        plain = tensor.detach().cpu().resolve_conj().resolve_neg()
        if self._reads_whole(plain, lines):
            return self._read_whole(plain)
        array = tracer.host.aside(plain.numpy)
        for why in cursor.quietly(lambda: tracer.unwritten.reasons("numpy", [plain], user_site())):
            cursor.block(why)
        tracer.host.lend(plain, array)
        site, numbers = user_site(), self._places
        follows = not at_once and numbers is not None and numbers.lend(array)
        if follows:
            self.lent.append(self._now(plain))

        def stray(writes: bool) -> bool:
            known = follows and numbers is not None and numbers.stopped is None
            if not known:
                self.strayed[lines] = None
                cursor.block(reason(rules.MEMORY_ESCAPE, _READ, site))
            return known

        self._lend(array, stray)
        if at_once:
            stray(False)
        return array

    def _now(self, tensor: torch.Tensor) -> LentTensor:
        writes_of = self._tracer.writes.count
        return LentTensor(tensor, writes_of(tensor), writes_of)

    def _reads_whole(self, tensor: torch.Tensor, lines: Lines) -> bool:
        """Whether the numbers of an array are read as it is made, as earlier calls did that came here."""
        known = self._tracer.cursor.expected
        if known is not None:
            return known.kind == ops.LIST and known.name == _WHOLE
        return lines in self._whole and tensor.nbytes <= MOST_READ and not self._is_unread(tensor)

    def _read_whole(self, tensor: torch.Tensor) -> Any:
        """An array whose numbers are known on this path, so that whatever is made of them is known, too."""
        tracer, site = self._tracer, user_site()
        self._read(tensor, _WHOLE, lambda alias: ReadArray.of(alias.numpy()), rules.MEMORY_ESCAPE)
        array = tracer.host.aside(tensor.numpy)
        tracer.host.lend(tensor, array, read=True)
        self.read.append(self._now(tensor))
        if self._numbers is not None:
            self._numbers.read_array(array)

        def stray(writes: bool) -> bool:
            if writes:
                tracer.cursor.block(reason(rules.MEMORY_ESCAPE, _READ, site))
            return not writes

        self._lend(array, stray)
        return array

    def _to_list(self, tensor: torch.Tensor) -> Any:
        tensor = unwrapped(tensor)
        if self._is_unread(tensor):
            return tensor.tolist()
        found = self._read(tensor, "tolist", lambda alias: ReadList(alias.tolist()), rules.LIST_READ).thaw()
        return self._numbers.hand(self._numbers.read(found)) if self._numbers is not None else found

    def _looked_at(self, tensor: torch.Tensor) -> Any:
        """The numbers of a tensor, for code that looks at them."""
        found = self._to_list(tensor)
        if self._numbers is not None:
            self._numbers.pin_inside(found)
        return found

    def _text(self, tensor: torch.Tensor, func: Any, *args: Any, **kwargs: Any) -> str:
        """The text of a tensor, which PyTorch makes of its numbers where no mode sees that.

        A replay leaves out text that is for output alone. On a device the recorded call has no numbers to
        show until a segment has ended, so there text is always a read.
        """
        if (tensor.is_cpu and self._is_shown()) or self._is_unread(tensor):
            return func(tensor, *args, **kwargs)
        if tensor.requires_grad or type(tensor) is not torch.Tensor:  # the recording keeps another one
            text = "a parameter or a tensor with gradients is turned into text, which reads its values"
            self._block(rules.PRINTED, text)
            return func(tensor, *args, **kwargs)
        return self._read(tensor, "repr", lambda alias: func(alias, *args, **kwargs), rules.PRINTED)

    def _is_unread(self, tensor: torch.Tensor) -> bool:
        """Whether nothing is kept of what the host reads of a tensor here."""
        cursor = self._tracer.cursor
        blocked = bool(cursor.mode is Mode.OBSERVE and cursor.blockers)
        return tensor.device.type == "meta" or blocked or is_wrapped(tensor)

    def _read(self, tensor: torch.Tensor, name: str, look: Callable[[Any], Any], rule: Rule) -> Any:
        """The host reads a tensor: a branch of the path."""
        tracer, cursor = self._tracer, self._tracer.cursor
        operation = Operation.called(ops.LIST, name, (cursor.storages.token(tensor),), (), user_site())
        for why in cursor.quietly(lambda: tracer.unwritten.reasons(name, [tensor], operation.site)):
            cursor.block(why)
        alias = cursor.quietly(lambda: cursor.aliases.keep(tensor))
        tracer.leave_selected()

        def read() -> Any:
            return look(alias)

        def branch() -> Any:
            return tracer.reads.branch(
                operation, lambda: tracer.host.aside(read), lambda: read, shaped=False, rule=rule
            )

        return branch() if self._numbers is None else self._numbers.undisturbed(branch)

    def _note_backward(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._use.engine = self._use.engine or user_site()
        given = args[0] if args else kwargs.get("tensors", kwargs.get("outputs"))
        roots = [given] if isinstance(given, torch.Tensor) else list(given or ())
        self.frees = True
        self._use.walk_back(roots)
        self._use.reach(roots, self._tracer.cursor.storages)
        if func is torch.autograd.grad:
            self._use.pass_by(roots, self._tracer.cursor.storages)
            return
        self._use.run_back(roots, self._tracer.cursor.storages)
        if not (kwargs.get("retain_graph") or kwargs.get("create_graph")):
            self.roots.extend(roots)


class _InBackward(TorchFunctionMode):
    """Sees what code in a backward makes of host data, and nothing else: autograd's own asks a lot."""

    def __init__(self, mode: HostDataMode) -> None:
        super().__init__()
        self._mode = mode

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _BUILDERS:
            return self._mode.__torch_function__(func, types, args, kwargs)
        return func(*args, **(kwargs or {}))


def consumed(roots: list[torch.Tensor], candidates: list[torch.Tensor]) -> set[int]:
    """Identities of the candidates whose autograd graph lies below roots that ran backward."""
    wanted = {node: tensor for tensor in candidates if (node := history_of(tensor)) is not None}
    return {id(wanted[node]) for node in nodes_below(roots if wanted else ()) if node in wanted}


def _holds_single(data: Any) -> bool:
    """Whether lists hold numbers and tensors of one number, and there is such a tensor."""
    left, found = [data], False
    while left:
        part = left.pop()
        if type(part) in (list, tuple):
            left.extend(part)
        elif isinstance(part, torch.Tensor):
            found = True
            if part.dim() or part.is_complex() or type(part) is not torch.Tensor or part.is_meta:
                return False
        elif type(part) not in (int, float, bool):
            return False
    return found


def _read_values(data: Any) -> Any:
    """Host data with the values of the tensors and arrays in it; each of the tensors is a host read."""
    if isinstance(data, torch.Tensor):
        return data.item() if data.numel() == 1 else data.tolist()
    if isinstance(data, numpy.ndarray):  # PyTorch copies the values: where they lie means nothing
        return numpy.ndarray.tolist(data)
    if isinstance(data, (list, tuple, deque)):
        return [_read_values(item) for item in data]
    return data
