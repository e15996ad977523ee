"""Groups of operations as kernels: random programs give what they give plainly, to the bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
import torch
from tests.runtime.fusion.evaluated import evaluate
from tests.runtime.fusion.programs import Scene, scene
from tests.runtime.program.observed import observe
from torch import Tensor

from rote.runtime.fusion import Fusible, NoKernelError, Written
from rote.runtime.fusion.groups import plan_group
from rote.runtime.program import INPUT, NEW, Look, Operation, Origin, Token
from rote.runtime.program import operations as ops
from rote.testing import assert_same


class Planned(NamedTuple):
    """A call as one group."""

    steps: list[Written | Fusible]
    group: dict[int, Fusible]
    results: list[Token]
    operations: list[Operation]


def plan(found: Scene, *, on_host: bool = True) -> Planned:
    """The kernels of a call, as if it had run on a GPU or not."""
    observed = observe(found.function, *[each.clone() for each in found.args])
    operations = [_on(each, on_host) for each in observed.operations]
    group = [Fusible.of(at, each) for at, each in enumerate(operations) if each.kind != ops.VIEWED]
    results = observed.results
    public = {token.origin for token in results}
    needed = [each.index for each in group if each.result.origin in public]
    steps = plan_group(group, needed, lambda origin: origin, on_host=on_host)
    return Planned(steps, {each.index: each for each in group}, results, operations)


def _on(operation: Operation, on_host: bool) -> Operation:
    """An operation on tensors of the host, or of a GPU."""

    def there(each: Any) -> Any:
        if isinstance(each, Token):
            look = each.look
            return each._replace(look=Look(look.dtype, look.shape, look.stride, on_host))
        return tuple([there(one) for one in each]) if type(each) is tuple else each

    return operation._replace(operands=there(operation.operands), results=there(operation.results))


def calculated(planned: Planned, args: Sequence[Tensor]) -> list[Tensor]:
    """What the kernels give."""
    memory: dict[Origin, Tensor] = {}

    def flat(origin: Origin, dtype: torch.dtype) -> Tensor:
        known = memory[origin] if origin[0] is NEW else args[origin[1]]
        whole = torch.empty(0, dtype=dtype)
        return whole.set_(
            known.untyped_storage(), 0, (known.untyped_storage().nbytes() // whole.itemsize,), (1,)
        )

    def run(step: Written | Fusible) -> None:
        if isinstance(step, Fusible):
            values = [looked_at(each) for each in step.operation.tokens]
            rest = iter(values)
            given, named = step.operation.arguments(
                lambda leaf: next(rest) if isinstance(leaf, Token) else getattr(leaf, "value", leaf)
            )
            memory[step.result.origin] = step.operation.overload(*given, **named)
            return
        tensors = [flat(origin, dtype) for origin, dtype in step.reads]
        for index, stored in zip(
            step.stores, evaluate(step.body, tensors, step.reals, step.integers), strict=True
        ):
            token = planned.group[index].result
            memory[token.origin] = stored.as_strided(token.shape, token.stride)

    def looked_at(token: Token) -> Tensor:
        return flat(token.origin, token.dtype).as_strided(token.shape, token.stride, token.offset)

    for step in planned.steps:
        run(step)
    return [looked_at(token) for token in planned.results]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("block", range(8))
def test_random_programs(block):
    kernels = operations = 0
    for seed in range(40 * block, 40 * block + 40):
        found = scene(seed)
        try:
            planned = plan(found)
        except NoKernelError:
            continue
        expected = found.function(*[each.clone() for each in found.args])
        for got, wanted in zip(calculated(planned, found.args), expected, strict=True):
            assert_same(got, wanted, f"scene {seed}")
        kernels += len(planned.steps)
        operations += len(planned.group)
    assert operations > 1.5 * kernels > 0


def one(function, *args: Tensor) -> Planned:
    return plan(Scene(lambda *given: (function(*given),), args))


def test_a_rotation_is_one_kernel():
    def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        turned = torch.cat((-x[..., 4:], x[..., :4]), -1)
        return x * cos.unsqueeze(1) + turned * sin.unsqueeze(1)

    x, angle = torch.randn(1, 3, 5, 8), torch.randn(1, 5, 8)
    planned = one(rotated, x, angle, angle + 1)
    (kernel,) = planned.steps
    assert isinstance(kernel, Written) and len(kernel.covers) == 5
    assert_same(calculated(planned, (x, angle, angle + 1))[0], rotated(x, angle, angle + 1), "rotation")


def test_results_of_one_size_are_one_kernel():
    planned = plan(Scene(lambda x, y: (x * 2, y + 1), (torch.randn(6), torch.randn(2, 3))))
    (kernel,) = planned.steps
    assert isinstance(kernel, Written) and len(kernel.stores) == 2


def test_numbers_are_no_part_of_a_body():
    first, second = [one(lambda x, by=by: x * by + by, torch.randn(5)).steps[0] for by in (2.0, 3.5)]
    assert isinstance(first, Written) and isinstance(second, Written)
    assert first.body == second.body and (first.reals, second.reals) == ((2.0,), (3.5,))


def test_an_operation_that_would_be_alone_stays():
    (step,) = one(lambda x: x * 2, torch.randn(5)).steps
    assert isinstance(step, Fusible)


def test_what_no_kernel_can_calculate_where_it_is_read_is_stored():
    # The rows of the second read go across those of the first: neither digit is made of whole ones.
    planned = one(lambda x: (x + x).view(3, 4).t().reshape(-1).view(2, 6) * 2, torch.randn(2, 6))
    assert_same(calculated(planned, (torch.ones(2, 6),))[0], torch.full((2, 6), 4.0), "result")


def test_one_memory_as_two_types():
    def both(x: Tensor) -> Tensor:
        return torch.where(x.view(torch.int32) * 3 > 7, x * 2, x)

    x = torch.tensor([1.0, -2.0])
    planned = one(both, x)
    (kernel,) = planned.steps
    assert isinstance(kernel, Written) and kernel.body.reads == (torch.int32, torch.float32)
    assert {origin[0] for origin, _ in kernel.reads} == {INPUT}
    assert_same(calculated(planned, (x,))[0], both(x), "result")


def test_real_numbers_do_not_become_whole_ones():
    with pytest.raises(NoKernelError, match="it makes whole numbers of real ones"):
        one(lambda x: x.to(torch.int32) + 1, torch.randn(3))
