"""Record what a PyTorch callable does once, and replay it from CUDA graphs."""

from .base import check_versions

check_versions()  # before anything that another version may lack

from .api import (
    Alternative,
    Graphed,
    JointAlternative,
    Options,
    Report,
    graph,
    no_graphs,
    pure,
    register_alternative,
    set_budget,
)
from .base import (
    CaptureError,
    EnvironmentError_,
    InternalError,
    MisuseError,
    NotReplayedError,
    OptionError,
    RoteError,
    VerificationError,
)
from .base import __version__ as __version__
from .bench.profile import Profile, profile
from .checker import check
from .hazards import Findings, HazardError
from .padding import Padded, PaddedReport, padded

__all__ = [
    "Alternative", "CaptureError", "EnvironmentError_", "Findings", "Graphed", "HazardError", "InternalError",
    "JointAlternative", "MisuseError", "NotReplayedError", "OptionError", "Options", "Padded", "PaddedReport",
    "Profile", "Report", "RoteError", "VerificationError", "check", "graph", "no_graphs", "padded", "profile",
    "pure", "register_alternative", "set_budget",
]  # fmt: skip
