"""Arguments of each call: other values, the same in every process, and none that mean something else."""

import pytest
import torch
from torch import nn

from rote.bench.worker.inputs import PLACES, SPREAD, Inputs


def test_values_are_fresh_and_repeat(device):
    x = torch.randn(4, 8, device=device)
    one, other = Inputs((x,), {}, 7), Inputs((x,), {}, 7)
    seen = []
    for number in range(5):
        (mine,), _ = one.fresh(number)
        (same,), _ = other.fresh(number)
        assert torch.equal(mine, same) and mine is not x
        assert all(not torch.equal(mine, earlier) for earlier in seen)
        assert bool(((mine - x).abs() <= 1.01 * SPREAD * x.abs()).all())
        seen.append(mine.clone())
    assert torch.equal(one.fresh(2)[0][0], seen[2])


def test_successive_calls_have_places_of_their_own():
    inputs = Inputs((torch.randn(3),), {}, 0)
    places = [inputs.fresh(number)[0][0].data_ptr() for number in range(4)]
    assert len(set(places)) == PLACES and places[:2] == places[2:]


def test_masks_ids_and_scalars_stay():
    mask = torch.tensor([0.0, -torch.inf, torch.finfo(torch.float32).min])
    ids, flag = torch.tensor([5, 9]), torch.tensor([True, False])
    inputs = Inputs((mask,), {"ids": ids, "flag": flag, "n": 3}, 0)
    for number in range(4):
        (fresh,), kwargs = inputs.fresh(number)
        assert torch.equal(fresh, mask)
        assert torch.equal(kwargs["ids"], ids) and torch.equal(kwargs["flag"], flag) and kwargs["n"] == 3


def test_nested_arguments_keep_their_form():
    batch = {"pair": [torch.randn(2), (torch.ones(2), None)]}
    args, kwargs = Inputs((batch, "text"), {"scale": 2.0}, 0).fresh(1)
    assert args[0].keys() == batch.keys() and args[1] == "text" and kwargs == {"scale": 2.0}
    assert type(args[0]["pair"][1]) is tuple and args[0]["pair"][1][1] is None


def test_what_is_no_plain_tensor_is_handed_on():
    model, weight = nn.Linear(2, 2), nn.Parameter(torch.ones(2))
    args, _ = Inputs((model, weight), {}, 0).fresh(0)
    assert args[0] is model and args[1] is weight


def test_autograd_and_shared_memory_are_kept():
    base = torch.randn(6)
    leaf = torch.randn(3, requires_grad=True)
    (whole, part, fresh), _ = Inputs((base, base[2:4], leaf), {}, 0).fresh(0)
    assert whole.untyped_storage().data_ptr() == part.untyped_storage().data_ptr()
    assert fresh.requires_grad and fresh.is_leaf and not whole.requires_grad
    assert leaf.grad_fn is None and torch.equal(base, base.clone())


def test_expanded_tensors_are_not_written():
    x = torch.ones(1).expand(4)
    inputs = Inputs((x,), {}, 0)
    assert torch.equal(inputs.fresh(0)[0][0], inputs.fresh(1)[0][0]) and inputs.written(1) == {}


def test_written_arguments_are_found_and_put_back(device):
    cache, x = torch.zeros(4, device=device, dtype=torch.int64), torch.randn(4, device=device)
    inputs = Inputs((x, [cache]), {"out": torch.zeros(2, device=device)}, 0)
    (first, (second,)), kwargs = inputs.fresh(0)
    assert inputs.written(0) == {}
    second.add_(1)
    kwargs["out"].fill_(torch.nan)
    assert set(inputs.written(0)) == {"args[1][0]", "kwargs['out']"}
    (_, (again,)), kwargs = inputs.fresh(PLACES)
    assert again is second and not again.any() and not kwargs["out"].any()
    assert inputs.written(PLACES) == {} and first.shape == x.shape


def test_an_argument_that_became_larger_is_written():
    inputs = Inputs((torch.zeros(2),), {}, 0)
    inputs.fresh(0)[0][0].resize_(3)
    assert set(inputs.written(0)) == {"args[0]"}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.float8_e4m3fn])
def test_all_floats_work(dtype):
    x = torch.full((3,), 2.0).to(dtype)
    fresh = [Inputs((x,), {}, 0).fresh(number)[0][0] for number in range(3)]
    assert all(each.dtype is dtype for each in fresh)
