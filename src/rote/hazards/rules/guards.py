"""Guards: what a recording depends on and what was found changed."""

from __future__ import annotations

from ..finding import Severity
from .rule import Finder, Group, Rule

TENSOR_MOVED = Rule(
    "RT301",
    "external tensor replaced or moved",
    "Update the tensor in place (copy_).",
    Severity.WRONG,
    Group.GUARDS,
    Finder.SCAN | Finder.TRIAL | Finder.RUNTIME,
    """
    A parameter, buffer or other tensor that the call uses is another object, or lies at another address:
    ``param.data = new``, ``layer.weight = nn.Parameter(new)``, ``load_state_dict(assign=True)``.

    Why: A graph reads the old address: old weights, or memory that was freed. rote notices and records again.

    Limits: The scan reports assignments inside of calls, not those of set-up code (``__init__``, loading).

    Bad::

        layer.weight.data = layer.weight.data * 3

    Good::

        layer.weight.data.mul_(3)
    """,
)
VALUE_CHANGED = Rule(
    "RT302",
    "Python value changed",
    "Pass the value in as an argument if it changes often.",
    Severity.WRONG,
    Group.GUARDS,
    Finder.RUNTIME,
    """
    An attribute, a global, a closure's variable or an entry of a configuration that the call read has another
    value.

    Why: The value is part of the graph. rote records again for it. Another object of the same class is no
    other value if all that the call read of it is the same: a config, a dict of options or a lambda that is
    put in place anew. Where it is not, the deepest slot that differs is named.

    Limits: Which object it is counts where the call compares it by ``is``, looks it up, hands it to a
    function in C, writes to it or returns it; for tensors, modules, classes, iterators and objects of C; for
    a function of other code; and where it was one object in two places and is two. Values are noticed that
    can be reached from the callable, read or not. A method reaches all of its instance, so a counter that
    another method advances is such a value; a function reaches what it names (``net = self.net; act =
    rote.graph(lambda obs: net(obs))``).

    Unchecked: It is about what is changed between calls; in a check nothing happens between them.

    Bad::

        settings["scale"] = 2.0 if n > 4 else 1.0
        g(x)

    Good::

        g(x)
    """,
)
NEW_KEY = Rule(
    "RT306",
    "arguments not seen before",
    "Call with these arguments during the warm-up.",
    Severity.SPEED,
    Group.GUARDS,
    Finder.RUNTIME,
    """
    Another shape, type, number or structure of the arguments, or another mode around the call.

    Why: Each key has recordings of its own, and its first calls run eagerly.

    Limits: Nothing is wrong.

    Unchecked: It is about a call whose arguments differ from earlier ones; a check has one set of arguments.

    Bad::

        for n in (2, 2, 2, 2, 3):
            g(torch.ones(n, device=device))

    Good::

        for n in (2, 2, 2, 2, 2):
            g(torch.ones(n, device=device))
    """,
)
NOT_YET = Rule(
    "RT307",
    "still observing",
    "Make more calls before measuring, or lower warmup.",
    Severity.SPEED,
    Group.GUARDS,
    Finder.RUNTIME,
    """
    The first calls of a key run eagerly and are observed until two agree; so does the first call in which the
    host reads a value that it has not read there before.

    Why: What settles by itself (lazy state, autotuning) should not be recorded, nor what never comes again.

    Limits: Nothing is wrong. Of keys ``strict`` mode tells, of values the report, with those met before.

    Unchecked: It is about a call that comes before there is a recording; a check makes none.

    Bad::

        for n in range(12):
            layer.scale = n % 2
            g(x)

    Good::

        for n in range(12):
            layer.scale = 1
            g(x)
    """,
)
