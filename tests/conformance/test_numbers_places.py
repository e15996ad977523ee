"""Numbers that change as data of tensors, in lists of operands, and as positions that are written."""

from __future__ import annotations

import math
from array import array
from collections import OrderedDict, UserList, deque

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from tests.conformance.numbers_programs import bits

import rote

pytestmark = pytest.mark.parametrize("device", ["cpu"], indirect=True)

FOLLOWED = {
    "tensor": lambda c, k, n, p: k * torch.tensor(n),
    "typed": lambda c, k, n, p: k * torch.tensor(n, dtype=torch.float16),
    "nested": lambda c, k, n, p: k + torch.tensor([[n, 2.0], [p, True]]).sum(),
    "new": lambda c, k, n, p: k + k.new_tensor([n, 1, p]),
    "position": lambda c, k, n, p: c.index_copy_(1, torch.tensor([p]), k[:, None]),
    "range": lambda c, k, n, p: k + torch.arange(p, p + 3) + torch.arange(p - 1, p + 2, dtype=torch.float64),
    "full": lambda c, k, n, p: torch.full((3,), n) + k.new_full((3,), n) + torch.full_like(k, n),
    "foreach": lambda c, k, n, p: torch._foreach_mul([k, c], n),
    "foreach list": lambda c, k, n, p: torch._foreach_add([k, c], [n, 2.0]),
    "foreach lists": lambda c, k, n, p: torch._foreach_addcdiv([k, c], [k, c], [k + 9, c + 9], (n, n)),
    "foreach powers": lambda c, k, n, p: torch._foreach_pow([k.abs() + 1, c.abs() + 1], [n, 2]),
    "foreach in place": lambda c, k, n, p: torch._foreach_mul_([k, c], [n, n]),
    "put": lambda c, k, n, p: put(c, (slice(None), p), k),
    "put behind": lambda c, k, n, p: put(c, (..., p), k),
    "put a row": lambda c, k, n, p: put(c, p % 3, k[:1] * n),
    "put some": lambda c, k, n, p: put(c, (slice(None), slice(p, p + 2)), k[:, None]),
    "put a number": lambda c, k, n, p: put(c, (slice(None), p), n),
    "put whole numbers": lambda c, k, n, p: put(c.long(), (slice(None), p), p + 1),
    "put numbers": lambda c, k, n, p: put(put(c, (0, 1), n), (..., None, slice(2, 4)), p),
    "put by a mask": lambda c, k, n, p: put(c.clone(), c > 0, n) + put(c.half(), c.half() < 1, n),
    "where": lambda c, k, n, p: torch.where(k > 0, k, n) + torch.where(k > 0, p, k) + k.where(k > 1, n),
    "where of types": lambda c, k, n, p: torch.where(k > 0, k.long(), n) * torch.where(k > 0, k.half(), n),
    "ends": lambda c, k, n, p: torch.linspace(0, n, 5) + torch.logspace(-1, n / 9, 5, base=2.0),
    "of a deque": lambda c, k, n, p: k + torch.tensor(deque([n, 2.0, p])),
    "of deques": lambda c, k, n, p: k.new_tensor([deque([n, 2.0, p]), (p, True, n)]).sum(0) + k,
    "put another type": lambda c, k, n, p: put(c, (slice(None), p), k.double() * n),
    "put another number": lambda c, k, n, p: put(c.long(), (slice(None), p), (k * 9).half()),
    "put two": lambda c, k, n, p: put(c, (p % 3, p), k[0]),
    "put one in each": lambda c, k, n, p: put(put(c, (p % 3, -1), n), (1, p), k[2]),
    "put in the first": lambda c, k, n, p: put(c, (slice(None, 2), slice(p, p + 2)), k[1:, None]),
    "put in the last": lambda c, k, n, p: put(c[None].clone(), (..., slice(-2, 9), p), k[1:]),
    "put in all of many": lambda c, k, n, p: put(c[:, None].clone(), (p % 3, slice(0, 99), slice(3)), k),
    "put between": lambda c, k, n, p: put(c.view(3, 3, 3).clone(), (p % 3, slice(None), -2), k),
    "put twice": lambda c, k, n, p: put(put(c, (slice(None), p), k), (slice(None), (p + 1) % 9), k * 2) * 2,
}
OTHERS = {
    "int32": lambda c, k, n, p: k * torch.tensor(n, dtype=torch.int32),
    "bool": lambda c, k, n, p: k * torch.tensor([n > 1, n]),
    "mixed": lambda c, k, n, p: k * torch.stack([torch.tensor(n), k.sum()])[0],
    "of tensors": lambda c, k, n, p: torch.tensor([n, k[0]]),
    "sizes": lambda c, k, n, p: torch.arange(p),
    "floats": lambda c, k, n, p: torch.arange(n, n + 3)[:2],
    "steps": lambda c, k, n, p: torch.arange(p, p + 6, 2),
    "read": lambda c, k, n, p: c[:, p] * n,
    "read a row": lambda c, k, n, p: c[p % 3].clone().add_(n),
    "read, then write": lambda c, k, n, p: overwritten(c, k, p),
    "written through": lambda c, k, n, p: through(c, k, p),
    "part": lambda c, k, n, p: c.narrow(1, p, 2) * 2,
    "negative, beside another": lambda c, k, n, p: put(c, (0, -1 - p), k[0]),
    "put in every second": lambda c, k, n, p: put(c, (slice(None, None, 2), p), k[:2]),
    "put beyond, beside another": lambda c, k, n, p: put(c, (0, p + 2), k[0]),
    "put in nothing": lambda c, k, n, p: put(c, (slice(2, 2), p), k[:0]),
    "negative": lambda c, k, n, p: put(c, (slice(None), -1 - p), k),
    "put itself": lambda c, k, n, p: put(c, (slice(None), p), c[:, 0]),
    "put in a view": lambda c, k, n, p: put(c.T, p, k),
    "put in one element": lambda c, k, n, p: put(k[:1].expand(9), p, k[1]),
    "put more": lambda c, k, n, p: put(c, (slice(None), slice(0, p)), k[:, None]),
    "put as many": lambda c, k, n, p: put(c, (slice(None), p), k[:2]),
    "put beyond": lambda c, k, n, p: put(c, (slice(None), p + 2), k),
    "put with steps": lambda c, k, n, p: put(c, (slice(None), slice(p, None, 9)), k[:, None]),
}


def put(tensor, key, new):
    tensor[key] = new
    return tensor


def overwritten(c, k, p):
    part = c[:, p]
    c.add_(1)
    return part * 2


def through(c, k, p):
    c[:, p].mul_(2)
    return c + 1


def run(program, values, device):
    graphed, replays = rote.graph(lambda *given: program(*given), keep=True), 0
    for number, (n, p) in enumerate(values):
        seen = []
        for each in (graphed, program):
            made = torch.Generator().manual_seed(number)
            c, k = torch.randn(3, 9, generator=made).to(device), torch.randn(3, generator=made).to(device)
            try:
                seen.append((bits(each(c, k, n, p)), bits(c), bits(k)))
            except (RuntimeError, ValueError, OverflowError, IndexError, TypeError) as error:
                seen.append(str(error))
        assert seen[0] == seen[1], (number, n, p)
        replays = graphed.report().replayed
    return replays


class Members(list):
    pass


class Asked:
    def __init__(self, members):
        self._members = members

    def __len__(self):
        return len(self._members)

    def __getitem__(self, index):
        return self._members[index]


class Appended(deque):
    def __init__(self, members):
        super().__init__()
        for each in members:
            self.append(each)


def grown(members):
    found = Members()
    for each in members:
        found.append(each)
    return found


SEQUENCES = {
    "list": list, "tuple": tuple, "deque": deque, "derived list": Members, "filled later": grown,
    "asked": Asked, "derived deque": Appended, "nested": lambda members: [Members(members), deque(members)],
    "within": lambda members: [[grown(members)], [Asked(members)]], "user list": UserList,
    "array": lambda members: array("d", members),
    "ordered": lambda members: [*OrderedDict(enumerate(members)).values()],
}  # fmt: skip
GIVEN = {
    "tensor": torch.tensor,
    "as tensor": torch.as_tensor,
    "as array": torch.asarray,
    "new": lambda members: torch.ones(3, dtype=torch.float64).new_tensor(members),
    "class": torch.Tensor,
    "class of a type": torch.DoubleTensor,
    "index": lambda members: torch.arange(9.0)[members],
    "stored": lambda members: put(torch.zeros(3, dtype=torch.float64), slice(None), members),
    "full": lambda members: torch.full((2,), members),
    "foreach": lambda members: torch._foreach_add([torch.ones(2)] * 3, members),
    "taken": lambda members: torch.arange(9.0).repeat(members),
    "permuted": lambda members: torch.zeros(2, 3, 4).sum(members),
    "quantiles": lambda members: torch.ones(9).quantile(torch.tensor(members).abs().clamp(max=1)),
}


SPECIAL = [1.0, 2.0, 0.0, -0.0, 0.5, -1.0, math.inf, -math.inf, math.nan, 1e308, 1e-310, 2**53 + 0.0]
WHOLE = [1, 2, 0, -1, 255, 256, 2**31 - 1, 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 7]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("form", SEQUENCES)
@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("whole", [False, True])
def test_sequences_of_them_are_looked_into(device, name, form, whole):
    """PyTorch reads the members of an object of whatever class by C, some of them by the user's methods."""

    def program(c, k, n, p):
        return GIVEN[name](SEQUENCES[form]([p, p + 1, 2] if whole else [n, n + p, 2.0]))

    run(program, [(0.3 + number * 0.25, number % 7) for number in range(12)], device)


@pytest.mark.parametrize("name", FOLLOWED)
def test_they_are_followed(device, name):
    assert run(FOLLOWED[name], [(0.3 + n * 0.25, n % 7) for n in range(24)], device) >= 10


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [*FOLLOWED, *OTHERS])
@pytest.mark.parametrize("special", [SPECIAL, WHOLE])
def test_special_values(device, name, special):
    program = (FOLLOWED | OTHERS)[name]
    run(program, [(n + special[0], n % 8) for n in range(8)] + [(n, 3) for n in special * 2], device)


@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    name=some.sampled_from([*FOLLOWED, *OTHERS]),
    values=some.lists(some.floats() | some.sampled_from(SPECIAL), min_size=6, max_size=12)
    | some.lists(some.integers(-(2**64), 2**64) | some.sampled_from(WHOLE), min_size=6, max_size=12),
    places=some.lists(some.integers(-4, 12), min_size=12, max_size=12),
)
def test_any_values(device, name, values, places):
    first = type(values[0])
    begin = [(first(n + 3), n % 7) for n in range(7)]
    run((FOLLOWED | OTHERS)[name], [*begin, *zip(values, places, strict=False)], device)


def test_a_decode_loop_with_a_position_of_pythons(device):
    def make():
        torch.manual_seed(0)
        keys, values = torch.zeros(2, 40, 4), torch.zeros(2, 40, 4)
        project = torch.nn.Linear(4, 12)

        @torch.no_grad()
        def decode(x, position):
            q, k, v = project(x).chunk(3, -1)
            keys[:, position], values[:, position] = k, v
            mask = torch.arange(40) <= position
            found = torch.nn.functional.scaled_dot_product_attention(
                q[:, None], keys, values, attn_mask=mask[None, None].expand(2, 1, 40), scale=0.5
            )
            return found[:, 0] + torch.tensor(position) / 40

        return decode, lambda: [keys, values]

    (graphed, state), (plain, other) = make(), make()
    graphed = rote.graph(graphed, keep=True)
    for round_number in range(3):
        for position in range(40):
            x = torch.randn(2, 4, generator=torch.Generator().manual_seed(position + round_number))
            assert bits(graphed(x, position)) == bits(plain(x, position)), position
            assert bits(state()) == bits(other()), position
    assert graphed.report().replayed >= 110


def test_between_which_whole_numbers_are_drawn(device):
    def drawn(n):
        whole = (
            torch.randint(n, (3,)),
            torch.randint(-n, high=n, size=(3,)),
            torch.randint_like(whole_like, n),
        )
        return *whole, torch.empty(3, dtype=torch.float64).random_(n, n + 5)

    whole_like, graphed = torch.zeros(3, dtype=torch.int64), rote.graph(drawn)
    for n in (*range(1, 40), 1 << 20, 1 << 40, 7):  # the kernel changes
        torch.manual_seed(n)
        found = graphed(n), torch.rand(2)
        torch.manual_seed(n)
        assert bits(found) == bits((drawn(n), torch.rand(2)))
    assert graphed.report().replayed > 20
