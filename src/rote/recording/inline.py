"""Results that a hot path can write out as an expression: which those are, and the expression."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from ..signature.leaves import Spec
from ..signature.source import Source
from .template import EXTERNAL_SAME, OWN, PASSED, VALUE, Template

if TYPE_CHECKING:
    from .variant import Variant

_INLINE = (OWN, PASSED, EXTERNAL_SAME, VALUE)


def is_inline(variant: Variant) -> bool:
    """Whether the result can be written out: plain tensors, arguments and constants, nothing to do beside.

    Copies are made one by one, so no two of them may share memory.
    """
    template = variant.root.template
    if template is None or variant.root.backward is not None:
        return False
    tracked = any(leaf.tracked for leaf in template.leaves if leaf.kind == OWN)
    return not tracked and _can_be_written(template, variant)


def is_hung(variant: Variant) -> bool:
    """The same of a result that hangs in the caller's autograd graph: its copies are all there is besides."""
    template = variant.root.template
    if template is None or variant.root.backward is None:
        return False
    return not torch.is_inference_mode_enabled() and _can_be_written(template, variant)


def _can_be_written(template: Template, variant: Variant) -> bool:
    if variant.inputs is None or variant.inputs.written:
        return False
    own = [leaf for leaf in template.leaves if leaf.kind == OWN]
    storages = {leaf.value.untyped_storage()._cdata for leaf in own}
    return (
        all(leaf.kind in _INLINE for leaf in template.leaves)
        and len(storages) == len(own)
        and not any(leaf.spent for leaf in own)
        and not any(leaf.value.is_inference() != torch.is_inference_mode_enabled() for leaf in own)
        and _is_simple(template.spec)
        and not template.again
    )


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
