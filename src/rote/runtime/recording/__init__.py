"""A recording: its tree, its memory, where its arguments lie and how its results are handed out."""

from .accesses import Accesses
from .copies import Copies
from .guard import StateGuard, reachable
from .handing import (
    Own,
    Writing,
    can_be_written,
    copy_of,
    hand_out,
    put_together,
    write_parts,
    write_together,
)
from .inputs import RecordingMemory, StaticInputs
from .outputs import make_template, with_lent
from .recording import Recording
from .taken_views import input_view
from .tiers import (
    FIRST_TIER,
    AlternativeUse,
    AlternativeUses,
    ExactStretch,
    FusedOperations,
    Launched,
    Numerics,
    Removed,
    Tiers,
    TierTrial,
)
from .tree import (
    ON_HOST,
    Branch,
    CapturedSegment,
    CapturedStretch,
    InFlight,
    Island,
    KernelModes,
    Node,
    NumberBranch,
    OperationCall,
    Step,
)
