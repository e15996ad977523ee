"""State: what a call keeps in Python, and calls that are not alike."""

from __future__ import annotations

from ..finding import Severity
from .rule import Finder, Group, Rule

STATE_CHANGES = Rule(
    "RT201",
    "Python state changes at every call",
    "Keep what changes in a tensor that is updated in place (a registered buffer), or move it outside.",
    Severity.WRONG,
    Group.STATE,
    Finder.SCAN | Finder.TRIAL | Finder.RUNTIME,
    """
    A counter (``self.step += 1``), a list that is appended to, an entry of a dict, a ``global`` or
    ``nonlocal``, an iterator that is advanced (``next(self.batches)``): the call leaves something in Python.

    Why: A replay runs no Python, so the counter stands still and the list stays as it is. rote runs such a
    call eagerly as long as the state keeps changing.

    Limits: The scan reports writes, also those that settle after the first calls; the runtime waits until
    two calls agree. An iterator that does not tell how far it is counts as moved where the code names it.

    Bad::

        self.step += 1
        return x * self.step

    Good::

        self.step.add_(1)
        return x * self.step
    """,
)
OPERAND_DIFFERS = Rule(
    "RT202",
    "operand differs between calls",
    "Pass the value in as an argument, or compute it with PyTorch on the device.",
    Severity.WRONG,
    Group.STATE,
    Finder.TRIAL | Finder.RUNTIME,
    """
    Two calls with the same arguments run the same operations with another number: a time stamp, a value from
    a queue, the length of one.

    Why: The number is part of the graph. Captured by hand, all replays use the first one.

    Limits: Seen only if it differs while the calls are observed.

    Bad::

        return x * self.schedule.get()

    Good::

        return x * factor
    """,
)
OPERATIONS_DIFFER = Rule(
    "RT203",
    "different operations at every call",
    "Make what the branch depends on an argument, so that it becomes part of the key.",
    Severity.WRONG,
    Group.STATE,
    Finder.TRIAL | Finder.RUNTIME,
    """
    Two calls with the same arguments run different operations.

    Why: A graph holds one sequence of operations; the branch that was taken at the capture is taken by all
    replays.

    Limits: A branch on something that rote guards (an attribute, a global) is a guard instead (RT302).

    Bad::

        return x.exp() if self.flags.get() else x.tanh()

    Good::

        return x.exp() if flag else x.tanh()
    """,
)
TENSOR_ESCAPES = Rule(
    "RT205",
    "tensor kept from inside the call",
    "Return the tensor, or copy it into a buffer made outside (buffer.copy_(value)).",
    Severity.WRONG,
    Group.STATE,
    Finder.TRIAL | Finder.RUNTIME,
    """
    A tensor made inside the call is still alive after it and is not among the results: in a queue, a closure,
    an object that rote does not guard.

    Why: Its memory belongs to the graph: the next replay overwrites it, or another graph does.

    Limits: What is kept in guarded state (attributes, lists) is told as RT201.

    Bad::

        y = x * 2
        seen.put(y)
        return y + 1

    Good::

        y = x * 2
        return y + 1, y
    """,
)
UNREACHABLE = Rule(
    "RT206",
    "external tensor that cannot be found again",
    "Pass the tensor in as an argument or keep it in an attribute, so that a change can be noticed.",
    Severity.WRONG,
    Group.STATE,
    Finder.RUNTIME,
    """
    The call reads a tensor that no attribute, closure, global or ``lru_cache`` leads to, for example one that
    a callable keeps of which it was said that it keeps nothing (``rote.pure``).

    Why: A graph keeps its address. If somebody replaces it, nobody can notice.

    Limits: Seen in the calls that are observed.

    Unchecked: What a call reads and nobody can find again is no hazard of one call: the trial replaces the
    tensor by a stand-in where it meets it, and the runtime tells it where it keeps the address.

    Bad::

        return x * table(4)

    Good::

        return x * self.table
    """,
)
ARGUMENT_CHANGED = Rule(
    "RT207",
    "container among the arguments changed",
    "Return new values instead of storing them in an argument's list, dict or attribute.",
    Severity.WRONG,
    Group.STATE,
    Finder.SCAN | Finder.TRIAL | Finder.RUNTIME,
    """
    ``cache["keys"] = k``, ``outputs.append(y)``, ``batch.mask = m`` where the container is an argument.

    Why: A replay runs no Python, so in a captured graph the caller's container stays as it was.

    Limits: rote's own replays store tensors, plain values and containers of them again (``out["y"] = [y]``).
    Writing into a *tensor* of the container (``cache["keys"].copy_(k)``) is fine and not reported.

    Bad::

        y = x * 2
        out["y"] = lambda: y
        return y

    Good::

        y = x * 2
        return {"y": y}
    """,
)
OPERATION_RAISES = Rule(
    "RT209",
    "operation raised inside the call",
    "Check the operands before the operation.",
    Severity.WRONG,
    Group.STATE,
    Finder.TRIAL | Finder.RUNTIME,
    """
    An operation raises and the callable catches it and goes another way.

    Why: A graph can't raise; the way that was taken at the capture is taken by all replays.

    Limits: An exception that leaves the callable is passed on, and the call is not recorded. Where an
    operation raises in a replay on the host (an index out of range), the call is made plainly, unless it
    writes an argument or state, or draws random numbers.

    Bad::

        try:
            return x.view(5) * 2
        except RuntimeError:
            return x.sum() * 3

    Good::

        return x.view(5) * 2 if x.numel() == 5 else x.sum() * 3
    """,
)
AMBIENT_CHANGES = Rule(
    "RT210",
    "mode changed by the call",
    "Change grad mode and defaults outside, or undo it.",
    Severity.WRONG,
    Group.STATE,
    Finder.SCAN | Finder.TRIAL | Finder.RUNTIME,
    """
    ``torch.set_grad_enabled(False)`` as a statement, ``torch.set_default_dtype``,
    ``torch.backends.cudnn.benchmark = True``, ``torch.use_deterministic_algorithms`` inside the call.

    Why: The change outlives the call; a replay does not make it.

    Limits: With ``with torch.no_grad():`` the mode is as before afterwards, and nothing is wrong.

    Bad::

        torch.set_grad_enabled(False)
        return x * 2

    Good::

        with torch.no_grad():
            return x * 2
    """,
)
BLIND = Rule(
    "RT211",
    "another profiler is active",
    "Let the first calls run without a profiler.",
    Severity.SPEED,
    Group.STATE,
    Finder.RUNTIME,
    """
    Something else uses ``sys.setprofile`` during the calls that rote observes; from Python 3.12 on, something
    else uses tools 3 and 4 of ``sys.monitoring``.

    Why: What a call reads can't be watched, so it is not recorded.

    Limits: None known.

    Unchecked: The check watches in a process of its own, which nobody profiles.

    Bad::

        sys.setprofile(lambda *event: None)

    Good::

        sys.setprofile(None)
    """,
)
UNKNOWN_CODE = Rule(
    "RT218",
    "code of which it is not known what it reads",
    "Call it outside, and pass in what it gives; or, if it gives the same for the same arguments: "
    "rote.pure(...).",
    Severity.SPEED,
    Group.STATE,
    Finder.RUNTIME,
    """
    The callable calls a function in C of which rote's table does not say what it reads or which reads what is
    outside of the program, hands work to other threads, or runs Python code that cannot be followed.

    Why: A recording is valid as long as everything that the call read is as it was. What such code reads is
    not seen, so the call runs eagerly.

    Limits: The table believes the functions of Python, NumPy and PyTorch that it names, and ``rote.pure``
    believes you.

    Unchecked: The check does not follow what a call reads.

    Bad::

        return x * float(select.select([], [], [], 0)[0] == [])

    Good::

        return x * ready
    """,
)
OUTPUT = Rule(
    "RT219",
    "output that a replay does not repeat",
    "Write it outside of the call, or leave strict_output=True out.",
    Severity.SPEED,
    Group.STATE,
    Finder.RUNTIME,
    """
    In strict mode with ``strict_output=True``: the callable writes to a standard stream, by ``print``,
    ``logging``, ``warnings``, a progress bar.

    Why: A replay runs no Python, so nothing is written. Without the option that is no reason against a
    replay, and the report names the line once.

    Limits: What is written to files, sockets, pipes and queues is RT218 or RT201 in any mode.

    Unchecked: Output is nothing wrong unless strict mode is told so.

    Bad::

        print("one more", tuple(x.shape))
        return x * 2

    Good::

        return x * 2
    """,
)
