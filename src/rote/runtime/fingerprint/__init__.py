"""Words of memory that say whether tensors, containers and objects are what they were."""

from .epoch import EPOCH
from .held import Held
from .layout import find_layout, find_lengths, find_owners, find_registrations, find_version, state_of, watch
from .words import (
    BYTES,
    NEVER,
    NOTHING,
    Layout,
    NotedWords,
    Owners,
    Stage,
    WatchedWords,
    Words,
    is_readable,
    joined,
    places,
    portions,
    read,
    stage,
    word,
    words_at,
)
