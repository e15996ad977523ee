"""A number that is read is followed where rote runs code for that read which the call runs as well."""

from __future__ import annotations

import string

import pytest
import torch

import rote
from rote.runtime.backends.cuda.session import CudaSession
from rote.runtime.backends.host.session import HostSession

CALLS = 20
_WRAPPER = "lambda real, shared: lambda session: (shared('a b'), real(session))[1]"


@pytest.fixture
def _shared(monkeypatch):
    """A segment that ends calls a function of the standard library that the callable calls."""
    wrapped = eval(compile(_WRAPPER, rote.__file__, "eval"))
    for session in (HostSession, CudaSession):
        monkeypatch.setattr(session, "end", wrapped(session.end, string.capwords))


def one(x, rate):
    return x * rate.item()


def several(x, rate):
    first, second = torch.stack([rate, rate + 1]).tolist()
    return x * first - second


def whole(x, rate):
    return x * float((rate * torch.ones(2, device=x.device)).cpu().numpy()[1])


@pytest.mark.usefixtures("_shared")
@pytest.mark.parametrize("read", [one, several, whole])
def test_the_number_is_followed(read, device):
    def make(rate):
        def call(x):
            x = x + len(string.capwords("as it is"))
            return read(x * 2, rate.add_(0.5))

        return call

    plain, graphed = (make(torch.tensor(1.0, device=device)) for _ in range(2))
    graphed = rote.graph(graphed, keep=True)
    for number in range(CALLS):
        x = torch.full((3,), number + 0.5, device=device)
        assert torch.equal(graphed(x), plain(x))
    assert graphed.report().replayed >= CALLS - 10, graphed.explain()
