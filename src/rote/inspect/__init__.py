"""What people and tools look at: the report as text."""

from .report import (
    InputReport,
    IslandReport,
    LeftAloneReport,
    NearReport,
    OutputReport,
    PartReport,
    ReasonReport,
    RecordingReport,
    Report,
    TierReport,
)
from .text import explain, explain_reasons
