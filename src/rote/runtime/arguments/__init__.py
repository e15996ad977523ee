"""The arguments of a call: leaves, keys, and the modes around it."""

from .admission import NOT_MINE, Admission, Source
from .ambient import explain_ambient, is_captured, read_ambient, tracing
from .bits import bytes_of, numbers_of, sharing
from .bound import (
    APPENDED,
    CLASS_SLOT,
    CONTENTS,
    DELETED,
    FILLED,
    GRADIENT,
    MEMORY,
    STORED,
    TAGGED,
    TOLD,
    Bound,
    ClassTarget,
    GivenTarget,
    Laid,
    LeftGradient,
    SlotsBefore,
    StandingLeaves,
    Tag,
    Target,
    all_in,
    assign,
    can_be_laid,
    read_from,
    returned,
)
from .device import device_of
from .handed import DEEPEST, FoundObject, GivenBranch, Made, Marking
from .key import (
    MOVED_PARAMETER,
    ONE_OBJECT,
    OPAQUE,
    PARAMETER,
    PLAIN,
    TENSOR,
    Call,
    CompiledInput,
    GivenParts,
    Key,
    at_any_length,
    bind,
    changed_numbers,
    describe_key,
    describe_tensor,
    differing_leaf,
    explain_key,
    extent,
    family,
    has_gradient,
    is_borrowed,
    is_known_by_identity,
    is_plain,
    may_follow,
    remedy_of_key,
    told_lengths,
)
from .leaves import (
    ARRAY,
    BOUND,
    Spec,
    UnderArray,
    containers,
    filled,
    flatten,
    has_branches,
    is_mutable,
    leaves_by,
    leaves_of,
    paths,
    repeated,
    unflatten,
)
from .opened import (
    DEVICE,
    SEED,
    Opening,
    Openings,
    address_of,
    is_default,
    is_default_at,
    is_openable,
    parts_of,
    slots_of,
    table_of,
)
from .places import StatePlace, can_be_carried, holds_tensors, place_of
from .shapes import Shapes, shapes_of
from .switches import Switches, read_switches
