"""Programs of the footgun suite whose hazard is in the callable, with the labels beside their lines there."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import torch

from ...footguns.case import Case as Footgun
from ...footguns.cases import autograd, host_values, modes, state
from ..case import Built, Case, Group

TAKEN: tuple[Footgun, ...] = (
    host_values.item_in_a_branch,
    host_values.item_in_a_number,
    host_values.item_in_a_loop_bound,
    host_values.if_tensor,
    host_values.early_exit,
    host_values.check_that_raises,
    host_values.nonzero,
    host_values.mask_written,
    host_values.unique,
    host_values.tolist,
    host_values.through_numpy,
    host_values.loss_logged,
    host_values.number_in_the_outputs,
    host_values.python_random,
    host_values.numpy_random,
    host_values.random_choice_of_a_branch,
    host_values.clock,
    host_values.constant_made_inside,
    host_values.constant_from_a_list_that_changes,
    host_values.comparison_of_tensors,
    host_values.tensor_in_a_text,
    host_values.tensor_iterated,
    host_values.table_looked_up,
    host_values.factorization_that_fails,
    host_values.random_state_of_numpy,
    host_values.schedule_in_python,
    state.moving_average_rebound_at_every_call,
    state.python_counter_in_a_number,
    state.growing_cache,
    state.static_cache_with_a_python_position,
    state.window_of_the_last_inputs,
    state.buffers_swapped_inside,
    state.static_cache_with_a_tensor_position,
    state.buffer_updated_in_place,
    state.batch_norm_statistics,
    modes.seeded_inside,
    modes.dropout,
    modes.modes_inside,
    modes.transforms_inside,
    modes.side_stream_inside,
    autograd.host_read_in_backward,
    autograd.step_skipped_when_the_norm_is_large,
    autograd.loss_as_a_number,
    autograd.accumulated_inside,
    autograd.clipped,
    autograd.sgd_with_momentum,
    autograd.average_of_the_weights,
)


class _Met(BaseException):
    """The program has called what it graphs."""


def taken(footgun: Footgun) -> Case:
    """The callable of a program and the arguments of its second call: those of the first are often zeros."""

    @functools.wraps(footgun.program)
    def build(device: Any) -> Built:
        met: list[Any] = []

        def wrap(fn: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                if not met:
                    met.append(fn)
                    return fn(*args, **kwargs)
                met.append((functools.partial(fn, **kwargs) if kwargs else fn, args))
                raise _Met

            return call

        with (
            contextlib.suppress(_Met),
            contextlib.closing(footgun.program(wrap, torch.device(device))) as items,
        ):
            for _ in items:
                pass
        return met[-1]

    return Case(build)


group = Group()
group.cases += [taken(footgun) for footgun in TAKEN]
