"""Results that require grad: whether their graph can be recorded, and how it is taken over."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from ...base import Site, identity, is_instance, user_site
from ...hazards import rules
from ...hazards.rules import Reason, reason
from ..arguments import GRADIENT, TAGGED, TENSOR, Bound, Call, LeftGradient, has_gradient, leaves_of
from ..program import (
    EXTERNAL,
    EXTERNAL_VIEW,
    INPUT_VIEW,
    NEW,
    VIEW,
    BackwardLog,
    Slots,
    StorageTable,
    Template,
    group_members,
    has_refused_history,
    history_of,
    slot_of,
)
from ..pytorch import donates, has_memory, is_sharded, may_shard, part_of, plain_functions, stands_for_others
from .backward import Backward, ResultGroup
from .graph import (
    Contexts,
    GradientWalk,
    Metadata,
    Node,
    Order,
    ParameterAliases,
    SavedNumber,
    contexts_of,
    groups,
    is_met_below,
    is_whole,
    kept_storages,
    leaves_below,
    nodes_below,
    older_node,
    shared_results,
    tagged,
    tracked_in,
)
from .saved import Saved, SavedRead
from .walker import Occupancy, Owner

WITHOUT_GRADIENT = "Write it under torch.no_grad(), as averages of parameters are, or write a detached value."
UNDONATED = (
    "Compile with torch._functorch.config.donated_buffer = False, or with backend='rote'; or take the "
    "gradients inside the call."
)
DETACHED_RESULT = "Return results without a history: loss.detach(), or call under torch.no_grad()."


class GradientUse:
    """What a call does with gradients, and asks of tensors, while it runs, seen above the dispatcher.

    Args:
        age: Nodes made by the call are younger.
        meet: Is told of tensors whose gradient Python asks for or sets, or a backward may replace.

    Attributes:
        engine: The line that ran a backward inside the call.
        hook: The line that registered a hook, or read the graph, of a tensor.
        state: The line that read the gradient or the place in the graph of an argument.
        gradient: Whether an argument was asked for its gradient.
        asked: The line that set whether an argument requires grad.
        saved: What the graph saved, if the call ran on static inputs.
        numbers: What it saved of numbers that change from call to call.
        flags: It asked one whether it requires grad.
        frozen: Those of which it set whether they require grad, and how it was before.
        walks_outside: A backward ran through a graph that was made outside.
        reaches: A backward may have come to an argument.
    """

    def __init__(self, age: int, meet: Callable[[torch.Tensor], None]) -> None:
        self.age = age
        self._meet = meet
        self.engine: Site | None = None
        self.hook: Site | None = None
        self.state: Site | None = None
        self.asked: Site | None = None
        self.saved: list[torch.Tensor] = []
        self.numbers: list[SavedNumber] = []
        self.slots: Slots = {}
        self.passed: Slots = {}
        self.looked: dict[int, weakref.ref[torch.Tensor]] = {}
        self.flags = self.walks_outside = self.gradient = self.reaches = self._tracks = False
        self.frozen: dict[int, tuple[weakref.ref[torch.Tensor], bool]] = {}
        self._versions: list[int] = []
        self._given: list[Metadata] = []
        self._filled = set[int]()
        self._touched: dict[int, tuple[Metadata, Site]] = {}

    def give(self, names: list[str], leaves: tuple[Any, ...]) -> None:
        """Note what the arguments are before the call."""
        pairs = [each for each in zip(names, leaves, strict=True) if is_instance(each[1], torch.Tensor)]
        self._given = [Metadata(leaf, name, given=True) for name, leaf in pairs]
        self._tracks = any([leaf.requires_grad for _, leaf in pairs])
        self._filled = {id(leaf) for _, leaf in pairs if has_gradient(leaf)}

    def was_filled(self, tensor: torch.Tensor) -> bool:
        """Whether an argument had something in its ``.grad`` before the call."""
        return id(tensor) in self._filled

    def left(self, names: list[str], call: Call, leaves: tuple[Any, ...], storages: StorageTable) -> Bound:
        """What the call has left in the ``.grad`` of arguments in which nothing was: replays do that, too."""
        targets, parts = list[LeftGradient](), list[Any]()
        before = {id(each.tensor): each.asks for each in self._given}
        for number, (kind, leaf) in enumerate(zip(call.kinds, leaves, strict=True)):
            if kind != TENSOR or type(leaf) is not torch.Tensor or self.was_filled(leaf):
                continue
            if not (leaf.is_leaf and call.leaves[number].is_leaf):
                continue
            found = leaf.grad
            if found is None and leaf.requires_grad is before.get(id(leaf)):
                continue
            if found is None or _is_plain(found, storages):
                targets.append(LeftGradient(number, names[number], asked=leaf.requires_grad))
                parts.append((leaf, found))
        return Bound(None, tuple(targets), tuple(parts))

    def asks_for_good(self, leaves: tuple[Any, ...], left: set[int]) -> bool:
        """Whether all arguments of which it set whether they require grad do so from then on."""
        given = [leaf for leaf in leaves if id(leaf) in self.frozen]
        return all([id(leaf) in left and leaf.requires_grad for leaf in given])

    def touch(self, tensor: torch.Tensor) -> None:
        """Note that a tensor's place in the graph or its hooks are about to be changed."""
        known = self._touched.get(id(tensor))
        if known is None or known[0].tensor is not tensor:
            before = Metadata(tensor, "a tensor made outside", given=False)
            self._touched[id(tensor)] = before, user_site()

    def changes(
        self, storages: StorageTable, results: list[torch.Tensor], value: Any, site: Site
    ) -> list[Reason]:
        """What the call did to tensors that the caller has, besides writing them."""
        line = next((line for _, line in self._touched.values()), site)
        touched = [*self._touched.values()]
        self._touched.clear()  # its history would live on
        pairs = [*zip(value.targets, value.parts, strict=True)] if type(value) is Bound else []
        left = left_in(value)
        found = [each.change(line, left) for each in self._given]
        for metadata, line in touched:
            tensor = metadata.tensor
            if tensor is not None and _is_outside(tensor, storages):
                found.append(metadata.change(line))
        own_memory = [each for each in results if has_memory(each) and not stands_for_others(each)]
        known = [(each, storages.origin(each)) for each in own_memory if vars(each)]
        made = [each for each, origin in known if origin is None or origin[0] == NEW]
        tags = {(id(part[0]), target.key): part[0] for target, part in pairs if target.kind == TAGGED}
        own = {id(each) for each in made}
        others = [tensor for (identity, _), tensor in tags.items() if identity not in own]
        found += [tagged(others, set(), site), tagged(made, set(tags), site)]
        return [why for why in found if why is not None]

    def look(self, tensor: torch.Tensor, storages: StorageTable) -> None:
        """Note that the gradient of a tensor is about to be asked for, or set."""
        known = self.slots.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return
        with plain_functions():
            if tensor.is_leaf and _is_outside(tensor, storages):
                self._meet(tensor)
                self.slots[id(tensor)] = weakref.ref(tensor), slot_of(tensor, tensor.grad)

    def look_at(self, tensor: torch.Tensor, *, flags: bool, sets: bool) -> None:
        """Note that a tensor is asked for its shape, type, or whether it requires grad, or is told that."""
        self.flags = self.flags or flags
        which = identity(tensor)
        known = self.looked.get(which)
        if known is None or known() is not tensor:
            self.looked[which] = weakref.ref(tensor)
        if sets:
            before = self.frozen.get(id(tensor))
            if before is None or before[0]() is not tensor:
                with plain_functions():
                    self.frozen[id(tensor)] = weakref.ref(tensor), tensor.requires_grad

    def refrozen(self, storages: StorageTable) -> list[torch.Tensor]:
        """The tensors made outside that require grad and did not before the call, or the other way round."""
        alive = [(tensor, was) for ref, was in self.frozen.values() if (tensor := ref()) is not None]
        changed = [tensor for tensor, was in alive if tensor.requires_grad != was]
        return [tensor for tensor in changed if _is_outside(tensor, storages)]

    def looked_outside(self, storages: StorageTable) -> list[torch.Tensor]:
        """The tensors among these that were made outside and are still alive."""
        alive = [tensor for reference in self.looked.values() if (tensor := reference()) is not None]
        with plain_functions():
            plain = [tensor for tensor in alive if not is_sharded(type(tensor))]  # that is read with a tensor
            return [tensor for tensor in plain if _is_outside(tensor, storages)]

    def walk_back(self, roots: Iterable[torch.Tensor]) -> None:
        """Note that autograd is about to go through the graph of tensors, which matters for sharded ones."""
        if may_shard() and not self.walks_outside:
            with plain_functions():
                self.walks_outside = older_node(roots, frozenset(), self.age) is not None

    def reach(self, roots: Iterable[torch.Tensor], storages: StorageTable) -> None:
        """Note whether autograd may come to an argument from here.

        It does if one of them is below, or an older node. The code of a node may run a backward of its own.
        """
        if self._tracks and not self.reaches:
            with plain_functions():
                self.reaches = bool(
                    contexts_of(roots)
                    or older_node(roots, frozenset(), self.age) is not None
                    or not all(
                        [_is_outside(node.variable, storages, or_own=True) for node in leaves_below(roots)]
                    )
                )
                self.gradient = self.gradient or self.reaches

    def run_back(self, roots: Iterable[torch.Tensor], storages: StorageTable) -> None:
        """Note that a backward is about to run from tensors whose graph may have been made outside."""
        with plain_functions():
            for node in leaves_below(roots):
                if _is_outside(node.variable, storages):
                    self._meet(node.variable)

    def pass_by(self, roots: Iterable[torch.Tensor], storages: StorageTable) -> None:
        """Note whose hooks autograd calls on its way: a recording would not call those that come later."""
        with plain_functions():
            inner = [each for each in storages.externals if not each.is_leaf]
            for tensor in [*[node.variable for node in leaves_below(roots)], *inner]:
                if id(tensor) not in self.passed and _is_outside(tensor, storages):
                    self.passed[id(tensor)] = weakref.ref(tensor), slot_of(tensor, None)

    def keep(self, alias: torch.Tensor) -> None:
        """Note what the graph saves, as it is now."""
        self.saved.append(alias)
        self._versions.append(alias._version)

    def spoiled(self, needed: set[int]) -> tuple[torch.Tensor, int] | None:
        """A tensor that the call modified after its graph had saved it, and the version that was saved.

        Only those in ``needed`` count, the storages (by handle) that the graph of the results kept.
        """
        for alias, version in zip(self.saved, self._versions, strict=True):
            if alias._version != version and alias.untyped_storage()._cdata in needed:
                return alias, version
        return None


def _is_outside(tensor: torch.Tensor, storages: StorageTable, *, or_own: bool = False) -> bool:
    """Whether a tensor was made outside of the call and is no argument; never one that has no memory.

    With ``or_own`` also one in memory that the call has made.
    """
    tensor = part_of(tensor)
    if not has_memory(tensor) or stands_for_others(tensor):
        return False
    origin = storages.origin(tensor)
    return origin is None or origin[0] == EXTERNAL or (or_own and origin[0] == NEW)


def left_in(value: Any) -> set[int]:
    """The arguments, by identity, whose ``.grad`` is handed out with a result."""
    pairs = zip(value.targets, value.parts, strict=True) if type(value) is Bound else ()
    return {id(part[0]) for target, part in pairs if target.kind == GRADIENT}


def _ends_in(left: set[int], results: list[torch.Tensor]) -> bool:
    """Whether the graph of results is whole and ends in arguments that require grad from this call on."""
    ends = all([id(node.variable) in left for node in leaves_below(results)])
    return ends and not contexts_of(results) and all(map(is_whole, nodes_below(results)))


def _is_plain(gradient: torch.Tensor, storages: StorageTable) -> bool:
    """Whether a replay can make a gradient again: the call has made it, and it is plain numbers."""
    if type(gradient) is not torch.Tensor or gradient.layout is not torch.strided or not has_memory(gradient):
        return False
    origin = storages.origin(gradient)
    made = origin is not None and origin[0] == NEW
    return made and not (gradient.requires_grad or vars(gradient) or gradient._backward_hooks)


def tracked_results(value: Any, template: Template) -> list[torch.Tensor]:
    """The tensors of a result whose graph a recording would have to take over, each once."""
    leaves = leaves_of(value)
    return [tracked.of(leaves) for tracked in tracked_in(template)]


def idle_results(value: Any, template: Template) -> list[torch.Tensor]:
    """The tensors of a result whose graph leads nowhere."""
    pairs = zip(template.leaves, leaves_of(value), strict=False)
    return [each for leaf, each in pairs if leaf.idle]


def graph_ends(leaves: tuple[Any, ...]) -> frozenset[Node]:
    """Where the graph of an observed call ends: at the history of its arguments."""
    return frozenset(
        node for leaf in leaves if isinstance(leaf, torch.Tensor) and (node := history_of(leaf)) is not None
    )


def held_by_contexts(value: Any, template: Template, leaves: tuple[Any, ...]) -> list[Any]:
    """What the Python nodes below a result keep: a recording has there what its own call has left."""
    return Contexts(contexts_of(tracked_results(value, template), graph_ends(leaves))).held()


def leads_nowhere(
    result: torch.Tensor,
    tensors: Sequence[torch.Tensor],
    storages: StorageTable,
    is_given: Callable[[torch.Tensor], bool],
) -> bool:
    """Whether nobody sees a backward through a result: its graph ends in leaves that the call has made.

    What that saves is the call's own as well, so that nobody can spoil it.

    Args:
        tensors: All tensors that the call hands out.
        is_given: Says of a leaf whether the call was given it, or has found it.
    """
    results = [result]
    if contexts_of(results) or not all(map(is_whole, nodes_below(results))):
        return False
    leaves = [node.variable for node in leaves_below(results)]
    if not all(map(has_memory, leaves)) or any([_is_outside(each, storages) for each in leaves]):
        return False
    named = {id(each) for each in tensors}
    if any([id(each) in named or is_given(each) for each in leaves]):
        return False
    handed = {each.untyped_storage()._cdata for each in tensors if has_memory(each)}
    mine = {storage._cdata for storage in storages.alive().values()}
    slots = [each.grad for each in leaves if each.grad is not None]
    kept = kept_storages(results, frozenset()) | {each.untyped_storage()._cdata for each in slots}
    return kept <= mine - handed and has_memory(result) and result.untyped_storage()._cdata in mine


def refused_views(results: Iterable[torch.Tensor], site: Site) -> list[Reason]:
    """Results that autograd refuses to tell the history of; whoever uses one is told so."""
    text = "a result is a view that was made without gradients, and its base was written in place since"
    return [reason(rules.OUTPUT_GRADIENT, text, site) for each in results if has_refused_history(each)][:1]


def gradient_blockers(
    value: Any,
    template: Template,
    call: Call,
    leaves: tuple[Any, ...],
    storages: StorageTable,
    written: tuple[set[int], set[int]],
    use: GradientUse,
    site: Site,
) -> list[Reason]:
    """Why the gradients of a call cannot be recorded.

    Args:
        written: Numbers of the arguments, and of the external tensors, that were written in place.
        site: The user's line for reasons that have no better one.
    """
    found: list[Reason] = []
    names, left = call.names(), left_in(value)
    arguments = [
        index
        for index, (kind, leaf) in enumerate(zip(call.kinds, leaves, strict=True))
        if kind == TENSOR and leaf.requires_grad
    ]
    reached = [each for each in arguments if not call.leaves[each].is_leaf or use.was_filled(leaves[each])]
    if reached and use.reaches and torch.is_grad_enabled():
        text = f"{names[reached[0]]} requires grad, and a backward inside the call may come to it"
        found.append(reason(rules.INPUT_GRADIENT, text, use.engine))
    if use.state is not None:
        text = "the call looks at the gradient or the history of an argument"
        found.append(reason(rules.INPUT_GRADIENT, text, use.state))
    for index in written[0] & set(arguments):
        text = f"{names[index]} requires grad and is modified in place"
        found.append(reason(rules.INPUT_GRADIENT, text, site))
    for number in written[1]:
        if history_of(storages.externals[number]) is not None:
            text = "a tensor made outside is written with a result that requires grad"
            line = storages.external_sites[number][1]
            found.append(reason(rules.OUTPUT_GRADIENT, text, line, WITHOUT_GRADIENT))
    results, views = tracked_results(value, template), _tracked_views(value, template)
    if (results or views) and use.hook is not None:
        text = "the call registers a hook on a tensor, or looks at its graph"
        found.append(reason(rules.GRADIENT_HOOK, text, use.hook))
    if (results or views) and use.asked is not None and not use.asks_for_good(leaves, left):
        text = "a result requires grad, and the call sets whether an argument does"
        found.append(reason(rules.INPUT_GRADIENT, text, use.asked))
    if is_met_below([*results, *views], views):
        text = "a result is computed from a view that is a result, too"
        found.append(reason(rules.OUTPUT_GRADIENT, text, site, "Return a copy (clone()) of the view."))
    if results:
        found += _graph_blockers(results, template, leaves, left, use, site)
    return found


def _tracked_views(value: Any, template: Template) -> list[torch.Tensor]:
    """The tensors of a result that have a history and are made anew as views."""
    pairs = zip(template.leaves, leaves_of(value), strict=False)  # hidden leaves are behind
    return [each for leaf, each in pairs if leaf.tracked and leaf.kind in (INPUT_VIEW, EXTERNAL_VIEW, VIEW)]


def _graph_blockers(
    results: list[torch.Tensor],
    template: Template,
    leaves: tuple[Any, ...],
    left: set[int],
    use: GradientUse,
    site: Site,
) -> list[Reason]:
    found: list[Reason] = []
    if use.engine is not None and not _ends_in(left, results):
        text = "a backward runs inside the call, and a result requires grad all the same"
        found.append(reason(rules.OUTPUT_GRADIENT, text, use.engine, DETACHED_RESULT))
    node = older_node(results, graph_ends(leaves), use.age)
    if node is not None:
        text = f"a result depends on a tensor made outside that has a history ({node.name()})"
        found.append(reason(rules.OUTPUT_GRADIENT, text, site))
    contexts = contexts_of(results, graph_ends(leaves))
    found += Contexts(contexts).hidden_reasons(site)
    if any(map(donates, contexts)):
        text = "the backward of compiled code may run only once, since it writes to what was saved for it"
        found.append(reason(rules.OUTPUT_GRADIENT, text, site, UNDONATED))
    if use.saved and use.spoiled(kept_storages(results, frozenset())) is not None:
        text = "a tensor that the backward needs is modified in place after it was used"
        found.append(reason(rules.OUTPUT_GRADIENT, text, site))
    text = shared_results(template)
    if text is not None:
        found.append(reason(rules.SHARED_RESULTS, text, site))
    for leaf in template.leaves:
        if leaf.kind == INPUT_VIEW and leaf.tracked and not leaves[leaf.index].requires_grad:
            text = "a view of an argument got a history inside the call"
            found.append(reason(rules.INPUT_GRADIENT, text, site))
    return found


def take_over(
    value: Any,
    template: Template,
    members: dict[int, int],
    used: list[Any],
    storages: StorageTable,
    use: GradientUse,
    call: Call,
    occupancy: Occupancy,
    stand_ins: ParameterAliases,
    owner: Owner,
    log: BackwardLog,
    *,
    repeats: bool,
    binds: bool,
) -> Backward | None:
    """Keep the graph of a call that ran on static inputs; None if no result requires grad.

    Args:
        members: Which argument each static input stands for, by identity.
        occupancy: Of the recording's memory.
        stand_ins: What the graph has instead of parameters.
        repeats: The call may be made again without changing anything but slots that it binds.
        binds: It binds some.
    """
    leaves = leaves_of(value)
    tracked = tracked_in(template)
    if not tracked:
        return None
    results = [each.of(leaves) for each in tracked]
    ends = leaves_below(results)
    placed = [node for node in ends if id(node.variable) in members]
    others = [node for node in ends if id(node.variable) not in members]
    targets = [stand_ins.original(node.variable) for node in (*placed, *others)]
    needed = kept_storages(results, frozenset())
    arguments = [
        member
        for group in group_members(call)
        for member in group
        if used[member].untyped_storage()._cdata in needed and not used[member].is_inference()
    ]
    kept = [number for number, result in enumerate(results) if result.untyped_storage()._cdata in needed]
    memory = needed | {tensor.untyped_storage()._cdata for tensor in (*results, *use.saved)}
    return Backward(
        GradientWalk(
            results, [*placed, *others], targets, len(placed), frozenset(memory), stand_ins, use.numbers
        ),
        [members[id(node.variable)] for node in placed],
        tracked,
        Saved(_reads(use.saved, needed, storages), arguments, kept),
        occupancy,
        weakref.ref(owner),
        log,
        use.spoiled(needed),
        Order.of(results),
        _groups(results, [*placed, *others]),
        template.spec,
        repeats=repeats,
        binds=binds,
    )


def _groups(results: list[torch.Tensor], targets: list[Node]) -> list[ResultGroup]:
    """The results that are freed together, with the leaves below them."""
    found: list[ResultGroup] = []
    for numbers in groups(results):
        mine = [results[number] for number in numbers]
        below = set(leaves_below(mine))
        keeps = bool(kept_storages(mine, frozenset())) or bool(contexts_of(mine))
        places = tuple([place for place, node in enumerate(targets) if node in below])
        found.append(ResultGroup(numbers, places, keeps))
    return found


def _reads(saved: list[torch.Tensor], needed: set[int], storages: StorageTable) -> list[SavedRead]:
    """The tensors made outside that the graph of the results saved; the call may have saved others."""
    found: dict[int, SavedRead] = {}
    for alias in saved:
        origin = storages.origin(alias) if alias.layout is torch.strided else None
        if origin is None or alias.untyped_storage()._cdata not in needed:
            continue
        if origin[0] == EXTERNAL:
            found.setdefault(origin[1], SavedRead(weakref.ref(storages.externals[origin[1]]), alias))
    return list(found.values())
