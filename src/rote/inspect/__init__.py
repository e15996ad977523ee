"""What people and tools look at: the report, as text and as a page, and the trace of a call."""

from .measured import ShownCallable
from .page import NO_JINJA, page_of
from .ranks import explain_ranks
from .report import (
    FusedReport,
    InputReport,
    IslandReport,
    LeftAloneReport,
    LineReport,
    NearReport,
    OfferedReport,
    OutputReport,
    PartReport,
    ReasonReport,
    RecordingReport,
    Report,
    TierReport,
    TrialReport,
)
from .steps import CallReport, NodeReport, StepReport
from .text import explain, explain_reasons
from .tiers import tier_report
from .trace import save_trace
