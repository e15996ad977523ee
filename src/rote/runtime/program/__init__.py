"""What a call did, as data: operations, storages, values that the host saw, and the form of the result."""

from . import operations
from .arrays import address_range, lying_in, memory_of_host, within
from .counted import COUNTS_ALL, Counted
from .edges import NUMBER, Raised, caught, edge_of, result_along, value_of
from .generators import (
    Generators,
    Reseed,
    Stands,
    are_one,
    exchanged,
    generator_in,
    is_of_host,
    unknown_states,
)
from .gradients import UNNAMED, GradientEffect, GradientSlot, GradientWatch, Slots, slot_of
from .graph import GivenNode, to_fx
from .log import EAGER, PLAINLY, RECORDED, REPLAYED, BackwardLog, Result, Tally
from .of_graph import of_fx
from .operations import (
    ArrayMemory,
    HostBytes,
    HostValues,
    Number,
    Opaque,
    Operand,
    Operation,
    Reference,
    Value,
    assemble,
    content_of,
    first_difference,
    is_same_operand,
    number_of,
    operand_of,
    operands_of,
    results_of,
)
from .other_names import copy_attributes, give_back, may_be_renamed, renamable, renamed
from .placement import (
    BUFFER,
    OTHER,
    PLACES,
    Guesses,
    InputFacts,
    Regulars,
    SeenArgument,
    Spot,
    base_offset,
    describe_inputs,
    group_members,
    moved_reasons,
    named_inputs,
    placeable,
    shared_groups,
    sharing_reasons,
    span_of,
)
from .program import Ending, Program, Stretch, Way
from .storages import (
    EXTERNAL,
    INPUT,
    NEW,
    Homes,
    Look,
    Looks,
    Origin,
    ReboundTensors,
    StorageTable,
    Token,
    UnsupportedTensorError,
    Unwritten,
    are_alone,
)
from .template import (
    AGAIN,
    COMPUTED,
    EXTERNAL_SAME,
    EXTERNAL_VIEW,
    GIVEN,
    INPUT_VIEW,
    META,
    OWN,
    PASSED,
    VALUE,
    VIEW,
    OutputLeaf,
    Template,
    spend,
)
from .torch_private import (
    Creation,
    after_pass,
    apply_of,
    asks_for_some,
    below_transforms,
    copy_all,
    counts_apart,
    creation_kind,
    creation_of,
    current_pass,
    has_refused_history,
    history_of,
    in_backwards,
    in_bad_fork,
    innermost,
    is_plain_creation,
    mode_below,
    node_age,
    parts_of,
    replaced_kernels,
    saving_is_hooked,
    set_creation_kind,
    swap_tensors,
    tells_creation,
    tells_passes,
    unseen_function_mode,
    unwrapped,
    versions_kept,
    watch_hooks,
    with_own_node,
    without_view,
)
