"""The interface: :func:`..graph`, the graphed callable, its options and its report."""

from ..inspect import ReasonReport, Report, explain_reasons
from ..runtime.optimize import Alternative, JointAlternative, register_alternative
from .bound import GraphedMethod
from .budget import set_budget
from .callables import dress, place_of
from .compiled import CompiledFrom
from .exclusion import SizesOf, no_graphs
from .graphed import Graphed, HeldKey, call_traced, method_in_trace
from .options import OptionKeywords, Options, shows_options
from .purity import pure
from .reasons import ReasonCounts
from .wrapping import graph
