"""Results that a hot path can write out as an expression: which those are, and the expression."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from ..signature.key import Call
from ..signature.leaves import Spec
from ..signature.source import Source
from .template import EXTERNAL_SAME, OWN, PASSED, VALUE, Template

if TYPE_CHECKING:
    from .entry import Entry
    from .variant import Variant

_INLINE = (OWN, PASSED, EXTERNAL_SAME, VALUE)


def is_inline(entry: Entry, variant: Variant) -> bool:
    """Whether the result can be written out: plain tensors, arguments and constants, nothing to do beside.

    Copies are made one by one, so no two of them may share memory.
    """
    template = variant.root.template
    if template is None or variant.root.backward is not None:
        return False
    tracked = any(leaf.tracked for leaf in template.leaves if leaf.kind == OWN)
    return not tracked and _can_be_written(template, variant, apart=not entry.limits.borrow)


def is_hung(entry: Entry, variant: Variant) -> bool:
    """The same of a result that hangs in the caller's autograd graph: its copies are all there is besides."""
    template = variant.root.template
    if template is None or variant.root.backward is None or entry.limits.borrow:
        return False
    return not torch.is_inference_mode_enabled() and _can_be_written(template, variant, apart=True)


def _can_be_written(template: Template, variant: Variant, *, apart: bool) -> bool:
    if variant.inputs is None or variant.inputs.written:
        return False
    own = [leaf for leaf in template.leaves if leaf.kind == OWN]
    storages = {leaf.value.untyped_storage()._cdata for leaf in own}
    return (
        all(leaf.kind in _INLINE for leaf in template.leaves)
        and (len(storages) == len(own) or not apart)
        and not any(leaf.spent for leaf in own)
        and not any(leaf.value.is_inference() != torch.is_inference_mode_enabled() for leaf in own)
        and _is_simple(template.spec)
        and not template.again
    )


def is_chained(entry: Entry, variant: Variant, call: Call) -> bool:
    """Whether all borrowed arguments are used in place, and nothing of the result looks at them."""
    root = variant.root
    in_place = {member for spot in variant.spots for member in spot.members}
    if root.branch is not None or variant.effects or not is_inline(entry, variant):
        return False
    assert root.template is not None
    own = all(leaf.kind in (OWN, VALUE) for leaf in root.template.leaves)
    return own and in_place.issuperset(position for position, _ in call.borrowed)


def _is_simple(spec: Spec) -> bool:
    if spec is None:
        return True
    kind, cls, _, children = spec
    return (kind in ("tuple", "list") or cls is dict) and all(_is_simple(child) for child in children)


def put_together(source: Source, spec: Spec, parts: Iterator[str]) -> str:
    """The expression of a result, of the expressions of its leaves."""
    if spec is None:
        return next(parts)
    kind, _, names, children = spec
    members = [put_together(source, child, parts) for child in children]
    if kind == "dict":
        keys = [source.constant(name) for name in names]
        return "{" + ", ".join([f"{key}: {member}" for key, member in zip(keys, members, strict=True)]) + "}"
    listed = ", ".join(members)
    return f"[{listed}]" if kind == "list" else f"({listed}{',' if members else ''})"
