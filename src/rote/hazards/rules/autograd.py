"""Autograd: gradients and histories that cross the border of a call, optimizers, hooks."""

from __future__ import annotations

from ..finding import Severity
from .rule import Finder, Group, Rule

OUTPUT_GRADIENT = Rule(
    "RT401",
    "autograd graph that reaches outside of the call",
    "Pass the tensor with the history in as an argument, or detach it.",
    Severity.WRONG,
    Group.AUTOGRAD,
    Finder.RUNTIME,
    """
    The call uses a tensor from outside that has a history of its own (it was computed from parameters).

    Why: The backward pass would have to go on outside, into nodes that are new in every call.

    Limits: Parameters themselves have no history and are fine.

    Unchecked: Whether the history outside of the call is wanted is seen when a backward reaches it, after the
    call.

    Bad::

        return x * factor

    Good::

        return x * factor.detach()
    """,
)
GRADIENT_LEAVES = Rule(
    "RT402",
    "gradient leaves the callable",
    "Put the whole step inside: zero_grad, forward, backward and optimizer.step; or call backward() outside; "
    "or keep gradients where they are with zero_grad(set_to_none=False).",
    Severity.WRONG,
    Group.AUTOGRAD,
    Finder.RUNTIME,
    """
    The call runs ``backward()`` and leaves gradients behind that something outside uses.

    Why: The gradients of a replay lie in the graph's memory; those of the next one replace them.

    Limits: Gradients that the call itself drops, or that stay where they are, are fine.

    Unchecked: The trial repeats the call with nothing in between, so from the second call on the gradients
    are there and added into, which a graph can do. Who clears them between calls is seen by the runtime; the
    scan tells of it where it stands beside the graph (RT414).

    Bad::

        loss = model(x).square().mean()
        loss.backward()
        return loss.detach()

    Good::

        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()
    """,
)
INPUT_GRADIENT = Rule(
    "RT403",
    "gradient of an argument used inside the call",
    "Call backward() outside on the result, or detach the argument.",
    Severity.WRONG,
    Group.AUTOGRAD,
    Finder.RUNTIME,
    """
    The call looks at ``x.grad`` or ``x.grad_fn`` of an argument, changes an argument in place that requires
    grad, or makes one require grad.

    Why: The history of an argument belongs to the caller and is another one in every call.

    Limits: None known.

    Unchecked: It is about the gradient of the recording's own copy of an argument, which the trial has not.

    Bad::

        return x.mul_(2) + 1

    Good::

        return x * 2 + 1
    """,
)
BACKWARD_PENDING = Rule(
    "RT404",
    "earlier results still wait for their backward",
    "Run backward on them or drop them before so many more calls, or call under torch.no_grad().",
    Severity.SPEED,
    Group.AUTOGRAD,
    Finder.RUNTIME,
    """
    So many results of a graphed forward still need their backward that no recording is free.

    Why: What backward needs lies in the memory of a recording, and each pending result keeps one.

    Limits: Nothing is wrong.

    Unchecked: It is about calls and backwards that take turns, and a check makes calls alone.

    Bad::

        losses = [g(x).square().mean() for _ in range(10)]

    Good::

        losses = [g(x).square().mean() for _ in range(2)]
    """,
)
GRADIENT_HOOK = Rule(
    "RT405",
    "hook on a tensor of the call",
    "Register the hook outside, on the result or on a parameter, or call backward() inside the callable.",
    Severity.WRONG,
    Group.AUTOGRAD,
    Finder.SCAN | Finder.RUNTIME,
    """
    ``h.register_hook(...)``, ``h.retain_grad()`` on a tensor that is made in the call.

    Why: A hook is Python; a replayed backward runs none of it.

    Limits: Hooks on parameters and on results run, because their gradients are handed out.

    Bad::

        h = torch.tanh(self.first(x))
        h.register_hook(lambda gradient: gradient * 3)
        return self.second(h)

    Good::

        h = torch.tanh(self.first(x))
        return self.second(h)
    """,
)
SAVED_HOOKS = Rule(
    "RT406",
    "somebody else decides what backward keeps",
    "Switch checkpointing and offloading of activations off for this callable, or put the whole step inside.",
    Severity.ISLAND,
    Group.AUTOGRAD,
    Finder.SCAN | Finder.RUNTIME,
    """
    ``torch.utils.checkpoint.checkpoint(...)``, ``saved_tensors_hooks``, ``save_on_cpu`` inside the call.

    Why: They run Python in the backward pass (they compute the forward again, or copy from the host), and a
    recorded backward runs none.

    Limits: With the whole step inside the callable, checkpointing is recorded, if it does not set the random
    state (``preserve_rng_state=False``, which is right where it holds no dropout).

    Bad::

        return checkpoint(self.block, x, use_reentrant=False)

    Good::

        return self.block(x)
    """,
)
SHARED_RESULTS = Rule(
    "RT407",
    "results that require grad share memory",
    "Return one of them and take the views of it outside, or return copies: view.clone().",
    Severity.WRONG,
    Group.AUTOGRAD,
    Finder.RUNTIME,
    """
    Two results with gradients are views of one tensor, in a way that cannot be made again outside of the
    recording: one is transposed or viewed as a whole, views overlap that are not cut directly from one
    tensor, or a tensor comes with its own ``chunk``.

    Why: Autograd follows what is written to one of them into the other. Their gradients would come together
    outside of the recording, in another order or layout, and their sum would be rounded in another way.

    Limits: Parts (``mean, std = h.chunk(2, -1)``, ``unbind``), slices (``h[..., :k], h[..., k:]``) and a
    tensor with rows of it (``h, h[0]``) are replayed, and so are views without gradients.

    Unchecked: It is about how the runtime hands results with gradients out, after the call.

    Bad::

        h = model(x)
        return h, h.t()

    Good::

        h = model(x)
        return h
    """,
)
SECOND_ORDER = Rule(
    "RT408",
    "gradient of a gradient through a recording",
    "Compute it inside the callable (torch.autograd.grad(..., create_graph=True)), or call the plain one.",
    Severity.WRONG,
    Group.AUTOGRAD,
    Finder.RUNTIME,
    """
    ``torch.autograd.grad(g(x).sum(), x, create_graph=True)`` outside of the callable.

    Why: The backward of a recording is a graph without a history.

    Limits: The first one may raise; calls run plainly from then on.

    Unchecked: It is about backwards that run after the call, which a check does not make.

    Bad::

        y = g(x)
        torch.autograd.grad(y.square().sum(), x, create_graph=True)

    Good::

        y = g(x)
        torch.autograd.grad(y.square().sum(), x)
    """,
)
OPTIMIZER_COUNT = Rule(
    "RT411",
    "optimizer that counts on the host",
    "Make the optimizer with capturable=True (CUDA) or fused=True (host).",
    Severity.STOPS,
    Group.AUTOGRAD,
    Finder.SCAN | Finder.TRIAL | Finder.RUNTIME,
    """
    ``torch.optim.Adam(params)`` and its kin, stepped inside the call without ``capturable=True`` or
    ``fused=True``.

    Why: Their step count is a tensor on the host that is read in every step. Captured by hand,
    ``optimizer.step()`` raises; were it frozen, the bias correction of the first step would stay for ever.

    Limits: The scan reports it where it sees both the optimizer being made and the function that is graphed.

    Bad::

        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    Good::

        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
    """,
)
HYPERPARAMETER = Rule(
    "RT412",
    "hyperparameter changes between calls",
    "Make the optimizer with lr=torch.tensor(...) and fused=True or capturable=True.",
    Severity.WRONG,
    Group.AUTOGRAD,
    Finder.RUNTIME,
    """
    A schedule sets ``param_groups[0]["lr"]`` to another number between graphed steps.

    Why: The number is part of the graph; captured by hand, training goes on with the first rate.

    Limits: A rate that changes seldom gets a recording for each value.

    Unchecked: It is about what is changed between calls; in a check nothing happens between them.

    Bad::

        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    Good::

        optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.1, device=device), fused=True)
    """,
)
SCHEDULER_INSIDE = Rule(
    "RT413",
    "learning-rate scheduler stepped inside the call",
    "Call scheduler.step() after the graphed callable, with lr=torch.tensor(...) in the optimizer.",
    Severity.WRONG,
    Group.AUTOGRAD,
    Finder.SCAN | Finder.TRIAL | Finder.RUNTIME,
    """
    ``scheduler.step()`` in a training step that is graphed as a whole.

    Why: A scheduler counts in Python, so the call is never steady; captured by hand, it counts once.

    Limits: The scan knows schedulers that are made in the same file.

    Bad::

        optimizer.step()
        scheduler.step()

    Good::

        optimizer.step()
    """,
)
GRADIENT_MOVED = Rule(
    "RT414",
    "gradient replaced between calls",
    "Keep gradients where they are: optimizer.zero_grad(set_to_none=False), and change them in place.",
    Severity.WRONG,
    Group.AUTOGRAD,
    Finder.SCAN | Finder.RUNTIME,
    """
    ``optimizer.zero_grad()`` or ``p.grad = None`` between calls of a graph that adds up gradients.

    Why: The graph adds into the memory of the old gradient; the new one is made elsewhere, so the optimizer
    sees the gradients of another step. rote notices and records again, each time.

    Limits: ``zero_grad()`` inside a step that is graphed as a whole is fine. The scan reports it in functions
    that call a graph and zero the gradients.

    Bad::

        optimizer.zero_grad()
        for x in batches:
            g(x)

    Good::

        optimizer.zero_grad(set_to_none=False)
        for x in batches:
            g(x)
    """,
)
AVERAGE_COUNT = Rule(
    "RT415",
    "average of weights that counts on the host",
    "Make it as AveragedModel(model, avg_fn=torch.optim.swa_utils.get_swa_avg_fn()).",
    Severity.WRONG,
    Group.AUTOGRAD,
    Finder.RUNTIME,
    """
    ``AveragedModel`` with a ``multi_avg_fn`` for equal averages, updated inside the call.

    Why: It reads the number of averaged models on the host.

    Limits: None known.

    Unchecked: It is about what is changed between calls; in a check nothing happens between them.

    Bad::

        average = AveragedModel(model, multi_avg_fn=get_swa_multi_avg_fn())

    Good::

        average = AveragedModel(model, avg_fn=get_swa_avg_fn())
    """,
)
