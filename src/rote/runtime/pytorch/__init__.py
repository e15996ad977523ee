"""Private names of PyTorch, and what the runtime knows of PyTorch's own code."""

from __future__ import annotations

from .compiled import (
    CompiledGraph,
    HandedRegion,
    compiled_writes,
    dispatch_modes,
    donates,
    draws_numbers,
    is_uncapturable,
    run_compiled,
    seeing_compiled,
    takes_tickets,
)
from .frames import (
    LEFT_ALONE,
    CompiledFrame,
    Switch,
    compiled_frames,
    is_compiling,
    is_hint,
    is_switching,
    leave_alone,
    leave_runtime_alone,
    runs_operator,
    stance,
    switch_of,
    untraced,
    watching_compilations,
)
from .kept_out import is_kept_out, keeping_out
from .kernels import Running, hiding
from .modes import DispatchMode
from .processes import Contact, contact, is_acting, is_quiet
from .replaced import REPLACEMENTS
from .torch_private import (
    ACCESSORS,
    SCRIPTS,
    TELLS_LAZY,
    Sizes,
    SwitchPlaces,
    above_dispatch,
    constants_of,
    count_versions,
    counts_inside,
    current_device,
    default_device,
    dict_version,
    dispatched_functions,
    foreign_modes,
    fresh_scaler_state,
    function_modes,
    functions_dispatched,
    has_memory,
    in_backward,
    is_capturing,
    is_lazy_zero,
    is_wrapped,
    key_readers,
    leaves_lazy,
    metadata_check,
    mode_readers,
    mode_values,
    negative_view,
    numbers_watched_dicts,
    place_of_switches,
    plain_functions,
    plain_tensor,
    raw_keys,
    resolve_lazily,
    scripted_names,
    scripted_value,
    shows_autocast,
    sizes_of_objects,
    stands_for_others,
    stream_handle,
    tells_modes,
    transforms,
    undispatched,
    unseen_functions,
)
from .workers import is_worker
