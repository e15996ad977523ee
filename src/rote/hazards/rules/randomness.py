"""Random numbers: what is drawn on the host, and generators that are set inside the call."""

from __future__ import annotations

from ..finding import Severity
from .rule import Finder, Group, Rule

HOST_RANDOM = Rule(
    "RT204",
    "host random numbers",
    "Draw with torch on the device (torch.rand), or draw outside and pass the number in.",
    Severity.WRONG,
    Group.RANDOM,
    Finder.SCAN | Finder.TRIAL | Finder.RUNTIME,
    """
    ``random.random()``, ``numpy.random.randint(...)``, ``torch.rand([])`` on the CPU whose value decides a
    branch.

    Why: The number is drawn when the graph is captured and frozen into it: every replay skips the same layer
    and crops at the same place. rote sees that the generators moved and runs such calls eagerly.

    Limits: Generators of their own (``random.Random(3)``) are Python state for the runtime (RT201); the scan
    finds those whose name or constructor it sees.

    Bad::

        return x * random.random()

    Good::

        return x * torch.rand((), device=x.device)
    """,
)
RANDOM_STATE_SET = Rule(
    "RT208",
    "random state set inside the call",
    "Seed outside; activation checkpointing needs preserve_rng_state=False, where nothing in it draws.",
    Severity.WRONG,
    Group.RANDOM,
    Finder.SCAN | Finder.TRIAL | Finder.RUNTIME,
    """
    ``torch.manual_seed``, ``torch.set_rng_state``, ``torch.random.fork_rng``, ``generator.manual_seed``
    inside the call.

    Why: A replay takes seed and offset from the generator as it stands, and does not set it. Captured on CUDA
    it raises, or the numbers are others than those of the plain call.

    Limits: The scan does not follow libraries that set the state (``checkpoint`` does, unless told not to).
    A generator of the CPU that is handed to operations (``generator=``) is replayed if it is seeded before it
    is drawn from, since a replay seeds it there, too.

    Bad::

        torch.manual_seed(3)
        return x + torch.randn(4, device=x.device)

    Good::

        return x + torch.randn(4, device=x.device)
    """,
)
GENERATOR_INSIDE = Rule(
    "RT221",
    "random generator made inside the call",
    "Make the generator once, outside, and pass it in or keep it in an attribute.",
    Severity.STOPS,
    Group.RANDOM,
    Finder.SCAN | Finder.RUNTIME,
    """
    ``torch.Generator(device)`` inside the call.

    Why: A graph knows the generators that were registered with it. A new one raises "Attempt to increase
    offset for a CUDA generator not in capture mode". rote runs such calls eagerly. A generator of the CPU is
    replayed: the recording has one of its own, and seeds it as the call did. So is one that is made outside
    and passed in, a new one in each call, on any device. A seed that is an argument is part of the key, so
    each number has a recording of its own.

    Limits: The scan does not see a generator made in a function of another file, and does not know its
    device.

    Bad::

        generator = torch.Generator(x.device)
        return x + torch.rand(4, device=x.device, generator=generator)

    Good::

        return x + torch.rand(4, device=x.device, generator=generator)
    """,
)
