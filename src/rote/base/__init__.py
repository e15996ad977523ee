"""The base of every layer, on the standard library alone: errors, source locations, settings."""

from . import picture
from .collector import COLLECTOR
from .errors import (
    CaptureError,
    EnvironmentError_,
    InternalError,
    MemoryShortageError,
    MisuseError,
    NotReplayedError,
    OptionError,
    RoteError,
    VerificationError,
)
from .floats import bits_of, complex_of, float_bits, float_of
from .instances import identity, is_instance
from .location import (
    NOWHERE,
    TORCH_NEEDS,
    Lines,
    Site,
    Sites,
    calls_kernels,
    is_internal,
    is_own,
    running_lines,
    traceback_site,
    user_site,
)
from .picture import NO_MATPLOTLIB
from .settings import (
    ENVIRONMENT,
    CompileSettings,
    captures_apart,
    may_read_words,
    read_api_key,
    read_compile_settings,
    read_duquant,
    read_settings,
)
from .stack import on_a_fresh_stack
from .supported import check_versions
from .text import cut, in_one_line
from .version import __version__
from .writes import count_writes
