"""Python state, slot by slot: its contents, the reads of calls, and the text of a change."""

from .executed import (
    PASSES_ON,
    PROFILE,
    TORCHS_OWN,
    ExecutedCode,
    get_profile,
    mentions_of,
    our_profiler,
    set_profile,
)
from .kinds import (
    ASKED,
    ATTRIBUTE,
    BULK,
    CACHED,
    CELL,
    DEFINED,
    FOLLOWED,
    HELD,
    ITEM,
    KIND,
    LAST,
    LENGTH,
    LENGTHENED,
    LIES,
    LOOKED,
    MISSING,
    NUMBERS,
    OPERATORS,
    ORDER,
    REFERENT,
    SAID,
    SCRIPTED,
    SUBCLASS,
    VARIABLE,
    WHETHER,
    Entry,
    answer,
    lying_in,
    read,
)
from .reads import Address, Argument, Names, Read, Reads, address_of
from .slots import Difference, form_of, is_among, look_again, now_in, same, show, show_tensor
from .snapshot import Snapshot
