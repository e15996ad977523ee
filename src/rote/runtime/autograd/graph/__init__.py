"""The autograd graph below results: nodes, what they keep, views, and where gradients go."""

from .accumulators import ParameterAliases, can_stand_in
from .contexts import Contexts
from .graph import (
    GradientWalk,
    Node,
    SavedNumber,
    adds_up,
    contexts_of,
    ending_at,
    is_freed,
    is_whole,
    kept_storages,
    leaves_below,
    memory_below,
    newest_age,
    nodes_below,
    older_node,
    passes_freed,
    seeds_on_host,
)
from .intermediate import Order, Parted, Probe, ResultGroup, SeenNode, added, groups, is_met_below
from .metadata import Metadata, tagged
from .pinpoint import line_that_calls, line_that_changes, line_that_reads
from .views import Tracked, copied_together, related, shared_results, tracked_in, view_of
