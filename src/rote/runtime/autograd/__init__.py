"""Recorded graphs: how the graph of a result is taken over, kept, and walked back by replays."""

from .backward import Backward
from .gradient_words import note_gradients
from .graph import SavedNumber
from .order import BackwardOrder, BackwardPasses
from .saved import saving
from .tracked import (
    GradientUse,
    gradient_blockers,
    graph_ends,
    held_by_contexts,
    idle_results,
    leads_nowhere,
    refused_views,
    take_over,
    tracked_results,
)
from .walker import Occupancy
