"""Views among results that share memory, so that a replay hands out the same relations.

What a caller writes into one of them shows in the others, and autograd knows: it moves the histories of views
along, counts the versions of all of them together, or refuses the write. Copies that merely lay in one memory
would lose that silently. So each tensor of a result that shares its memory with another one is one of:

- a *base*: a tensor made in the call, with a copy of its own (it need not be a result itself: the caller can
  reach it through its views all the same);
- a *view* of a base: made anew from the caller's base, by ``as_strided``. Its gradient joins that of the base
  outside of the recording;
- a *part*: one of several views that one operation gave (``chunk``, ``split``, ``unbind``). Autograd refuses
  to write into those, and would refuse to write into views that a :class:`..backward.Recorded` returns in the
  same words. So these are handed out just so, and their gradients go into the recorded graph one by one;
- none of these (``detach()``): the memory and the version counter are common, and nothing else.

What does not work: views whose gradients could come together in another order, or in another layout, than in
eager, so that a sum would be rounded in another way (see :func:`_adds_up_alike`); parts beside a tensor that
they are parts of. Such calls are not recorded if the results require grad.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy
import torch

from ...arguments import paths
from ...program import OWN, VIEW, Creation, OutputLeaf, Template, creation_of, node_age, spend
from .graph import Node, nodes_below

_MAX_VIEWS = 64
"""Views of one tensor that are compared with each other."""

_MAX_WORK: Any = 10_000
"""Steps after which two views count as overlapping."""


class Tracked(NamedTuple):
    """A tensor of a result whose graph a recording takes over.

    Attributes:
        position: Its place in the template.
        seen_by: The place of a view of it, if it is no result itself.
    """

    position: int
    seen_by: int | None = None

    @property
    def shown(self) -> int:
        """The place of a part of the result that shows it."""
        return self.position if self.seen_by is None else self.seen_by

    def of(self, leaves: list[Any]) -> torch.Tensor:
        """The tensor itself, among the leaves of the result."""
        return leaves[self.position] if self.seen_by is None else leaves[self.seen_by]._base


def tracked_in(template: Template) -> list[Tracked]:
    """The tensors of a result whose graph a recording would have to take over."""
    views = {leaf.index: place for place, leaf in enumerate(template.leaves) if leaf.kind == VIEW}
    return [
        Tracked(position, views[position] if leaf.hidden else None)
        for position, leaf in enumerate(template.leaves)
        if leaf.tracked and leaf.kind == OWN
    ]


def shared_results(template: Template) -> str | None:
    """Say which results that require grad lie in one memory in a way that cannot be made again."""
    names = [*paths(template.spec, "result")]
    known: dict[int, Tracked] = {}
    for tracked in tracked_in(template):
        leaf = template.leaves[tracked.position]
        other = known.setdefault(leaf.index, tracked)
        if other is not tracked and not (leaf.part and template.leaves[other.position].part):
            return f"{names[other.shown]} and {names[tracked.shown]} share memory"
    return None


# ------------------------------------------------------------------ what is a view of what


def related(template: Template, tensors: list[Any]) -> Template:
    """The template of a result, with the relations of tensors that share a memory; it has none yet."""
    shared = [positions for positions in template.by_storage() if len(positions) > 1]
    if not shared:
        return template
    leaves = list(template.leaves)
    for positions in shared:
        _relate(leaves, tensors, positions)
    return replace(template, leaves=tuple(leaves))


def _relate(leaves: list[OutputLeaf], tensors: list[Any], positions: list[int]) -> None:
    tracked = [position for position in positions if leaves[position].tracked]
    parts = [position for position in tracked if creation_of(tensors[position]) is Creation.PART]
    if len(parts) > 1 and parts == tracked:
        for position in parts:
            leaves[position] = replace(leaves[position], part=True)
        return
    families: dict[int, list[int]] = {}
    for position in positions:
        base = tensors[position]._base
        families.setdefault(id(base if base is not None else tensors[position]), []).append(position)
    for members in families.values():
        if len(members) > 1 and _are_views(leaves, tensors, members):
            _make_views(leaves, tensors, members)


def _are_views(leaves: list[OutputLeaf], tensors: list[Any], members: list[int]) -> bool:
    """Whether views made by ``as_strided`` would be like these, their gradients included."""
    views = [position for position in members if tensors[position]._base is not None]
    base: torch.Tensor = tensors[views[0]]._base
    alike = all(_is_like(base, tensors[position]) and not leaves[position].spent for position in members)
    tracked = [tensors[position] for position in views if leaves[position].tracked]
    if not alike or not tracked:
        return alike
    results = [tensor for tensor, leaf in zip(tensors, leaves, strict=False) if leaf.tracked]
    return _adds_up_alike(base, tracked, results, alone=len(views) == len(members))


def _is_like(base: torch.Tensor, tensor: torch.Tensor) -> bool:
    plain = base.layout is torch.strided and type(base) is torch.Tensor and not base.is_inference()
    lazy = base.is_conj() or base.is_neg() or tensor.is_conj() or tensor.is_neg()
    return plain and not lazy and base.dtype is tensor.dtype


def _make_views(leaves: list[OutputLeaf], tensors: list[Any], members: list[int]) -> None:
    views = [position for position in members if tensors[position]._base is not None]
    home = next((position for position in members if position not in views), None)
    if home is None:
        home = len(leaves)
        first, base = leaves[views[0]], tensors[views[0]]._base
        tracked = any(leaves[position].tracked for position in views)
        token = (tuple(base.shape), base.stride(), base.storage_offset())
        leaves.append(
            replace(first, token=token, value=base.detach(), tracked=tracked, hidden=True, follows=True)
        )
    for position in views:
        follows = creation_of(tensors[position]) is Creation.VIEW
        leaves[position] = replace(leaves[position], kind=VIEW, index=home, follows=follows)


# ------------------------------------------------------------------ are the gradients the same


_VIEWS_OF_DENSE = frozenset({
    "SliceBackward0", "SelectBackward0", "ViewBackward0", "UnsafeViewBackward0", "ReshapeAliasBackward0",
    "SqueezeBackward0", "SqueezeBackward1", "UnsqueezeBackward0", "AliasBackward0",
})  # fmt: skip
"""Nodes that give a contiguous gradient for a contiguous one, with its values."""

_CUTS = frozenset({"SliceBackward0", "SelectBackward0"})
"""Nodes that give a gradient of zeros with the given one in it, whatever its layout."""


def _adds_up_alike(
    base: torch.Tensor, views: list[torch.Tensor], results: list[torch.Tensor], *, alone: bool
) -> bool:
    """Whether the gradients of views, added up outside of the recording, have eager's bits.

    Outside, the gradient of a view is laid into zeros of the shape of the base, those of all views and of the
    base are added, and the sum meets what comes from the rest of the recorded graph. That is what eager does
    if each view is cut directly from the base; where no two of them overlap, the order does not matter.

    Args:
        views: Those that require grad.
        results: All results that require grad.
        alone: The base is not among them.
    """
    if base.grad_fn is None or not base.is_contiguous() or any(map(_meets_itself, (base, *views))):
        return False
    if any(creation_of(view) is not Creation.VIEW for view in views):
        return False
    chains = [_chain(view.grad_fn, base) for view in views]
    found = [chain for chain in chains if chain is not None]
    if len(found) < len(chains) or not all(map(_lays_into_zeros, found)):
        return False
    inside = {base.grad_fn, *(node for chain in found for node in chain)}
    others = sum(
        parent in inside and (parent is not base.grad_fn or number == base.output_nr)
        for node in nodes_below(results)
        if node not in inside
        for parent, number in node.next_functions
    )
    if alone and _are_apart(views):
        return others <= 1
    ages = [node_age(view.grad_fn) for view in views]
    return not others and ages == sorted(ages) and all(len(chain) == 1 for chain in found)


def _chain(node: Node, base: torch.Tensor) -> list[Node] | None:
    """The nodes from a view to its base; None if the way divides or ends elsewhere."""
    found: list[Node] = []
    while node is not None:
        found.append(node)
        if len(node.next_functions) != 1:
            return None
        following, number = node.next_functions[0]
        if following is base.grad_fn and number == base.output_nr:
            return found
        node = following
    return None


def _lays_into_zeros(chain: list[Node]) -> bool:
    names = [node.name() for node in chain]
    cut = next((number for number, name in enumerate(names) if name in _CUTS), None)
    return cut is not None and all(name in _VIEWS_OF_DENSE for name in names[cut:])


def _meets_itself(tensor: torch.Tensor) -> bool:
    """Whether two elements may lie in one place."""
    span = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride < span:
            return True
        span += (size - 1) * stride
    return False


def _are_apart(views: list[torch.Tensor]) -> bool:
    """Whether no two views have an element in common."""
    if len(views) > _MAX_VIEWS:
        return False
    first = min(view.storage_offset() for view in views)
    memory = numpy.empty(views[0].untyped_storage().nbytes() // views[0].itemsize - first, numpy.int8)
    places = [
        numpy.ndarray(view.shape, numpy.int8, memory, int(view.storage_offset()) - int(first), view.stride())
        for view in views
    ]
    try:
        return not any(numpy.shares_memory(*pair, max_work=_MAX_WORK) for pair in combinations(places, 2))
    except numpy.exceptions.TooHardError:
        return False


# ------------------------------------------------------------------ handing out


def copied_together(leaves: dict[int, OutputLeaf]) -> dict[int, torch.Tensor]:
    """Copies of results (by position) that lie in one memory, in another one, with one version counter."""
    first: torch.Tensor = next(iter(leaves.values())).value
    storage = first.untyped_storage().clone()
    whole = torch.empty(0, dtype=first.dtype, device=first.device)
    whole.set_(storage, 0, (storage.nbytes() // first.itemsize,), (1,))
    found: dict[int, torch.Tensor] = {}
    with torch.no_grad():
        for position, leaf in leaves.items():
            tensor: torch.Tensor = leaf.value
            geometry = (tensor.shape, tensor.stride(), tensor.storage_offset())
            if tensor.dtype is first.dtype:
                made = whole.as_strided(*geometry)
                made = made if leaf.part else made.detach()
            else:
                made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
                made.set_(storage, geometry[2], *geometry[:2])
            found[position] = spend(made, idle=leaf.idle) if leaf.spent else made
    return found


def view_of(leaf: OutputLeaf, template: Template, copies: dict[int, torch.Tensor]) -> torch.Tensor:
    """A view of the caller's copy of its base, which is among ``copies`` (by position)."""
    tensor: torch.Tensor = leaf.value
    base, recorded = copies[leaf.index], template.leaves[leaf.index].value
    offset = tensor.storage_offset() - recorded.storage_offset() + base.storage_offset()
    with torch.inference_mode(base.is_inference()), torch.set_grad_enabled(leaf.follows):
        return base.as_strided(tensor.shape, tensor.stride(), offset)
