"""The table of rules, by topic; their texts are in ``texts``, one file each.

Codes are grouped: 1xx what ends a segment or stops a capture, 2xx calls that are not steady, 3xx guards,
limits and arguments, 4xx autograd, 5xx values that cannot be handed out, 6xx devices, 7xx libraries,
8xx several processes. A code is never given a new meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .finding import Severity
from .rule import Finder, Rule, Topic

_STOPS, _WRONG, _ISLAND, _SPEED, _UNKNOWN = Severity
_SCAN, _TRIAL, _CHECK, _ALL = Finder.SCAN, Finder.TRIAL, Finder.CHECK, Finder.ALL
_READ, _RUN = Finder.SCAN | Finder.RUNTIME, Finder.TRIAL | Finder.RUNTIME

HOST_READ = Rule("RT101", "host read", _STOPS, Topic.HOST_READS, _ALL)
LIST_READ = Rule("RT102", "tensor turned into a list", _STOPS, Topic.HOST_READS, _ALL)
MEMORY_ESCAPE = Rule("RT103", "tensor memory handed to numpy or DLPack", _STOPS, Topic.HOST_READS, _ALL)
PRINTED = Rule("RT104", "tensor printed or logged", _STOPS, Topic.HOST_READS, _ALL)
SAVED = Rule("RT105", "tensor written to a file", _STOPS, Topic.HOST_READS, _SCAN)
DEVICE_COPY = Rule("RT121", "copy between devices", _STOPS, Topic.HOST_DATA, _ALL)
HOST_OPERATION = Rule("RT122", "operation on host tensors", _WRONG, Topic.HOST_DATA, _RUN)
HOST_DATA = Rule("RT123", "data built on the host inside the call", _STOPS, Topic.HOST_DATA, _ALL)
CONSTANT = Rule("RT124", "tensor made from Python values", _STOPS, Topic.HOST_DATA, _CHECK)
PAGEABLE_COPY = Rule("RT125", "non-blocking copy inside the call", _STOPS, Topic.HOST_DATA, _CHECK)
LIST_INDEX = Rule("RT126", "tensor indexed with a Python list", _STOPS, Topic.HOST_DATA, _CHECK)
CLOCK = Rule("RT127", "clock read inside the call", _WRONG, Topic.HOST_DATA, _SCAN)
DYNAMIC_SHAPE = Rule("RT111", "shape that depends on data", _STOPS, Topic.SHAPES, _ALL)
PACKED = Rule("RT112", "packed sequences", _STOPS, Topic.SHAPES, _READ)
SPARSE = Rule("RT113", "sparse tensor made inside the call", _STOPS, Topic.SHAPES, _SCAN)
STATE_CHANGES = Rule("RT201", "Python state changes at every call", _WRONG, Topic.STATE, _ALL)
OPERAND_DIFFERS = Rule("RT202", "operand differs between calls", _WRONG, Topic.STATE, _RUN)
OPERATIONS_DIFFER = Rule("RT203", "different operations at every call", _WRONG, Topic.STATE, _RUN)
TENSOR_ESCAPES = Rule("RT205", "tensor kept from inside the call", _WRONG, Topic.STATE, _RUN)
UNREACHABLE = Rule("RT206", "external tensor that cannot be found again", _WRONG, Topic.STATE)
ARGUMENT_CHANGED = Rule("RT207", "container among the arguments changed", _WRONG, Topic.STATE, _ALL)
OPERATION_RAISES = Rule("RT209", "operation raised inside the call", _WRONG, Topic.STATE, _RUN)
AMBIENT_CHANGES = Rule("RT210", "mode changed by the call", _WRONG, Topic.STATE, _ALL)
BLIND = Rule("RT211", "another profiler is active", _SPEED, Topic.STATE)
UNKNOWN_CODE = Rule("RT218", "code of which it is not known what it reads", _SPEED, Topic.STATE)
OUTPUT = Rule("RT219", "output that a replay does not repeat", _SPEED, Topic.STATE)
SCALE_ON_SELF = Rule("RT212", "tensor computed in forward and stored on self", _WRONG, Topic.STATE, _CHECK)
LAZY_STATE = Rule("RT213", "state made in the first call", _SPEED, Topic.STATE, _CHECK)
GROWING = Rule("RT214", "state that grows with every call", _WRONG, Topic.STATE, _SCAN)
MUTABLE_DEFAULT = Rule("RT215", "mutable default argument as state", _WRONG, Topic.STATE, _CHECK)
MEMOIZED = Rule("RT216", "function of tensors that remembers its results", _WRONG, Topic.STATE, _SCAN)
HOOK_INSIDE = Rule("RT217", "module hook registered inside the call", _WRONG, Topic.STATE, _SCAN)
INPUT_MOVED = Rule("RT331", "argument used in place lies elsewhere", _SPEED, Topic.ALIASING)
INPUT_IS_STATE = Rule("RT332", "argument shares memory with state of the callable", _SPEED, Topic.ALIASING)
ARGUMENT_MUTATED = Rule("RT333", "argument changed in place", _SPEED, Topic.ALIASING, _CHECK)
ALIASED_MUTATION = Rule("RT503", "input mutated that shares memory with another", _WRONG, Topic.ALIASING)
RESHAPED = Rule("RT504", "tensor made outside reshaped in place", _WRONG, Topic.ALIASING, _ALL)
HOST_RANDOM = Rule("RT204", "host random numbers", _WRONG, Topic.RANDOM, _ALL)
RANDOM_STATE_SET = Rule("RT208", "random state set inside the call", _WRONG, Topic.RANDOM, _ALL)
GENERATOR_INSIDE = Rule("RT221", "random generator made inside the call", _STOPS, Topic.RANDOM, _READ)
EMPTY_CACHE = Rule("RT181", "allocator emptied inside the call", _SPEED, Topic.MEMORY, _CHECK)
PINNED_INSIDE = Rule("RT182", "pinned memory allocated inside the call", _STOPS, Topic.MEMORY, _CHECK)
MEMORY_ASKED = Rule("RT183", "memory statistics read inside the call", _WRONG, Topic.MEMORY, _SCAN)
REFUSED = Rule("RT131", "operation refused while capturing", _ISLAND, Topic.STREAMS, _RUN)
CAPTURE_FAILED = Rule("RT132", "capture failed", _STOPS, Topic.STREAMS)
SYNCHRONIZE = Rule("RT133", "synchronisation inside the call", _STOPS, Topic.STREAMS, _ALL)
STREAM_INSIDE = Rule("RT134", "stream switched inside the call", _STOPS, Topic.STREAMS, _CHECK)
EVENT_INSIDE = Rule("RT135", "event made or recorded inside the call", _SPEED, Topic.STREAMS, _READ)
NESTED_CAPTURE = Rule("RT136", "graph inside a graph", _STOPS, Topic.STREAMS, _CHECK)
THREAD_INSIDE = Rule("RT137", "thread started inside the call", _WRONG, Topic.STREAMS, _CHECK)
PROFILED = Rule("RT138", "profiler or range marker inside the call", _SPEED, Topic.STREAMS, _SCAN)
GENERATE = Rule("RT701", "text generation inside the call", _STOPS, Topic.LIBRARIES, _SCAN)
DYNAMIC_CACHE = Rule("RT702", "key-value cache that grows", _WRONG, Topic.LIBRARIES, _SCAN)
MASK_INSIDE = Rule("RT703", "attention mask made inside the call", _ISLAND, Topic.LIBRARIES, _SCAN)
EXPERTS = Rule("RT704", "experts looped over in Python", _STOPS, Topic.LIBRARIES, _SCAN)
GRID = Rule("RT705", "image grid given as a tensor", _STOPS, Topic.LIBRARIES, _SCAN)
SCHEDULER_STEP = Rule("RT711", "noise scheduler stepped inside the call", _WRONG, Topic.LIBRARIES, _SCAN)
TIMESTEPS_SET = Rule("RT712", "timesteps set inside the call", _STOPS, Topic.LIBRARIES, _SCAN)
MIXUP = Rule("RT721", "Mixup inside the call", _WRONG, Topic.LIBRARIES, _SCAN)
BOXES_KEPT = Rule("RT731", "detection boxes selected inside the call", _STOPS, Topic.LIBRARIES, _SCAN)
RANDOM_TRANSFORM = Rule("RT732", "random image transform inside the call", _WRONG, Topic.LIBRARIES, _SCAN)
TIMM_OPTIMIZER = Rule("RT722", "optimizer of timm that counts on the host", _WRONG, Topic.LIBRARIES, _SCAN)
NORMALIZED = Rule("RT733", "images normalised with Python lists", _STOPS, Topic.LIBRARIES, _SCAN)
COMPILED_INSIDE = Rule("RT741", "torch.compile inside the call", _SPEED, Topic.LIBRARIES, _SCAN)
OUTPUT_GRADIENT = Rule("RT401", "autograd graph that reaches outside of the call", _WRONG, Topic.AUTOGRAD)
GRADIENT_RETURNED = Rule("RT402", "gradient is a result as well", _WRONG, Topic.AUTOGRAD)
INPUT_GRADIENT = Rule("RT403", "gradient of an argument used inside the call", _WRONG, Topic.AUTOGRAD)
BACKWARD_PENDING = Rule("RT404", "earlier results still wait for their backward", _SPEED, Topic.AUTOGRAD)
GRADIENT_HOOK = Rule("RT405", "hook on a tensor of the call", _WRONG, Topic.AUTOGRAD, _READ)
SAVED_HOOKS = Rule("RT406", "somebody else decides what backward keeps", _ISLAND, Topic.AUTOGRAD, _READ)
SHARED_RESULTS = Rule("RT407", "results that require grad share memory", _WRONG, Topic.AUTOGRAD)
SECOND_ORDER = Rule("RT408", "gradient of a gradient through a recording", _WRONG, Topic.AUTOGRAD)
OPTIMIZER_COUNT = Rule("RT411", "optimizer that counts on the host", _STOPS, Topic.AUTOGRAD, _ALL)
HYPERPARAMETER = Rule("RT412", "hyperparameter changes between calls", _WRONG, Topic.AUTOGRAD)
SCHEDULER_INSIDE = Rule(
    "RT413", "learning-rate scheduler stepped inside the call", _WRONG, Topic.AUTOGRAD, _ALL
)
GRADIENT_MOVED = Rule("RT414", "gradient replaced between calls", _WRONG, Topic.AUTOGRAD, _READ)
AVERAGE_COUNT = Rule("RT415", "average of weights that counts on the host", _WRONG, Topic.AUTOGRAD)
ANOMALY = Rule("RT421", "anomaly detection inside the call", _STOPS, Topic.AUTOGRAD, _SCAN)
SCALER_INSIDE = Rule("RT422", "gradient scaler inside the call", _STOPS, Topic.AUTOGRAD, _SCAN)
CLOSURE_STEP = Rule("RT423", "optimizer that calls a closure", _STOPS, Topic.AUTOGRAD, _SCAN)
NORM_CHECKED = Rule("RT424", "gradient norm checked on the host", _STOPS, Topic.AUTOGRAD, _SCAN)
AUTOCAST_AROUND = Rule("RT431", "autocast around a capture with its cache on", _WRONG, Topic.AUTOCAST, _SCAN)
AUTOCAST_CLEARED = Rule("RT432", "autocast state set by hand inside the call", _WRONG, Topic.AUTOCAST, _SCAN)
COLLECTIVE = Rule("RT801", "collective inside the call", _ISLAND, Topic.DISTRIBUTED, _READ)
OBJECT_COLLECTIVE = Rule("RT802", "collective that waits on the host", _STOPS, Topic.DISTRIBUTED, _SCAN)
WRAPPED = Rule(
    "RT803", "data-parallel wrapper made around a graph's work", _UNKNOWN, Topic.DISTRIBUTED, _READ
)
SOME_RANKS = Rule("RT804", "collective on some ranks only", _STOPS, Topic.DISTRIBUTED, _SCAN)
TENSOR_MOVED = Rule("RT301", "external tensor replaced or moved", _WRONG, Topic.GUARDS, _ALL)
VALUE_CHANGED = Rule("RT302", "Python value changed", _WRONG, Topic.GUARDS)
NEW_KEY = Rule("RT306", "arguments not seen before", _SPEED, Topic.GUARDS)
NOT_YET = Rule("RT307", "still observing", _SPEED, Topic.GUARDS)
SLOWER = Rule("RT308", "replays measured against plain calls", _SPEED, Topic.LIMITS)
TRACING_COSTS = Rule("RT309", "tracing bounded by what it costs", _SPEED, Topic.LIMITS)
TOO_MANY_RECORDINGS = Rule("RT303", "too many recordings", _SPEED, Topic.LIMITS)
TOO_MANY_PATHS = Rule("RT304", "too many observed values", _ISLAND, Topic.LIMITS)
TOO_MANY_KEYS = Rule("RT305", "too many different arguments", _SPEED, Topic.LIMITS)
EVICTED = Rule("RT311", "recording evicted", _SPEED, Topic.LIMITS)
OVER_BUDGET = Rule("RT312", "recording larger than the budget", _SPEED, Topic.LIMITS)
OUT_OF_MEMORY = Rule("RT313", "out of memory while recording", _SPEED, Topic.LIMITS)
PAUSED = Rule("RT314", "recording evicted again and again", _SPEED, Topic.LIMITS)
PADDING_CHECKED = Rule("RT315", "padding still being checked", _SPEED, Topic.LIMITS)
TOO_LARGE_TO_PAD = Rule("RT316", "larger than the largest padded size", _SPEED, Topic.LIMITS)
PADDING_SHOWS = Rule("RT317", "padding changes the results", _SPEED, Topic.LIMITS)
NOT_PADDED = Rule("RT318", "cannot be padded", _SPEED, Topic.LIMITS)
KEPT_OUT = Rule("RT319", "kept out of graphs on request", _SPEED, Topic.LIMITS)
REPLAY_DIFFERS = Rule("RT321", "replay differs from the plain call", _WRONG, Topic.VERIFICATION)
HIDDEN_VALUE = Rule("RT322", "value that cannot be seen", _WRONG, Topic.VERIFICATION)
HIDDEN_BRANCH = Rule("RT323", "branch on something that cannot be seen", _WRONG, Topic.VERIFICATION)
HIDDEN_STATE = Rule("RT324", "Python state changed by some calls only", _WRONG, Topic.VERIFICATION)
NOT_REPEATABLE = Rule("RT325", "plain call does not repeat its own values", _WRONG, Topic.VERIFICATION)
HIDDEN_WRITE = Rule("RT326", "memory written out of sight", _WRONG, Topic.VERIFICATION)
OBSERVER_DIFFERS = Rule("RT327", "observation changes the way", _WRONG, Topic.VERIFICATION)
STALE_RECORDING = Rule("RT328", "recording no longer right", _WRONG, Topic.VERIFICATION)
PLAIN_RAISES = Rule("RT329", "plain call raises where the replay does not", _WRONG, Topic.VERIFICATION)
OPAQUE_OUTPUT = Rule("RT501", "output of a type that cannot be rebuilt", _WRONG, Topic.OUTPUTS, _RUN)
OUTPUT_DIFFERS = Rule(
    "RT502", "Python value in the output differs between calls", _WRONG, Topic.OUTPUTS, _RUN
)
CONTAINER_RETURNED = Rule("RT505", "container of the state returned", _WRONG, Topic.OUTPUTS, _RUN)
UNSUPPORTED_TENSOR = Rule("RT601", "tensor without plain memory", _STOPS, Topic.DEVICES, _RUN)
SEVERAL_DEVICES = Rule("RT602", "several devices in one call", _ISLAND, Topic.DEVICES)
WRONG_BACKEND = Rule("RT603", "tensors on a device of another backend", _SPEED, Topic.DEVICES)
FROZEN_HOST_VALUE = Rule(
    "RT141", "value of a host tensor frozen into the graph", _WRONG, Topic.HOST_DATA, _TRIAL
)
MIXED_DEVICES = Rule("RT143", "operands on the host and on the device", _STOPS, Topic.DEVICES, _TRIAL)
ADDRESS_READ = Rule("RT149", "address of a tensor read", _WRONG, Topic.MEMORY, _TRIAL)
RAISES = Rule("RT161", "callable raises", _STOPS, Topic.LIMITS, _TRIAL)
NO_FAKE = Rule("RT171", "operator without a fake implementation", _UNKNOWN, Topic.LIBRARIES, _TRIAL)
FOREIGN_KERNEL = Rule("RT172", "kernel launched past PyTorch's dispatcher", _UNKNOWN, Topic.LIBRARIES, _RUN)

RULES: Mapping[str, Rule] = MappingProxyType(
    {rule.code: rule for rule in list(globals().values()) if isinstance(rule, Rule)}
)
"""All rules by code."""
