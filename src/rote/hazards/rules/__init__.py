"""The reasons a call does not replay from graphs alone, each with a stable code and a remedy.

Codes are grouped: 1xx operations that end a segment, 2xx calls that are not steady, 3xx guards and limits,
4xx autograd, 5xx values that cannot be handed out, 6xx the device. A code is never given a new meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .rule import Documentation, Finder, Group, Reason, Rule, reason

HOST_READ = Rule(
    "RT101",
    "host read",
    "Keep the value on the device (torch.where, masked arithmetic), or accept one graph segment per value.",
)
LIST_READ = Rule("RT102", "tensor turned into a list", "Keep the values in a tensor.")
MEMORY_ESCAPE = Rule(
    "RT103",
    "tensor memory handed to numpy or DLPack",
    "Compute with PyTorch operations inside the callable; convert outside of it.",
)
DYNAMIC_SHAPE = Rule(
    "RT111",
    "shape that depends on data",
    "Use a mask of fixed shape (torch.where, or multiply by the mask) instead of selecting elements.",
)
DEVICE_COPY = Rule(
    "RT121",
    "copy between devices",
    "Make the tensor on the device (device=...), or pass it in as an argument that is there already.",
)
HOST_OPERATION = Rule("RT122", "operation on host tensors", "Move the computation to the device.")
HOST_DATA = Rule(
    "RT123",
    "data built on the host inside the call",
    "Build the array outside and pass it in as a tensor.",
)
REFUSED = Rule(
    "RT131",
    "operation refused while capturing",
    "The operation synchronises with the host inside; it runs between two segments.",
)
CAPTURE_FAILED = Rule(
    "RT132",
    "capture failed",
    "Remove synchronisation, new streams and allocations by hand from the callable.",
)
STATE_CHANGES = Rule(
    "RT201",
    "Python state changes at every call",
    "Keep what changes in a tensor that is updated in place (a registered buffer), or move it outside.",
)
OPERAND_DIFFERS = Rule(
    "RT202",
    "operand differs between calls",
    "Pass the value in as an argument, or compute it with PyTorch on the device.",
)
OPERATIONS_DIFFER = Rule(
    "RT203",
    "different operations at every call",
    "Make what the branch depends on an argument, so that it becomes part of the key.",
)
HOST_RANDOM = Rule(
    "RT204",
    "host random numbers",
    "Draw with torch on the device (torch.rand), or draw outside and pass the number in.",
)
TENSOR_ESCAPES = Rule(
    "RT205",
    "tensor kept from inside the call",
    "Return the tensor, or copy it into a buffer made outside (buffer.copy_(value)).",
)
UNREACHABLE = Rule(
    "RT206",
    "external tensor that cannot be found again",
    "Pass the tensor in as an argument or keep it in an attribute, so that a change can be noticed.",
)
ARGUMENT_CHANGED = Rule(
    "RT207",
    "container among the arguments changed",
    "Return new values instead of storing them in an argument's list, dict or attribute.",
)
RANDOM_STATE_SET = Rule(
    "RT208",
    "random state set inside the call",
    "Seed outside; activation checkpointing needs preserve_rng_state=False or no dropout inside.",
)
OPERATION_RAISES = Rule(
    "RT209", "operation raised inside the call", "Check the operands before the operation."
)
AMBIENT_CHANGES = Rule(
    "RT210", "mode changed by the call", "Change grad mode and defaults outside, or undo it."
)
BLIND = Rule("RT211", "another profiler is active", "Let the first calls run without a profiler.")
TENSOR_MOVED = Rule("RT301", "external tensor replaced or moved", "Update the tensor in place (copy_).")
VALUE_CHANGED = Rule("RT302", "Python value changed", "Pass the value in as an argument if it changes often.")
TOO_MANY_RECORDINGS = Rule("RT303", "too many recordings", "Keep addresses stable, or raise max_recordings.")
TOO_MANY_PATHS = Rule(
    "RT304",
    "too many observed values",
    "Keep the value on the device; each distinct value needs segments of its own (max_paths).",
)
TOO_MANY_KEYS = Rule("RT305", "too many different arguments", "Call with fewer distinct shapes and values.")
NEW_KEY = Rule("RT306", "arguments not seen before", "Call with these arguments during the warm-up.")
INPUT_MOVED = Rule(
    "RT331",
    "argument used in place lies elsewhere",
    "Pass the same tensor at every call (allocate caches once and update them in place), or accept a copy.",
)
INPUT_IS_STATE = Rule(
    "RT332",
    "argument shares memory with state of the callable",
    "Nothing is wrong: such calls have recordings of their own. Pass a clone if they should not.",
)
NOT_YET = Rule("RT307", "still observing", "Make more calls before measuring, or lower warmup.")
EVICTED = Rule("RT311", "recording evicted", "Raise the budget, or call with fewer distinct arguments.")
OVER_BUDGET = Rule(
    "RT312",
    "recording larger than the budget",
    "Raise the budget and call reset(), or graph a smaller part.",
)
OUT_OF_MEMORY = Rule(
    "RT313",
    "out of memory while recording",
    "Free memory, give other recordings a budget, or graph a smaller part; reset() tries again.",
)
PAUSED = Rule("RT314", "recording evicted again and again", "Raise the budget: more is in use than it holds.")
BUCKET_CHECKED = Rule(
    "RT315", "padding still being checked", "Make more calls of each bucket before measuring."
)
NO_BUCKET = Rule("RT316", "larger than the largest bucket", "Add a bucket of that size.")
PADDING_SHOWS = Rule(
    "RT317",
    "padding changes the results",
    "Pad along an axis on which rows do not meet, or allow rounding with bucket_tolerance.",
)
NOT_PADDED = Rule("RT318", "cannot be padded", 'Use shapes="exact", or call with the sizes of buckets.')
REPLAY_DIFFERS = Rule(
    "RT321",
    "replay differs from the plain call",
    "See the VerificationError; once its cause is gone, reset() lets the callable be recorded again.",
)
HIDDEN_VALUE = Rule(
    "RT322",
    "value that cannot be seen",
    "Pass the value in as an argument, keep it in an attribute of the module, or compute it on the device.",
)
HIDDEN_BRANCH = Rule(
    "RT323",
    "branch on something that cannot be seen",
    "Make what the branch depends on an argument; do not replace functions or code after the first call.",
)
HIDDEN_STATE = Rule(
    "RT324",
    "Python state changed by some calls only",
    "Keep what changes in a tensor that is updated in place, or change it outside of the callable.",
)
NOT_REPEATABLE = Rule(
    "RT325",
    "plain call does not repeat its own values",
    "Use torch.use_deterministic_algorithms(True), or allow a difference with verify_tolerance.",
)
HIDDEN_WRITE = Rule(
    "RT326",
    "memory written out of sight",
    "Write with PyTorch operations in the thread that calls, or outside of the callable.",
)
OBSERVER_DIFFERS = Rule(
    "RT327",
    "observation changes the way",
    "Switch the fast path off that PyTorch takes only unobserved "
    "(torch.backends.mha.set_fastpath_enabled(False)), or run it outside of the callable.",
)
STALE_RECORDING = Rule(
    "RT328",
    "recording no longer right",
    "Nothing that rote can see has changed; please report it with the program.",
)
PLAIN_RAISES = Rule(
    "RT329",
    "plain call raises where the replay does not",
    "Checks on values belong outside of the callable; a replay runs no Python.",
)
OUTPUT_GRADIENT = Rule(
    "RT401",
    "autograd graph that reaches outside of the call",
    "Pass the tensor with the history in as an argument, or detach it.",
)
GRADIENT_LEAVES = Rule(
    "RT402",
    "gradient leaves the callable",
    "Put the whole step inside: zero_grad, forward, backward and optimizer.step; or call backward() outside.",
)
INPUT_GRADIENT = Rule(
    "RT403",
    "gradient of an argument used inside the call",
    "Call backward() outside on the result, or detach the argument.",
)
BACKWARD_PENDING = Rule(
    "RT404",
    "earlier results still wait for their backward",
    "Run backward on them or drop them before so many more calls, or call under torch.no_grad().",
)
GRADIENT_HOOK = Rule(
    "RT405",
    "hook on a tensor of the call",
    "Register the hook outside, on the result or on a parameter, or call backward() inside the callable.",
)
SAVED_HOOKS = Rule(
    "RT406",
    "somebody else decides what backward keeps",
    "Switch checkpointing and offloading of activations off for this callable, or put the whole step inside.",
)
SHARED_RESULTS = Rule(
    "RT407",
    "results that require grad share memory",
    "Return one of them and take the views of it outside.",
)
SECOND_ORDER = Rule(
    "RT408",
    "gradient of a gradient through a recording",
    "Compute it inside the callable (torch.autograd.grad(..., create_graph=True)), or call the plain one.",
)
OPTIMIZER_COUNT = Rule(
    "RT411",
    "optimizer that counts on the host",
    "Make the optimizer with capturable=True (CUDA) or fused=True (host).",
)
HYPERPARAMETER = Rule(
    "RT412",
    "hyperparameter changes between calls",
    "Make the optimizer with lr=torch.tensor(...) and fused=True or capturable=True.",
)
SCHEDULER_INSIDE = Rule(
    "RT413",
    "learning-rate scheduler stepped inside the call",
    "Call scheduler.step() after the graphed callable, with lr=torch.tensor(...) in the optimizer.",
)
GRADIENT_MOVED = Rule(
    "RT414",
    "gradient replaced between calls",
    "Keep gradients where they are: optimizer.zero_grad(set_to_none=False), and change them in place.",
)
AVERAGE_COUNT = Rule(
    "RT415",
    "average of weights that counts on the host",
    "Make it as AveragedModel(model, avg_fn=torch.optim.swa_utils.get_swa_avg_fn()).",
)
OPAQUE_OUTPUT = Rule(
    "RT501",
    "output of a type that cannot be rebuilt",
    "Return tensors in tuples, lists, dicts or dataclasses.",
)
OUTPUT_DIFFERS = Rule("RT502", "Python value in the output differs between calls", "Return it as a tensor.")
ALIASED_MUTATION = Rule(
    "RT503",
    "input mutated that shares memory with another",
    "Pass the base tensor once and take views inside.",
)
RESHAPED = Rule("RT504", "tensor made outside reshaped in place", "Take a view (x.t()) instead of x.t_().")
CONTAINER_RETURNED = Rule("RT505", "argument container returned", "Return a new container.")
UNSUPPORTED_TENSOR = Rule("RT601", "tensor without plain memory", "Use a strided (dense) tensor.")
SEVERAL_DEVICES = Rule("RT602", "several devices in one call", "Wrap one callable per device.")
WRONG_BACKEND = Rule("RT603", "tensors on a device of another backend", 'Use backend="auto".')

RULES: Mapping[str, Rule] = MappingProxyType(
    {rule.code: rule for rule in list(globals().values()) if isinstance(rule, Rule)}
)
"""All rules by code."""

__all__ = ["RULES", "Documentation", "Finder", "Group", "Reason", "Rule", "reason"]
