"""What is known of PyTorch's operators, and which of them end a segment."""

from .boundaries import Placement, between, place, rule_of
from .compiled import REGIONS, RegionOperands, call_of_region, is_region, is_region_named
from .facts import Facts, facts_of, is_named, overload_named, rows_with, short
from .launches import LAUNCHES, LaunchCall, UnseenLaunchError, globals_of_launch, seeing_launches
from .operands import (
    PLAIN_VALUES,
    filled_in,
    is_mask,
    read_operands,
    tensors_in,
    tensors_of,
    without_dropout,
    without_vectors,
    written_operands,
    written_values,
)
from .scripts import CALL_OF_SCRIPT, ScriptCall, made_by_script, replaced_in, seeing_scripts
from .sizes import TOLD_SIZES
from .torch_private import composite_call, python_kernels, schema_of
from .transfers import synchronize_operator, wait_operator
from .tried import TRIED, Alone, CapturedAlone, GraphTrial
