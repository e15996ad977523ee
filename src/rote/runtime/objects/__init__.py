"""Python objects, read without running their code."""

from . import members
from .arrays import ARRAY_FACTS, array_over, form_of, is_view, tensor_over
from .cached import Remembered, asked_key, cached_in, is_full, remembered, table_of
from .classes import (
    UNSET,
    Itself,
    class_of,
    has_parts_in_c,
    is_bound_method,
    is_getter_of_pybind,
    is_graphed,
    is_hashed_in_c,
    is_of_pybind,
    is_python,
    key_of,
    made_by,
    own,
    tells_itself,
    text_of,
)
from .dying import seen_dying
from .iterators import Position, is_standard, position
from .marks import (
    ARRAY_BYTES,
    PROXIES,
    VALUES_BY_TEXT,
    Content,
    DefinedOperators,
    Members,
    TensorMark,
    base_of,
    counted,
    exact,
    hooks_of,
    mark,
    pointer_of,
)
from .members import has_plain_length, is_direct, keys, put, refill, values
from .mixed_keys import MixedKeys
from .origin import is_found, module_of, said_module, said_name
from .owners import is_open, is_user, is_users
from .sinks import can_tell, cut_off, end_of, sink_of
from .torchscript import scripted
from .training import ParameterGroup, Training, is_empty_stage_table
