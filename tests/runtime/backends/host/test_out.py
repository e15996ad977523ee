"""What is written straight into memory is, to the bit, what the operation returns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from rote.runtime.backends.host.operations import writer_of
from rote.runtime.operators.facts import rows_with

aten = torch.ops.aten
INTO = {f"aten::{name.removesuffix('.default')}": into for name, into in rows_with("into")}
DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.complex64)


def samples(dtype: torch.dtype) -> Iterator[Tensor]:
    """Matrices of 6 x 6 in every way to lie, and one without elements."""
    x = (torch.randn(12, 12) * 3).to(dtype)
    yield from (x[:6, :6].contiguous(), x[:6, :6].t(), x[::2, ::2], x[:1, :6].expand(6, 6), x[:0, :0])
    if dtype.is_complex:
        yield x[:6, :6].conj()


def operands(name: str, x: Tensor) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Ways to call an operation."""
    wide = torch.complex128 if x.is_complex() else torch.float64
    match name:
        case "aten::add.Tensor" | "aten::sub.Tensor":
            yield from [((x, x.flip(0)), {"alpha": 2}), ((x, 3), {}), ((x, x.to(wide)), {}), ((2.5, x), {})]
        case "aten::mul.Tensor" | "aten::div.Tensor":
            yield from [((x, x.flip(0)), {}), ((x, 3), {}), ((x, x.to(wide)), {}), ((2.5, x), {})]
        case "aten::mm":
            yield (x, x.flip(0)), {}
        case "aten::bmm":
            yield (x[None], x[None].flip(1)), {}
        case "aten::addmm":
            yield from [((x[:1], x, x), {}), ((x, x, x), {"beta": 2, "alpha": 3})]
        case "aten::cat":
            yield from [(([x, x.to(wide)], 1), {}), (([x, x[:0]],), {})]
        case "aten::mean.dim" | "aten::sum.dim_IntList":
            yield from [((x, [1], True), {}), ((x, None), {}), ((x, [0, 1]), {"dtype": wide})]
        case "aten::pow.Tensor_Scalar":
            yield from [((x, 2), {}), ((x, 1.5), {})]
        case _:
            yield (x,), {}


def overload(name: str) -> Any:
    packet, _, which = name.removeprefix("aten::").partition(".")
    return getattr(getattr(aten, packet), which or "default")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", INTO)
def test_same_bits_in_the_same_place(name: str, dtype: torch.dtype) -> None:
    op = overload(name)
    writer = writer_of(op)
    assert writer is not None
    done = 0
    for x in samples(dtype):
        for args, kwargs in operands(name, x):
            try:
                wanted = op(*args, **kwargs)
            except RuntimeError:  # not for this type
                continue
            memory = torch.full((wanted.untyped_storage().nbytes() + 128,), 0x55, dtype=torch.uint8)
            out = torch.empty(0, dtype=wanted.dtype)
            start = 64 // wanted.dtype.itemsize
            out.set_(memory.untyped_storage(), start, wanted.size(), wanted.stride())
            writer(*args, **kwargs, out=out)
            assert (out.storage_offset(), out.size(), out.stride()) == (start, wanted.size(), wanted.stride())
            assert torch.equal(bits(out), bits(wanted)), (args, kwargs)
            end = 64 + wanted.untyped_storage().nbytes()
            assert memory[:64].eq(0x55).all() and memory[end:].eq(0x55).all()
            done += 1
    assert done or not dtype.is_floating_point


def bits(x: Tensor) -> Tensor:
    return x.resolve_conj().contiguous().view(-1).view(torch.uint8)


@pytest.mark.parametrize("name", INTO)
def test_the_overload_that_is_asked_about_exists(name: str) -> None:
    assert torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{INTO[name]}", "CPU")


@pytest.mark.parametrize("op", [aten.mse_loss.default, aten.add_.Tensor, aten.where.self], ids=str)
def test_others_are_called_and_copied(op: Any) -> None:
    assert writer_of(op) is None


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
@pytest.mark.parametrize("name", ["mul.Tensor", "mul.out"])
def test_a_kernel_that_was_replaced_is_called(record: Any, name: str) -> None:
    library = torch.library.Library("aten", "IMPL")

    def replaced(x: Tensor, y: Tensor, out: Tensor | None = None) -> Tensor:
        return torch.sub(x, y, out=out)

    try:
        library.impl(name, replaced, "CPU")
        assert writer_of(aten.mul.Tensor) is None
        x, y = torch.randn(3), torch.randn(3)
        recording = record(torch.mul, x, y)
        x.normal_()
        assert torch.equal(recording.replay(), torch.mul(x, y))
    finally:
        library._destroy()
    assert writer_of(aten.mul.Tensor) is not None
