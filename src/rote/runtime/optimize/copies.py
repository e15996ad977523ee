"""Copies to where others read what a segment has made: small ones are one operation.

A training step leaves a gradient for each parameter, and a forward saves most of what it makes. One copy for
each would be more launches than there are to save.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import torch

from ..program import Origin

_MOST = 64
"""Tensors that ``_foreach_copy_`` takes in one kernel on a GPU."""
_LARGE = 1 << 22
"""Bytes from which on the driver's copy is at least as fast."""
_WIDE = 8


def copied_together(
    shown: Iterable[Origin], stored: Collection[Origin], reach: Mapping[Origin, int]
) -> list[tuple[Origin, ...]]:
    """Which storages are copied by one operation.

    Args:
        shown: Those that others read.
        stored: Those that lie there already.
        reach: How many bytes of each others may see.
    """
    groups: dict[bool, list[Origin]] = {True: [], False: []}
    found: list[tuple[Origin, ...]] = []
    for origin in shown:
        nbytes = reach[origin]
        if origin in stored or not nbytes:
            continue
        if nbytes > _LARGE:
            found.append((origin,))
        else:
            groups[nbytes % _WIDE == 0].append(origin)
    for group in groups.values():
        found += [tuple(group[start : start + _MOST]) for start in range(0, len(group), _MOST)]
    return found


def as_elements(storage: torch.UntypedStorage, nbytes: int) -> torch.Tensor:
    """The bytes of a storage, as elements as wide as possible."""
    dtype = torch.uint8 if nbytes % _WIDE else torch.int64
    with torch.inference_mode(False):
        tensor = torch.empty(0, dtype=dtype, device=storage.device)
        return tensor.set_(storage, 0, (nbytes // tensor.itemsize,), (1,))
