"""Record what a PyTorch callable does once, and replay it from CUDA graphs."""

from __future__ import annotations

from .base.errors import (
    CaptureError as CaptureError,
)
from .base.errors import (
    EnvironmentError_ as EnvironmentError_,
)
from .base.errors import (
    InternalError as InternalError,
)
from .base.errors import (
    MisuseError as MisuseError,
)
from .base.errors import (
    NotReplayedError as NotReplayedError,
)
from .base.errors import (
    OptionError as OptionError,
)
from .base.errors import (
    RoteError as RoteError,
)
from .base.errors import (
    VerificationError as VerificationError,
)
from .checking.check import check as check
from .front.budget import set_budget as set_budget
from .front.graph import graph as graph
from .front.graphed import Graphed as Graphed
from .front.options import Options as Options
from .front.pure import pure as pure
from .front.report import Report as Report
from .hazards.findings import Findings as Findings
from .hazards.findings import HazardError as HazardError
from .inspection.profile import profile as profile
from .inspection.profile_result import Profile as Profile

__all__ = [
    "CaptureError", "EnvironmentError_", "Findings", "Graphed", "HazardError", "InternalError",
    "MisuseError", "NotReplayedError", "OptionError", "Options", "Profile", "Report", "RoteError",
    "VerificationError", "check", "graph", "profile", "pure", "set_budget",
]  # fmt: skip
__version__ = "0.1.0"
