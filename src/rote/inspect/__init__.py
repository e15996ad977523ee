"""What people and tools look at: the report, as text and as a page, and the trace of a call."""

from .measured import ShownCallable
from .page import NO_JINJA, page_of
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
from .steps import CallReport, NodeReport, StepReport
from .text import explain, explain_reasons
from .trace import save_trace
