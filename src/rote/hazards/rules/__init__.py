"""The rules: hazards and reasons, each with a stable code. Their texts are in ``texts``, one file each.

Codes are grouped: 1xx what ends a segment or stops a capture, 2xx calls that are not steady, 3xx guards,
limits and arguments, 4xx autograd, 5xx values that cannot be handed out, 6xx devices, 7xx libraries,
8xx several processes. A code is never given a new meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ..finding import Severity
from .rule import Finder, Group, Reason, Rule, reason

HOST_READ = Rule("RT101", "host read", Severity.STOPS, Group.HOST_READS, Finder.ALL)
LIST_READ = Rule("RT102", "tensor turned into a list", Severity.STOPS, Group.HOST_READS, Finder.ALL)
MEMORY_ESCAPE = Rule(
    "RT103", "tensor memory handed to numpy or DLPack", Severity.STOPS, Group.HOST_READS, Finder.ALL
)
PRINTED = Rule("RT104", "tensor printed or logged", Severity.STOPS, Group.HOST_READS, Finder.ALL)
SAVED = Rule("RT105", "tensor written to a file", Severity.STOPS, Group.HOST_READS, Finder.SCAN)
DEVICE_COPY = Rule("RT121", "copy between devices", Severity.STOPS, Group.HOST_DATA, Finder.ALL)
HOST_OPERATION = Rule(
    "RT122", "operation on host tensors", Severity.WRONG, Group.HOST_DATA, Finder.TRIAL | Finder.RUNTIME
)
HOST_DATA = Rule(
    "RT123", "data built on the host inside the call", Severity.STOPS, Group.HOST_DATA, Finder.ALL
)
CONSTANT = Rule("RT124", "tensor made from Python values", Severity.STOPS, Group.HOST_DATA, Finder.CHECK)
PAGEABLE_COPY = Rule(
    "RT125", "non-blocking copy inside the call", Severity.STOPS, Group.HOST_DATA, Finder.CHECK
)
LIST_INDEX = Rule("RT126", "tensor indexed with a Python list", Severity.STOPS, Group.HOST_DATA, Finder.CHECK)
CLOCK = Rule("RT127", "clock read inside the call", Severity.WRONG, Group.HOST_DATA, Finder.SCAN)
DYNAMIC_SHAPE = Rule("RT111", "shape that depends on data", Severity.STOPS, Group.SHAPES, Finder.ALL)
PACKED = Rule("RT112", "packed sequences", Severity.STOPS, Group.SHAPES, Finder.SCAN | Finder.RUNTIME)
SPARSE = Rule("RT113", "sparse tensor made inside the call", Severity.STOPS, Group.SHAPES, Finder.SCAN)
STATE_CHANGES = Rule("RT201", "Python state changes at every call", Severity.WRONG, Group.STATE, Finder.ALL)
OPERAND_DIFFERS = Rule(
    "RT202", "operand differs between calls", Severity.WRONG, Group.STATE, Finder.TRIAL | Finder.RUNTIME
)
OPERATIONS_DIFFER = Rule(
    "RT203", "different operations at every call", Severity.WRONG, Group.STATE, Finder.TRIAL | Finder.RUNTIME
)
TENSOR_ESCAPES = Rule(
    "RT205", "tensor kept from inside the call", Severity.WRONG, Group.STATE, Finder.TRIAL | Finder.RUNTIME
)
UNREACHABLE = Rule("RT206", "external tensor that cannot be found again", Severity.WRONG, Group.STATE)
ARGUMENT_CHANGED = Rule(
    "RT207", "container among the arguments changed", Severity.WRONG, Group.STATE, Finder.ALL
)
OPERATION_RAISES = Rule(
    "RT209", "operation raised inside the call", Severity.WRONG, Group.STATE, Finder.TRIAL | Finder.RUNTIME
)
AMBIENT_CHANGES = Rule("RT210", "mode changed by the call", Severity.WRONG, Group.STATE, Finder.ALL)
BLIND = Rule("RT211", "another profiler is active", Severity.SPEED, Group.STATE)
UNKNOWN_CODE = Rule("RT218", "code of which it is not known what it reads", Severity.SPEED, Group.STATE)
OUTPUT = Rule("RT219", "output that a replay does not repeat", Severity.SPEED, Group.STATE)
SCALE_ON_SELF = Rule(
    "RT212", "tensor computed in forward and stored on self", Severity.WRONG, Group.STATE, Finder.CHECK
)
LAZY_STATE = Rule("RT213", "state made in the first call", Severity.SPEED, Group.STATE, Finder.SCAN)
GROWING = Rule("RT214", "state that grows with every call", Severity.WRONG, Group.STATE, Finder.SCAN)
MUTABLE_DEFAULT = Rule(
    "RT215", "mutable default argument as state", Severity.WRONG, Group.STATE, Finder.CHECK
)
MEMOIZED = Rule(
    "RT216", "function of tensors that remembers its results", Severity.WRONG, Group.STATE, Finder.SCAN
)
HOOK_INSIDE = Rule(
    "RT217", "module hook registered inside the call", Severity.WRONG, Group.STATE, Finder.SCAN
)
INPUT_MOVED = Rule("RT331", "argument used in place lies elsewhere", Severity.SPEED, Group.ALIASING)
INPUT_IS_STATE = Rule(
    "RT332", "argument shares memory with state of the callable", Severity.SPEED, Group.ALIASING
)
ARGUMENT_MUTATED = Rule("RT333", "argument changed in place", Severity.SPEED, Group.ALIASING, Finder.CHECK)
ALIASED_MUTATION = Rule(
    "RT503", "input mutated that shares memory with another", Severity.WRONG, Group.ALIASING
)
RESHAPED = Rule("RT504", "tensor made outside reshaped in place", Severity.WRONG, Group.ALIASING, Finder.ALL)
HOST_RANDOM = Rule("RT204", "host random numbers", Severity.WRONG, Group.RANDOM, Finder.ALL)
RANDOM_STATE_SET = Rule("RT208", "random state set inside the call", Severity.WRONG, Group.RANDOM, Finder.ALL)
GENERATOR_INSIDE = Rule(
    "RT221",
    "random generator made inside the call",
    Severity.STOPS,
    Group.RANDOM,
    Finder.SCAN | Finder.RUNTIME,
)
EMPTY_CACHE = Rule("RT181", "allocator emptied inside the call", Severity.SPEED, Group.MEMORY, Finder.CHECK)
PINNED_INSIDE = Rule(
    "RT182", "pinned memory allocated inside the call", Severity.STOPS, Group.MEMORY, Finder.CHECK
)
MEMORY_ASKED = Rule(
    "RT183", "memory statistics read inside the call", Severity.WRONG, Group.MEMORY, Finder.SCAN
)
REFUSED = Rule(
    "RT131",
    "operation refused while capturing",
    Severity.ISLAND,
    Group.STREAMS,
    Finder.TRIAL | Finder.RUNTIME,
)
CAPTURE_FAILED = Rule("RT132", "capture failed", Severity.STOPS, Group.STREAMS)
SYNCHRONIZE = Rule("RT133", "synchronisation inside the call", Severity.STOPS, Group.STREAMS, Finder.CHECK)
STREAM_INSIDE = Rule("RT134", "stream switched inside the call", Severity.STOPS, Group.STREAMS, Finder.CHECK)
EVENT_INSIDE = Rule(
    "RT135", "event made or recorded inside the call", Severity.SPEED, Group.STREAMS, Finder.SCAN
)
NESTED_CAPTURE = Rule("RT136", "graph inside a graph", Severity.STOPS, Group.STREAMS, Finder.CHECK)
THREAD_INSIDE = Rule("RT137", "thread started inside the call", Severity.WRONG, Group.STREAMS, Finder.CHECK)
PROFILED = Rule(
    "RT138", "profiler or range marker inside the call", Severity.SPEED, Group.STREAMS, Finder.SCAN
)
GENERATE = Rule("RT701", "text generation inside the call", Severity.STOPS, Group.LIBRARIES, Finder.SCAN)
DYNAMIC_CACHE = Rule("RT702", "key-value cache that grows", Severity.WRONG, Group.LIBRARIES, Finder.SCAN)
MASK_INSIDE = Rule(
    "RT703", "attention mask made inside the call", Severity.ISLAND, Group.LIBRARIES, Finder.SCAN
)
EXPERTS = Rule("RT704", "experts looped over in Python", Severity.STOPS, Group.LIBRARIES, Finder.SCAN)
GRID = Rule("RT705", "image grid given as a tensor", Severity.STOPS, Group.LIBRARIES, Finder.SCAN)
SCHEDULER_STEP = Rule(
    "RT711", "noise scheduler stepped inside the call", Severity.WRONG, Group.LIBRARIES, Finder.SCAN
)
TIMESTEPS_SET = Rule("RT712", "timesteps set inside the call", Severity.STOPS, Group.LIBRARIES, Finder.SCAN)
MIXUP = Rule("RT721", "Mixup inside the call", Severity.WRONG, Group.LIBRARIES, Finder.SCAN)
BOXES_KEPT = Rule(
    "RT731", "detection boxes selected inside the call", Severity.STOPS, Group.LIBRARIES, Finder.SCAN
)
RANDOM_TRANSFORM = Rule(
    "RT732", "random image transform inside the call", Severity.WRONG, Group.LIBRARIES, Finder.SCAN
)
TIMM_OPTIMIZER = Rule(
    "RT722", "optimizer of timm that counts on the host", Severity.WRONG, Group.LIBRARIES, Finder.SCAN
)
NORMALIZED = Rule(
    "RT733", "images normalised with Python lists", Severity.STOPS, Group.LIBRARIES, Finder.SCAN
)
COMPILED_INSIDE = Rule("RT741", "torch.compile inside the call", Severity.SPEED, Group.LIBRARIES, Finder.SCAN)
OUTPUT_GRADIENT = Rule(
    "RT401", "autograd graph that reaches outside of the call", Severity.WRONG, Group.AUTOGRAD
)
GRADIENT_LEAVES = Rule("RT402", "gradient leaves the callable", Severity.WRONG, Group.AUTOGRAD)
INPUT_GRADIENT = Rule("RT403", "gradient of an argument used inside the call", Severity.WRONG, Group.AUTOGRAD)
BACKWARD_PENDING = Rule(
    "RT404", "earlier results still wait for their backward", Severity.SPEED, Group.AUTOGRAD
)
GRADIENT_HOOK = Rule(
    "RT405", "hook on a tensor of the call", Severity.WRONG, Group.AUTOGRAD, Finder.SCAN | Finder.RUNTIME
)
SAVED_HOOKS = Rule(
    "RT406",
    "somebody else decides what backward keeps",
    Severity.ISLAND,
    Group.AUTOGRAD,
    Finder.SCAN | Finder.RUNTIME,
)
SHARED_RESULTS = Rule("RT407", "results that require grad share memory", Severity.WRONG, Group.AUTOGRAD)
SECOND_ORDER = Rule("RT408", "gradient of a gradient through a recording", Severity.WRONG, Group.AUTOGRAD)
OPTIMIZER_COUNT = Rule(
    "RT411", "optimizer that counts on the host", Severity.STOPS, Group.AUTOGRAD, Finder.ALL
)
HYPERPARAMETER = Rule("RT412", "hyperparameter changes between calls", Severity.WRONG, Group.AUTOGRAD)
SCHEDULER_INSIDE = Rule(
    "RT413", "learning-rate scheduler stepped inside the call", Severity.WRONG, Group.AUTOGRAD, Finder.ALL
)
GRADIENT_MOVED = Rule(
    "RT414", "gradient replaced between calls", Severity.WRONG, Group.AUTOGRAD, Finder.SCAN | Finder.RUNTIME
)
AVERAGE_COUNT = Rule("RT415", "average of weights that counts on the host", Severity.WRONG, Group.AUTOGRAD)
ANOMALY = Rule("RT421", "anomaly detection inside the call", Severity.STOPS, Group.AUTOGRAD, Finder.SCAN)
SCALER_INSIDE = Rule("RT422", "gradient scaler inside the call", Severity.STOPS, Group.AUTOGRAD, Finder.SCAN)
CLOSURE_STEP = Rule("RT423", "optimizer that calls a closure", Severity.STOPS, Group.AUTOGRAD, Finder.SCAN)
NORM_CHECKED = Rule("RT424", "gradient norm checked on the host", Severity.STOPS, Group.AUTOGRAD, Finder.SCAN)
AUTOCAST_AROUND = Rule(
    "RT431", "autocast around a capture with its cache on", Severity.WRONG, Group.AUTOCAST, Finder.SCAN
)
AUTOCAST_CLEARED = Rule(
    "RT432", "autocast state set by hand inside the call", Severity.WRONG, Group.AUTOCAST, Finder.SCAN
)
COLLECTIVE = Rule(
    "RT801", "collective inside the call", Severity.UNKNOWN, Group.DISTRIBUTED, Finder.SCAN | Finder.RUNTIME
)
OBJECT_COLLECTIVE = Rule(
    "RT802", "collective that waits on the host", Severity.STOPS, Group.DISTRIBUTED, Finder.SCAN
)
WRAPPED = Rule(
    "RT803",
    "data-parallel wrapper made around a graph's work",
    Severity.UNKNOWN,
    Group.DISTRIBUTED,
    Finder.SCAN | Finder.RUNTIME,
)
TENSOR_MOVED = Rule("RT301", "external tensor replaced or moved", Severity.WRONG, Group.GUARDS, Finder.ALL)
VALUE_CHANGED = Rule("RT302", "Python value changed", Severity.WRONG, Group.GUARDS)
NEW_KEY = Rule("RT306", "arguments not seen before", Severity.SPEED, Group.GUARDS)
NOT_YET = Rule("RT307", "still observing", Severity.SPEED, Group.GUARDS)
SLOWER = Rule("RT308", "replays measured against plain calls", Severity.SPEED, Group.LIMITS)
TOO_MANY_RECORDINGS = Rule("RT303", "too many recordings", Severity.SPEED, Group.LIMITS)
TOO_MANY_PATHS = Rule("RT304", "too many observed values", Severity.ISLAND, Group.LIMITS)
TOO_MANY_KEYS = Rule("RT305", "too many different arguments", Severity.SPEED, Group.LIMITS)
EVICTED = Rule("RT311", "recording evicted", Severity.SPEED, Group.LIMITS)
OVER_BUDGET = Rule("RT312", "recording larger than the budget", Severity.SPEED, Group.LIMITS)
OUT_OF_MEMORY = Rule("RT313", "out of memory while recording", Severity.SPEED, Group.LIMITS)
PAUSED = Rule("RT314", "recording evicted again and again", Severity.SPEED, Group.LIMITS)
BUCKET_CHECKED = Rule("RT315", "padding still being checked", Severity.SPEED, Group.LIMITS)
NO_BUCKET = Rule("RT316", "larger than the largest bucket", Severity.SPEED, Group.LIMITS)
PADDING_SHOWS = Rule("RT317", "padding changes the results", Severity.SPEED, Group.LIMITS)
NOT_PADDED = Rule("RT318", "cannot be padded", Severity.SPEED, Group.LIMITS)
REPLAY_DIFFERS = Rule("RT321", "replay differs from the plain call", Severity.WRONG, Group.VERIFICATION)
HIDDEN_VALUE = Rule("RT322", "value that cannot be seen", Severity.WRONG, Group.VERIFICATION)
HIDDEN_BRANCH = Rule("RT323", "branch on something that cannot be seen", Severity.WRONG, Group.VERIFICATION)
HIDDEN_STATE = Rule("RT324", "Python state changed by some calls only", Severity.WRONG, Group.VERIFICATION)
NOT_REPEATABLE = Rule(
    "RT325", "plain call does not repeat its own values", Severity.WRONG, Group.VERIFICATION
)
HIDDEN_WRITE = Rule("RT326", "memory written out of sight", Severity.WRONG, Group.VERIFICATION)
OBSERVER_DIFFERS = Rule("RT327", "observation changes the way", Severity.WRONG, Group.VERIFICATION)
STALE_RECORDING = Rule("RT328", "recording no longer right", Severity.WRONG, Group.VERIFICATION)
PLAIN_RAISES = Rule(
    "RT329", "plain call raises where the replay does not", Severity.WRONG, Group.VERIFICATION
)
OPAQUE_OUTPUT = Rule(
    "RT501",
    "output of a type that cannot be rebuilt",
    Severity.WRONG,
    Group.OUTPUTS,
    Finder.TRIAL | Finder.RUNTIME,
)
OUTPUT_DIFFERS = Rule(
    "RT502",
    "Python value in the output differs between calls",
    Severity.WRONG,
    Group.OUTPUTS,
    Finder.TRIAL | Finder.RUNTIME,
)
CONTAINER_RETURNED = Rule(
    "RT505", "argument container returned", Severity.WRONG, Group.OUTPUTS, Finder.TRIAL | Finder.RUNTIME
)
UNSUPPORTED_TENSOR = Rule(
    "RT601", "tensor without plain memory", Severity.STOPS, Group.DEVICES, Finder.TRIAL | Finder.RUNTIME
)
SEVERAL_DEVICES = Rule("RT602", "several devices in one call", Severity.ISLAND, Group.DEVICES)
WRONG_BACKEND = Rule("RT603", "tensors on a device of another backend", Severity.SPEED, Group.DEVICES)
FROZEN_HOST_VALUE = Rule(
    "RT141", "value of a host tensor frozen into the graph", Severity.WRONG, Group.HOST_DATA, Finder.TRIAL
)
MIXED_DEVICES = Rule(
    "RT143", "operands on the host and on the device", Severity.STOPS, Group.DEVICES, Finder.TRIAL
)
ADDRESS_READ = Rule("RT149", "address of a tensor read", Severity.WRONG, Group.MEMORY, Finder.TRIAL)
RAISES = Rule("RT161", "callable raises", Severity.STOPS, Group.LIMITS, Finder.TRIAL)
NO_FAKE = Rule(
    "RT171", "operator without a fake implementation", Severity.UNKNOWN, Group.LIBRARIES, Finder.TRIAL
)
FOREIGN_KERNEL = Rule(
    "RT172", "kernel launched past PyTorch's dispatcher", Severity.UNKNOWN, Group.LIBRARIES, Finder.TRIAL
)

RULES: Mapping[str, Rule] = MappingProxyType(
    {rule.code: rule for rule in list(globals().values()) if isinstance(rule, Rule)}
)
"""All rules by code."""

__all__ = ["RULES", "Finder", "Group", "Reason", "Rule", "reason"]
