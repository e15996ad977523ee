"""Was an observed call steady? Everything that speaks against recording it, as reasons."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from itertools import pairwise
from types import CodeType
from typing import Any

import numpy
import torch

from ...base import Site, identity, is_instance
from ...hazards import rules
from ...hazards.rules import Reason, reason
from ..arguments import (
    APPENDED,
    CONTENTS,
    TOLD,
    Bound,
    Call,
    Target,
    containers,
    explain_ambient,
    is_borrowed,
    is_default_at,
    leaves_of,
    parts_of,
    read_ambient,
)
from ..autograd import graph_ends, tracked_results
from ..autograd.graph import adds_up, kept_storages, line_that_calls, line_that_changes, line_that_reads
from ..capture import Observation, parameters_of
from ..numbers import HostRandom, TrackedNumbers
from ..objects import Position, base_of, cached_in, is_found
from ..program import (
    NEW,
    OWN,
    UNNAMED,
    GradientEffect,
    GradientWatch,
    StorageTable,
    group_members,
    lying_in,
    memory_of_arrays,
    memory_of_host,
    span_of,
    within,
)
from ..pytorch import constants_of, is_kept_out, storage_owners
from ..reads.trace import Effect, Noted, Setting, UnseenCode
from ..state import Address, Difference, ExecutedCode, Reads, Snapshot

NEXT = "Take the item outside (x = next(batches)), and pass it in as an argument."
"""What to do about an iterator that a call advances."""

FREEZE_OUTSIDE = (
    "Set requires_grad outside, before the call (each way of freezing has a recording of its own), or put "
    "back in the call what it sets."
)
"""What to do about a call that freezes what it finds unfrozen, as one of two that take turns."""

PURE = (
    "Call it outside, and pass in what it gives; or, if it gives the same for the same arguments: "
    "rote.pure({})."
)
"""What to do about unknown functions and classes in C."""

OUTSIDE = "Call it outside. Collectives between tensors, all_reduce and its kin, are replayed."
"""What to do about code that acts on other processes past the dispatcher."""

ADDED_UP = (
    "Graph the wrapped module, not the step around it: rote.graph(DistributedDataParallel(model)). What it "
    "adds up is one sum then, to which is added what the parameter gets from outside."
)
"""What to do about a module in a step whose gradients are sums."""

SHOWN = 3
"""Reasons of one kind that are given, and changes of the state."""

_TENSOR = "a tensor at "

_SWITCHING = (
    "set_grad_enabled", "_set_grad_enabled", "set_default_dtype", "set_default_device", "set_detect_anomaly",
    "use_deterministic_algorithms", "set_float32_matmul_precision", "set_device", "set_autocast_enabled",
)  # fmt: skip
"""Functions that change modes; most callables name one at most."""


def state_reasons(found: list[Difference], codes: Iterable[CodeType], site: Site) -> list[Reason]:
    """Lasting changes of Python state."""
    codes = list(codes)
    for difference in found:
        if difference.scheduler is not None:  # all else that changed may follow from it
            text = f"the call steps a {difference.scheduler}: {difference}"
            return [reason(rules.SCHEDULER_INSIDE, text, difference.site or site)]
    moved = [difference for difference in found if difference.advanced]  # all else may follow from it, too
    names = tuple([f"{difference.name}[" for difference in moved])  # what an iterator iterates moves with it
    moved = [difference for difference in moved if not difference.name.startswith(names)]
    return [_state_reason(difference, codes, site) for difference in moved or found]


def _state_reason(difference: Difference, codes: list[CodeType], site: Site) -> Reason:
    if difference.advanced:
        where = difference.site or line_that_reads(difference.name, codes) or site
        return Reason(rules.STATE_CHANGES.code, str(difference), where, NEXT)
    remedy = ""
    if difference.was.startswith(_TENSOR) and difference.now.startswith(_TENSOR):
        remedy = f"Write into it in place ({difference.name}.copy_(...)), or pass it in and return it."
    line = difference.site if difference.site is not None and difference.site.line else None
    line = line or line_that_changes(difference.name, codes) or line_that_reads(difference.name, codes)
    return reason(rules.STATE_CHANGES, str(difference), line or site, remedy)


def unknown_reasons(noted: Noted, site: Site, *, recorded: bool) -> list[Reason]:
    """What the call did that depends on something unknown.

    Code that was not followed counts if the call was to be recorded.
    """
    known = [each for each in noted.unseen if not each.unknown]
    found = [_unknown_reason(unknown)] if (unknown := [each for each in noted.unseen if each.unknown]) else []
    found += [reason(rules.UNKNOWN_CODE, f"the call {each.text}", each.site) for each in known]
    for code in noted.late if recorded else ():
        where = Site(code.co_filename, code.co_firstlineno, code.co_name)
        text = f"{code.co_qualname} ran without being followed; the next call follows it"
        found.append(reason(rules.UNKNOWN_CODE, text, where))
    for name in noted.missing[:1]:
        text = f"{name} was read for the first time; from now on it is part of the key"
        found.append(reason(rules.NOT_YET, text, site))
    return found[:SHOWN]


def _unknown_reason(unknown: list[UnseenCode]) -> Reason:
    """All unknown functions and classes in C, with the line that declares them pure."""
    first, *others = unknown
    also = ", ".join([f"{each.name} at {each.site}" for each in others])
    text = f"the call {first.text}" + (f"; nor of {also}" if also else "")
    names = [each.name.removeprefix("builtins.") for each in unknown if is_found(each.name)]
    return reason(rules.UNKNOWN_CODE, text, first.site, PURE.format(", ".join(names)) if names else "")


def effect_reasons(effects: Iterable[Effect], site: Site) -> list[Reason]:
    """What the call left behind outside of itself."""
    sites = [(each, each.site if each.site.line else site) for each in effects]
    found = [
        reason(rules.ARGUMENT_CHANGED if each.given else rules.STATE_CHANGES, str(each), where)
        for each, where in sites
    ]
    return found[:SHOWN]


def freezing_reasons(tensors: list[torch.Tensor], state: Snapshot, site: Site) -> list[Reason]:
    """Tensors made outside that the call has frozen, or the contrary."""
    names = state.names_of_tensors()
    found: list[Reason] = []
    for tensor in tensors:
        now, name = tensor.requires_grad, names.get(id(tensor), UNNAMED)
        text = f"{name} was requires_grad={not now} and is {now}"
        found.append(reason(rules.STATE_CHANGES, text, site, FREEZE_OUTSIDE))
    return found[:1]


def written_arrays(outcome: Observation) -> set[int]:
    """Addresses of numpy arrays that operations wrote, as a replay does."""
    storages = outcome.storages
    written = outcome.writes.externals & storages.host_memory
    return {storages.externals[number].data_ptr() for number in written}


def random_reasons(
    before: HostRandom,
    numbers: TrackedNumbers | None,
    noted: Noted,
    executed: ExecutedCode,
    outcome: Observation,
    caller: Site,
) -> list[Reason]:
    """Use of global generators, but for numbers that replays draw as well.

    Whoever sets PyTorch's back to what they were does nothing if nothing is drawn, as checkpoints do.
    """
    now, site = HostRandom.read(), noted.draws or caller
    if numbers is not None and numbers.drawn:
        before = before.behind(numbers.drawn)
    found: list[Reason] = []
    if now.python != before.python:
        found.append(reason(rules.HOST_RANDOM, "the call drew from Python's random module", site))
    if now.array != before.array:
        found.append(reason(rules.HOST_RANDOM, "the call drew from numpy.random", site))
    if numbers is not None and numbers.strays:
        found.append(
            reason(rules.HOST_RANDOM, "a value that was read leads past what other calls draw", site)
        )
    settings = [each for each in outcome.settings if is_default_at(each.address)]
    sets = executed.seeds or (settings[0].site if settings else None)
    if sets is not None and not (_puts_back(settings, outcome) and now.torch == before.torch):
        found.append(reason(rules.RANDOM_STATE_SET, "the call sets PyTorch's random state", sets))
    return found


def _puts_back(settings: list[Setting], outcome: Observation) -> bool:
    """Whether a call draws nothing, and sets PyTorch's generators to states of this call alone."""
    ran = [each for node in outcome.nodes for each in node.operations if each.is_of_aten]
    draws = any([each.draws or not each.facts.told for each in ran])
    own = [each.state is not None and not each.given for each in settings]
    return not draws and bool(own) and all(own)


def surroundings_reasons(
    executed: ExecutedCode, noted: Noted, outcome: Observation, call: Call, site: Site
) -> list[Reason]:
    """What the call did to modes, random state and other processes, and whether it could be watched."""
    found: list[Reason] = []
    changed = explain_ambient(call.key.ambient, read_ambient())
    if changed is not None:
        codes = list(executed.globals)
        lines = [line for name in _SWITCHING if (line := line_that_calls(name, codes)) is not None]
        found.append(reason(rules.AMBIENT_CHANGES, changed, lines[0] if len(lines) == 1 else site))
    if is_kept_out():
        text = "the call begins a region of rote.no_graphs() and does not end it"
        found.append(reason(rules.AMBIENT_CHANGES, text, site))
    if executed.hooks and outcome.template.tracked:
        text = "the call checkpoints, or sets or forbids saved-tensor hooks"
        found.append(reason(rules.SAVED_HOOKS, text, site))
    contact = executed.contact or noted.contact
    if contact is not None:
        rule = rules.NOT_YET if contact.soon else rules.WRAPPED if contact.wraps else rules.COLLECTIVE
        text = f"the call runs {contact.what} of PyTorch, which acts on other processes"
        found.append(reason(rule, text, contact.site, "" if contact.wraps else OUTSIDE))
    if executed.blind:
        found.append(reason(rules.BLIND, "the call could not be watched: another profiler is active", site))
    return found


def argument_reasons(outcome: Observation, call: Call, effects: Iterable[Effect], site: Site) -> list[Reason]:
    """What the call did to the containers in its arguments; arguments that cannot be placed together.

    ``effects`` are reported elsewhere already.
    """
    found: list[Reason] = []
    for members in group_members(call):
        tensors = [call.leaves[member] for member in members]
        if len({tensor.dtype for tensor in tensors}) > 1:
            text = "arguments of several dtypes share memory"
            found.append(reason(rules.ALIASED_MUTATION, text, site))
        elif len({(tensor.is_conj(), tensor.is_neg()) for tensor in tensors}) > 1:
            text = "an argument and its conjugate or negative share memory"
            found.append(reason(rules.ALIASED_MUTATION, text, site))
        elif torch.is_grad_enabled() and _each_requires_grad(tensors):
            text = "arguments that require grad share memory"
            found.append(reason(rules.ALIASED_MUTATION, text, site))
    gives = outcome.template.gives or any([each.given for each in effects])
    if not gives and call.is_changed():
        text = "the call stored something in one of its arguments"
        found.append(reason(rules.ARGUMENT_CHANGED, text, site))
    owned = {id(part) for branch in call.branches()[1:] for part in parts_of(branch)}
    owned -= bound_containers(outcome)
    returned = containers(outcome.template.spec, outcome.value)
    if any(id(branch) in owned and not isinstance(branch, tuple) for branch in returned):
        text = "the result contains a container from the arguments"
        found.append(reason(rules.CONTAINER_RETURNED, text, site))
    return found


def _each_requires_grad(tensors: list[torch.Tensor]) -> bool:
    """Whether several tensors over common memory have gradients; a tensor passed twice is one."""
    return len({id(tensor) for tensor in tensors}) > 1 and any(tensor.requires_grad for tensor in tensors)


def container_reasons(outcome: Observation, reads: Reads, site: Site) -> list[Reason]:
    """A list, dict, tuple or dataclass of the state that is returned: a replay would make a new one."""
    branches = [each for each in containers(outcome.template.spec, outcome.value) if not _is_nothing(each)]
    if not branches:
        return []
    made = _made_for_slots(outcome)
    kept = {id(each) for read in reads for each in (read.container, read.value)} - made
    for branch in branches:
        parts = (branch, *parts_of(branch))
        if any(
            [id(part) in kept or (identity(part) in reads.pinned and id(part) not in made) for part in parts]
        ):
            text = f"the result contains a {type(branch).__name__} that the callable keeps"
            return [reason(rules.CONTAINER_RETURNED, text, site)]
    return []


def slots_of_sinks(targets: Iterable[Target], reads: Reads) -> set[Address]:
    """Where the call has found streams to which replays write: these go on from wherever they are."""
    sinks = [each.container for each in targets if each.kind == TOLD]
    slots = [(address, each.value) for address, each in reads.slots.items()] if sinks else []
    found = [(address, value.value) for address, value in slots if type(value) is Position]
    return {address for address, value in found if any([value is each for each in sinks])}


def slots_of_emptied(observed: Observation, reads: Reads) -> set[Address]:
    """What the call has read in containers that it leaves empty."""
    bound = observed.value if type(observed.value) is Bound else None
    parts = zip(bound.targets, bound.parts, strict=True) if bound is not None else ()
    emptied = {id(each.container) for each, part in parts if each.kind == CONTENTS and not part}
    return {address for address in reads.slots if address[1] in emptied} if emptied else set()


def told_reasons(observed: Observation, site: Site, *, can_tell: bool) -> list[Reason]:
    """Text that the call writes to streams, which cannot be compared with what a replay writes."""
    targets = observed.value.targets if type(observed.value) is Bound else ()
    told = [each.name for each in targets if each.kind == TOLD] if not can_tell else []
    text = "the call writes to {}, which is not compared with what a replay writes"
    return [reason(rules.UNKNOWN_CODE, text.format(name), site) for name in told]


def _is_nothing(branch: Any) -> bool:
    """Whether it is a tuple without members, of which there is but one."""
    return type(branch) is tuple and not branch


def bound_containers(outcome: Observation) -> set[int]:
    """Identities of the containers that lie in slots which a replay binds, too, or to which it adds."""
    targets = outcome.value.targets if type(outcome.value) is Bound else ()
    return _made_for_slots(outcome) | {id(each.container) for each in targets if each.kind == APPENDED}


def _made_for_slots(outcome: Observation) -> set[int]:
    value, spec = outcome.value, outcome.template.spec
    if type(value) is not Bound:
        return set()
    parts = zip(spec[3][1:], value.parts, strict=True)
    return {id(each) for inner, part in parts for each in containers(inner, part)}


def device_reasons(outcome: Observation, device: torch.device, site: Site, *, can_move: bool) -> list[Reason]:
    """Tensors on devices that one recording cannot hold.

    Args:
        can_move: The user leaves the choice of the backend to rote.
    """
    accelerators = sorted(str(found) for found in outcome.devices if found.type == "cuda")
    if can_move and outcome.devices and not accelerators and device.type == "cuda":
        text = f"the call can reach tensors on {device}, and used those of the host alone"
        return [reason(rules.WRONG_BACKEND, text, site, "Nothing: the host backend takes the next call.")]
    if len(accelerators) > 1:
        return [reason(rules.SEVERAL_DEVICES, f"the call used {', '.join(accelerators)}", site)]
    if accelerators and device.type == "cpu":
        return [reason(rules.WRONG_BACKEND, f"the call used {accelerators[0]} on the host backend", site)]
    return []


def order_reasons(outcome: Observation, call: Call, site: Site) -> list[Reason]:
    """Why gradients might be added in another order than in eager: some are sums when they leave the call."""
    leaves = [outcome.stood.get(index, leaf) for index, leaf in enumerate(call.leaves)]
    results = tracked_results(outcome.value, outcome.template)
    if not adds_up(results, graph_ends(tuple(leaves))):
        return []
    text = "a parameter or an argument of the module is used more than once"
    return [reason(rules.WRAPPED, text, site, ADDED_UP)]


def gradient_reasons(
    outcome: Observation, watch: GradientWatch, site: Site
) -> tuple[list[GradientEffect], Any, list[Reason]]:
    """Gradients that the call leaves behind."""
    effects, key, found = watch.changed(outcome.storages, site)
    if outcome.blockers:  # no operation was noted behind the first, so where a gradient came from is unknown
        return effects, key, [why for why in found if why.code != rules.TENSOR_ESCAPES.code]
    return effects, key, found or _shown_twice(outcome, effects, site)


def _shown_twice(outcome: Observation, effects: list[GradientEffect], site: Site) -> list[Reason]:
    """Gradients that a result shows, too, or another slot: a replay would hand out several tensors.

    Those that lie beside each other in one memory, as cuDNN makes them for its weights and FSDP for what is
    spread, are copied at each replay, and are then in memory of their own.
    """
    apart = _are_apart(effects)
    beside = set[int]()  # storages in which only gradients lie
    shown = {leaf.index: "the result" for leaf in outcome.template.leaves if leaf.kind == OWN}
    for effect in effects:
        if effect.static is None:
            continue
        number = outcome.storages.token(effect.static).origin[1]
        if number in shown and not (apart and number in beside):
            text = f"{effect.name}.grad, which the call makes, is {shown[number]} as well"
            return [reason(rules.GRADIENT_RETURNED, text, site)]
        shown[number] = f"{effect.name}.grad"
        beside.add(number)
    return []


def _are_apart(effects: Iterable[GradientEffect]) -> bool:
    """Whether no two gradients have an element in common."""
    parts = [each.static for each in effects if each.static is not None and each.static.numel()]
    spans = [(each.data_ptr(), each.data_ptr() + span_of(each) * each.itemsize) for each in parts]
    spans.sort()
    return all([one[1] <= two[0] for one, two in pairwise(spans)])


def array_reasons(outcome: Observation, known: list[tuple[int, int]]) -> list[Reason]:
    """Numpy arrays that became tensors and do not lie in reachable state: they were made inside the call."""
    text = "a numpy array made inside the call became a tensor"
    return [
        reason(rules.HOST_DATA, text, site)
        for pointer, site in outcome.arrays.items()
        if not any(start <= pointer < end for start, end in known)
    ]


def overlap_reasons(ranges: Iterable[tuple[int, int]], outcome: Observation, call: Call) -> list[Reason]:
    """Why arguments cannot be copied: they lie in arrays of the state that become tensors."""
    arrays = outcome.arrays
    position = lying_in(call.leaves, within(ranges, arrays)) if arrays else None
    if position is None:
        return []
    text = f"{call.names()[position]} lies in a numpy array that becomes a tensor"
    site = next(iter(arrays.values()))
    return [reason(rules.ALIASED_MUTATION, text, site, "Use the argument inside, and not the array.")]


def sharing_reasons_of_arrays(outcome: Observation, call: Call, site: Site) -> list[Reason]:
    """Why an argument cannot be copied: it shares the memory of an array with state, and one is written."""
    borrowed, writes = call.key.borrowed, outcome.writes
    where = next(iter(writes.sites.values()), site)
    if together := writes.inputs.intersection(call.key.overlapping):
        text = f"{call.names()[min(together)]} lies in the memory of another argument, and is written"
        return [reason(rules.ALIASED_MUTATION, text, where, "Pass a copy, or two views of one tensor.")]
    every = outcome.storages.externals
    written = [every[number] for number in sorted(writes.externals)]
    meant = every if not writes.inputs.isdisjoint(borrowed) else written
    place = lying_in([call.leaves[each] for each in borrowed], memory_of_host(meant)) if borrowed else None
    if place is not None:
        place = borrowed[place]
    else:
        lent = [each for each in (every if writes.inputs else written) if is_borrowed(each)]
        place = lying_in(call.leaves, memory_of_host(lent)) if lent else None
    if place is None:
        return []
    text = f"{call.names()[place]} lies in the memory of a tensor made outside the call"
    return [reason(rules.ALIASED_MUTATION, text, where, "Pass a copy, or use the tensor inside.")]


def outside_reasons(numbers: TrackedNumbers, outcome: Observation, call: Call, site: Site) -> list[Reason]:
    """What else lies over the memory of arrays outside that are followed, which replays do not find there.

    Nothing that the call has made of them may outlive it; nothing else may look at those that it writes.
    """
    made, arrays = leaves_of(outcome.value), numbers.looked_at
    ranges = memory_of_arrays([base_of(each) for each in arrays])
    handed = [each for each in made if isinstance(each, numpy.ndarray)]
    over = any([numpy.may_share_memory(each, one) for each in handed for one in arrays])
    if over or lying_in(made, ranges) is not None:
        text = "a tensor or an array over the memory of an array outside is part of what the call leaves"
        return [reason(rules.ALIASED_MUTATION, text, site, "Make a copy of it.")]
    written = memory_of_arrays(numbers.filled.values())
    if lying_in([*call.leaves, *outcome.storages.externals], written) is None:
        return []
    text = "an array is written that a tensor lies over"
    return [reason(rules.ALIASED_MUTATION, text, site, "Make a copy of it, or write to the tensor.")]


def unknown_externals(outcome: Observation, known: set[int], watch: GradientWatch, call: Call) -> list[int]:
    """Numbers of the external tensors whose holder was not found: nobody would notice their replacement.

    Tensors with ``known`` storage handles are reachable; so are gradients, and parameters among arguments.
    """
    storages = outcome.storages
    known = known | set(parameters_of(call))
    known |= {gradient.untyped_storage()._cdata for _, _, gradient in watch.gradients()}
    return [
        number
        for number, tensor in enumerate(storages.externals)
        if number not in storages.host_memory
        and tensor.numel()
        and not tensor.is_meta
        and tensor.untyped_storage()._cdata not in known
    ]


def scripted_constants(outcome: Observation, scripts: Iterable[Any]) -> set[int]:
    """Storages of the constants of TorchScript, which are there as long as its code is."""
    externals, written = outcome.storages.externals, outcome.writes.externals
    changed = {externals[number].untyped_storage()._cdata for number in written}
    return {handle for script in scripts for handle in constants_of(script)} - changed


def external_reasons(outcome: Observation, unknown: list[int]) -> list[Reason]:
    """Why unreachable external tensors block a recording."""
    found: list[Reason] = []
    for number in unknown[:SHOWN]:
        operation, site = outcome.storages.external_sites[number]
        shape = list(outcome.storages.externals[number].shape)
        text = f"{operation} read a {shape} tensor made outside the call"
        found.append(reason(rules.UNREACHABLE, text, site))
    return found


def escape_reasons(
    storages: StorageTable,
    outcome: Observation,
    gradients: list[Any],
    tracked: list[torch.Tensor],
    idle: set[int],
    call: Call,
    cached: set[int],
) -> list[Reason]:
    """Tensors made in the call that somebody keeps although they are no result.

    Args:
        gradients: Gradient slots that it replaced.
        tracked: Results whose graph keeps tensors for its backward.
        idle: Handles of the storages that graphs keep which lead nowhere.
        call: The arguments, where that graph ends.
        cached: Numbers of the storages that lie in caches where nobody finds them.
    """
    allowed = cached | {leaf.index for leaf in outcome.template.leaves if leaf.kind == OWN}
    for effect in gradients:
        origin = storages.origin(effect.static) if effect.static is not None else None
        if origin is not None and origin[0] == NEW:
            allowed.add(origin[1])
    allowed |= outcome.remembered
    # The recording itself holds what its islands read; an observation has judged this path.
    if outcome.recorded:
        return []
    left = _unaccounted(storages, allowed, tracked, idle, call)
    if left:
        gc.collect()
        left = _unaccounted(storages, allowed, tracked, idle, call)
    found: list[Reason] = []
    for number in sorted(left)[:SHOWN]:
        operation, site = storages.sites[number]
        text = f"a result of {operation} is still alive after the call"
        found.append(reason(rules.TENSOR_ESCAPES, text, site))
    return found


def lost_in_caches(storages: StorageTable, noted: Noted, outcome: Observation) -> set[int]:
    """Numbers of the storages in caches that a call asks by tensors of its own, if nobody else has them."""
    if not noted.cached:
        return set()
    functions = {identity(function): function for function, _ in noted.cached}
    parts = [part for function in functions.values() for part in _members_of(cached_in(function))]
    lying: dict[int, dict[int, int]] = {}  # how often each tensor lies there, by its place, for each storage
    for place, each in enumerate(parts):
        origin = storages.origin(each) if is_instance(each, torch.Tensor) else None
        if origin is not None and origin[0] == NEW:
            places = lying.setdefault(origin[1], {})
            same = next((one for one in places if parts[one] is each), place)
            places[same] = places.get(same, 0) + 1
    each = None
    shown = {leaf.index for leaf in outcome.template.leaves if leaf.kind == OWN}
    return {number for number, places in lying.items() if number in shown or _nobody_else_has(parts, places)}


def _members_of(values: list[Any]) -> list[Any]:
    """Values with the members of tuples and lists in their place, as often as these hold them."""
    found: list[Any] = []
    left, met = {identity(each): each for each in values}, set[int]()
    while left:
        which, value = left.popitem()
        if not isinstance(value, (tuple, list)):
            found.append(value)
        elif which not in met:
            met.add(which)
            found += [each for each in value if not isinstance(each, (tuple, list))]
            left |= {identity(each): each for each in value if isinstance(each, (tuple, list))}
    return found


def _nobody_else_has(parts: list[Any], places: dict[int, int]) -> bool:
    """Whether tensors over one storage are held by a cache alone, and by a list that has each as often."""
    counts = {sys.getrefcount(parts[place]) - 2 * times for place, times in places.items()}
    tensors = [parts[place] for place in places]
    for base in [each._base for each in tensors]:  # a view keeps what it is of
        if base is not None and all([base is not each for each in tensors]):
            tensors.append(base)
    beside = [torch.empty(0)]
    alone = sys.getrefcount(beside[0]) - 1
    owners = storage_owners(tensors[0].untyped_storage()) - len(tensors)
    return counts == {alone} and owners == storage_owners(beside[0].untyped_storage()) - 1


def cache_reasons(storages: StorageTable, noted: Noted, outcome: Observation, site: Site) -> list[Reason]:
    """Why what a cache answers may be another thing: others may ask it by the same tensors, too."""
    shown = {(NEW, leaf.index) for leaf in outcome.template.leaves if leaf.kind == OWN}
    for function, asked in noted.cached:
        for tensor in [each for ask in asked if (each := ask()) is not None]:
            origin = storages.origin(tensor)
            if origin is None or origin[0] != NEW or origin in shown:
                text = f"the cache of {function.__name__} is asked by a tensor that others have, too"
                return [reason(rules.STATE_CHANGES, text, site)]
    return []


def _unaccounted(
    storages: StorageTable, allowed: set[int], tracked: list[torch.Tensor], idle: set[int], call: Call
) -> set[int]:
    """Numbers of the storages that are alive and neither allowed nor kept by the graph of a result."""
    left = set(storages.alive()) - allowed
    if left and (tracked or idle):
        kept = kept_storages(tracked, graph_ends(call.leaves)) | idle
        alive = storages.alive()
        left = {number for number in left if number in alive and alive[number]._cdata not in kept}
    return left
