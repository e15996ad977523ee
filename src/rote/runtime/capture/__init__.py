"""A traced call: observed, recorded, or followed along what has already run."""

from .blame import out_of_memory
from .optimizers import count_reason, rate_reason, stepping
from .run import Observation, OpenCapture, Plan, TracedCall, TraceHooks, parameters_of
from .stores import without_copies
from .tracer import Tracer
