"""Elements that a call reads and writes where numbers or masks say: their places or sizes change."""

from .positions import (
    PUT,
    WrittenPlace,
    index_maker,
    is_mask_of,
    may_be_stored,
    numbers_in,
    places_of,
    put_at,
)
from .selected import SelectedElements, Selections, asks_nothing, choose, may_be_selected, writes_first
from .taken import READS_PLACE, TAKEN, LyingElements, TakenView, TakenViews, only_reads, read_at
