"""Limits: too many recordings, memory budgets, and padding to buckets."""

from __future__ import annotations

from ..finding import Severity
from .rule import Finder, Group, Rule

TOO_MANY_RECORDINGS = Rule(
    "RT303",
    "too many recordings",
    "Keep addresses stable, or raise max_recordings.",
    Severity.SPEED,
    Group.LIMITS,
    Finder.RUNTIME,
    """
    So many recordings of one key were replaced by others that recording no longer pays.

    Why: Something moves or changes in every few calls; the key runs eagerly from then on.

    Limits: What moves is told beside it (RT301, RT302, RT414).

    Unchecked: It is about many calls; a check makes a few, with nothing in between.

    Bad::

        layer.weight.data = layer.weight.data.clone()

    Good::

        layer.weight.data.copy_(layer.weight.data.clone())
    """,
)
TOO_MANY_PATHS = Rule(
    "RT304",
    "too many observed values",
    "Return the tensor and read it outside, or keep it on the device; each value needs segments (max_paths).",
    Severity.ISLAND,
    Group.LIMITS,
    Finder.RUNTIME,
    """
    A host read gives another value in every call.

    Why: Each value is a path of its own through the recording, made at its second time. After 8 new values in
    a row (or half of ``max_paths``, if that is more) with fewer than 4 replays between one and the next, the
    key runs eagerly for 64 calls; after ``max_paths`` of them for 512, and then after 3. Each rest is twice
    as long as the one before.

    Limits: With ``keep=True``, in strict mode, with ``verify`` and with buckets only ``max_paths`` counts,
    and the key stays eager.

    Unchecked: It is about values that differ in many calls; the trial invents them and tells of the read
    itself (RT101).

    Bad::

        return x / x.sum().item()

    Good::

        return x / x.sum()
    """,
)
TOO_MANY_KEYS = Rule(
    "RT305",
    "too many different arguments",
    "Call with fewer distinct shapes and values.",
    Severity.SPEED,
    Group.LIMITS,
    Finder.RUNTIME,
    """
    More distinct signatures than ``max_keys``, of which the least recently used is dropped; or signatures
    that are new in every call.

    Why: A Python number that changes in every call is part of the key, and so is every shape. To look at a
    call takes longer than to make it, so once 64 keys in a row were looked at and none was replayed, a key
    runs eagerly until its second call, then, after 64 more, until its fourth, and so on.

    Limits: Nothing is wrong. With ``keep=True``, in strict mode, with ``verify`` and with buckets every key
    is looked at.

    Unchecked: It is about calls with many arguments; a check has one set of them.

    Bad::

        for n in (1, 2, 3):
            g(x, n)

    Good::

        for n in (1, 2, 3):
            g(x, torch.tensor(n))
    """,
)
EVICTED = Rule(
    "RT311",
    "recording evicted",
    "Raise the budget, or call with fewer distinct arguments.",
    Severity.SPEED,
    Group.LIMITS,
    Finder.RUNTIME,
    """
    A recording gave its memory back, because the budget did not hold all of them.

    Why: It is recorded again when it is asked for, which costs some eager calls.

    Limits: Nothing is wrong.

    Unchecked: It is about the memory of recordings, and a check makes none.

    Bad::

        g = rote.graph(fn, budget=one)

    Good::

        g = rote.graph(fn, budget="64 MiB")
    """,
)
OVER_BUDGET = Rule(
    "RT312",
    "recording larger than the budget",
    "Raise the budget and call reset(), or graph a smaller part.",
    Severity.SPEED,
    Group.LIMITS,
    Finder.RUNTIME,
    """
    One recording alone would hold more memory than the budget allows.

    Why: The call runs eagerly.

    Limits: Nothing is wrong.

    Unchecked: It is about the memory of recordings, and a check makes none.

    Bad::

        g = rote.graph(fn, budget=1024)

    Good::

        g = rote.graph(fn, budget="64 MiB")
    """,
)
OUT_OF_MEMORY = Rule(
    "RT313",
    "out of memory while recording",
    "Free memory, give other recordings a budget, or graph a smaller part; reset() tries again.",
    Severity.SPEED,
    Group.LIMITS,
    Finder.RUNTIME,
    """
    A recording ran out of device memory, where the plain call does not.

    Why: A recording keeps its intermediate memory between calls. The call runs eagerly.

    Limits: Nothing is wrong.

    Unchecked: It is about the memory of recordings, and a check makes none.

    Bad::

        g = rote.graph(model)

    Good::

        g = rote.graph(model[0])
    """,
)
PAUSED = Rule(
    "RT314",
    "recording evicted again and again",
    "Raise the budget: more is in use than it holds.",
    Severity.SPEED,
    Group.LIMITS,
    Finder.RUNTIME,
    """
    A recording was evicted and made again so often that it waits for a while.

    Why: Recording costs more than an eager call; taking turns in a small budget gains nothing.

    Limits: Nothing is wrong.

    Unchecked: It is about the memory of recordings, and a check makes none.

    Bad::

        g = rote.graph(fn, budget=one)

    Good::

        g = rote.graph(fn, budget="64 MiB")
    """,
)
BUCKET_CHECKED = Rule(
    "RT315",
    "padding still being checked",
    "Make more calls of each bucket before measuring.",
    Severity.SPEED,
    Group.LIMITS,
    Finder.RUNTIME,
    """
    With ``shapes="buckets"`` the first calls of a bucket run both ways and are compared.

    Why: Padding is used only where it does not show in the results.

    Limits: Nothing is wrong.

    Unchecked: It is about an option of rote.graph, which a check is not given.

    Bad::

        g = rote.graph(fn, shapes="buckets", buckets={"x": {0: [4, 8]}})

    Good::

        g = rote.graph(fn)
    """,
)
NO_BUCKET = Rule(
    "RT316",
    "larger than the largest bucket",
    "Add a bucket of that size.",
    Severity.SPEED,
    Group.LIMITS,
    Finder.RUNTIME,
    """
    An argument is larger than all buckets; the call is recorded with its exact shape.

    Why: Each such size needs recordings of its own.

    Limits: Nothing is wrong.

    Unchecked: It is about an option of rote.graph, which a check is not given.

    Bad::

        g = rote.graph(fn, shapes="buckets", buckets={"x": {0: [4]}})

    Good::

        g = rote.graph(fn, shapes="buckets", buckets={"x": {0: [16]}})
    """,
)
PADDING_SHOWS = Rule(
    "RT317",
    "padding changes the results",
    "Pad along an axis on which rows do not meet, or allow rounding with bucket_tolerance.",
    Severity.SPEED,
    Group.LIMITS,
    Finder.RUNTIME,
    """
    The rows of a padded call differ from those of the exact one.

    Why: Rows meet along the padded axis (a softmax, a mean, a normalisation), or a kernel adds up in another
    order. Such calls are not padded.

    Limits: Seen in the calls that are checked.

    Unchecked: It is about an option of rote.graph, which a check is not given.

    Bad::

        return x.softmax(0)

    Good::

        return x.softmax(1)
    """,
)
NOT_PADDED = Rule(
    "RT318",
    "cannot be padded",
    'Use shapes="exact", or call with the sizes of buckets.',
    Severity.SPEED,
    Group.LIMITS,
    Finder.RUNTIME,
    """
    The call uses the size of the padded axis as a number, or what it returns has no such axis.

    Why: With padding the number is another one. Such calls run with their exact shape.

    Limits: Nothing is wrong.

    Unchecked: It is about an option of rote.graph, which a check is not given.

    Bad::

        return x * x.shape[0]

    Good::

        return x * x.shape[1]
    """,
)
SLOWER = Rule(
    "RT308",
    "replays measured against plain calls",
    "Nothing has to be done: the faster way is kept. keep=True keeps the recording, unmeasured.",
    Severity.SPEED,
    Group.LIMITS,
    Finder.RUNTIME,
    """
    A plain call was made to compare replays with; or replays lost twice in a row, and the key runs plainly
    from then on.

    Why: Copying arguments in and results out may cost more than the launches that a graph saves. Where
    somebody calls backward on the results, both times are with the walk back through them.

    Limits: Measured after 64, 512, 4,096... replays. Nothing is wrong.

    Unchecked: It is about measured times of replays, and a check makes none.

    Bad::

        g = rote.graph(fn)

    Good::

        g = rote.graph(fn, keep=True)
    """,
)
