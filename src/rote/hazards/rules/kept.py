"""Kept: what layers and functions keep from one call for the next."""

from __future__ import annotations

from ..finding import Severity
from .rule import Finder, Group, Rule

SCALE_ON_SELF = Rule(
    "RT212",
    "tensor computed in forward and stored on self",
    "Update a registered buffer in place (self.scale.copy_(value)), calibrate before the capture and only "
    "read the scale in forward, or compute it anew in each call and keep it in a local variable.",
    Severity.WRONG,
    Group.STATE,
    Finder.SCAN | Finder.TRIAL,
    """
    ``self._act_scale = x.abs().amax() / 127`` in ``forward``: the layer keeps a tensor of its last call.

    Why: The attribute is assigned once, at the capture. Its memory belongs to the graph, so what reads it
    between calls sees the numbers of a replay, or of another graph that uses the memory since; another path
    through the layer that only reads it uses a stale scale. The plain layer has a new tensor in every call.
    Three remedies: (1) ``self.register_buffer("scale", torch.ones(()))`` and ``self.scale.copy_(...)``: one
    tensor, updated in place, part of the state dict. (2) Calibration: compute the scale from sample batches
    before the capture, and only read it in ``forward``. (3) A dynamic scale: a local variable, computed in
    each call, on the device, and returned if somebody wants to see it.

    Limits: An attribute that is deleted or overwritten before the call ends is reported as well.

    Bad::

        self._act_scale = x.abs().amax() / 127
        return (x / self._act_scale).round() * self._act_scale

    Good::

        self.act_scale.copy_(x.abs().amax() / 127)
        return (x / self.act_scale).round() * self.act_scale
    """,
)
LAZY_STATE = Rule(
    "RT213",
    "state made in the first call",
    "Make it in __init__ or in a method that is called before the first capture.",
    Severity.SPEED,
    Group.STATE,
    Finder.SCAN,
    """
    ``if self.mask is None: self.mask = ...``, ``if not hasattr(self, "table"): ...`` in ``forward``.

    Why: The first call is unlike the others. Captured in that call, the tensor lies in the graph's memory and
    its computation is replayed for ever; after a warm-up nothing is wrong. rote waits for the second call.

    Limits: A cache that is made again when a size changes is reported too; it is made again for each size
    that is met.

    Bad::

        if self.mask is None:
            self.mask = torch.ones(x.shape[-1], device=x.device).cumsum(0)
        return x * self.mask

    Good::

        return x * self.mask
    """,
)
GROWING = Rule(
    "RT214",
    "state that grows with every call",
    "Allocate it at full size and write at a position that is a tensor (index_copy_), or use a static cache.",
    Severity.WRONG,
    Group.STATE,
    Finder.SCAN,
    """
    ``self.keys = torch.cat([self.keys, k])``: the cache has another shape in every call.

    Why: A graph has fixed shapes and addresses: it appends to the cache of the capture again and again.

    Limits: Growth through a helper of another file is not seen.

    Bad::

        self.keys = torch.cat([self.keys, x])
        return self.keys.mean(0)

    Good::

        self.keys.index_copy_(0, position, x)
        return self.keys.sum(0) / (position + 1)
    """,
)
MUTABLE_DEFAULT = Rule(
    "RT215",
    "mutable default argument as state",
    "Use None as the default, and keep state in an attribute or pass it in.",
    Severity.WRONG,
    Group.STATE,
    Finder.SCAN | Finder.TRIAL,
    """
    ``def forward(self, x, cache={})`` where the function writes to ``cache``.

    Why: The default is one object for all calls: state that lives in the function. A replay does not write to
    it.

    Limits: A mutable default that is only read is not reported.

    Bad::

        def forward(self, x, seen=[]):
            seen.append(x.shape)
            return x * len(seen)

    Good::

        def forward(self, x, seen=()):
            return x * len(seen)
    """,
)
MEMOIZED = Rule(
    "RT216",
    "function of tensors that remembers its results",
    "Keep the table in a buffer that is made once, or compute it in the call.",
    Severity.WRONG,
    Group.STATE,
    Finder.SCAN,
    """
    ``functools.lru_cache`` or ``functools.cache`` on a function that makes or takes tensors.

    Why: A tensor that is made during a capture and remembered lies in the graph's memory, and others read it
    after that memory was overwritten. Nobody can find it to notice that it was made anew (RT206), and a cache
    keyed by tensors keeps each of them alive.

    Limits: Only functions of the scanned file that make tensors by PyTorch calls are known. A table that was
    filled by calls before the capture is right as long as nothing empties it; it is reported all the same.

    Bad::

        @lru_cache
        def table(n):
            return torch.arange(n).float().cos()

    Good::

        def table(n):
            return torch.arange(n).float().cos()
    """,
)
HOOK_INSIDE = Rule(
    "RT217",
    "module hook registered inside the call",
    "Register it once, outside, and let it write into a buffer, or return what it sees.",
    Severity.WRONG,
    Group.STATE,
    Finder.SCAN,
    """
    ``layer.register_forward_hook(...)`` in the call, to take activations for example.

    Why: A hook is Python: it runs at the capture only. Registered at every call, it also piles up.

    Limits: Hooks registered outside are found by the runtime when they keep something (RT201).

    Bad::

        handle = self.layer.register_forward_hook(keep)
        y = self.layer(x)
        handle.remove()
        return y

    Good::

        y = self.layer(x)
        return y, y.detach()
    """,
)
