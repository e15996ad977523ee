"""To which pointers kernels store, by what Triton makes of them; and texts of which nothing is known."""

from __future__ import annotations

from typing import Any

import pytest

from rote.runtime.operators.stores import Stores, stores

compiler = pytest.importorskip("triton.compiler")

from . import storing  # noqa: E402


def code_of(kernel: Any, **sizes: int) -> str:
    """A kernel in Triton's dialect, for one kind of GPU, which need not be there."""
    if not hasattr(kernel, "device_caches"):
        pytest.skip("kernels are interpreted in this process")
    signature = {name: storing.TYPES.get(name, "constexpr") for name in kernel.arg_names}
    source = compiler.ASTSource(kernel, signature, constexprs=sizes)
    return compiler.compile(source, target=storing.TARGET).asm["ttir"]


@pytest.mark.parametrize(
    ("name", "sizes", "stored"),
    [
        ("one_of_three", {"size": 16}, {2}),
        ("product", {"size": 16}, {2}),
        ("one_or_the_other", {"size": 16}, {0, 1}),
        ("turns", {}, {0, 1}),
        ("last_of_a_loop", {"size": 16}, {1}),
        ("added_to", {"size": 16}, {1}),
        ("swapped_where_equal", {"size": 16}, {1}),
        ("none", {"size": 16}, set()),
    ],
)
def test_what_kernels_store(name, sizes, stored):
    found = stores(code_of(getattr(storing, name), **sizes))
    assert found is not None
    assert found.stored == stored


@pytest.mark.parametrize("name", ["numbers_as_pointers", "table_of_pointers", "calls", "assembly"])
def test_of_these_nothing_is_known(name):
    assert stores(code_of(getattr(storing, name), size=16)) is None


FUNCTION = (
    "tt.func public @kernel(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>, %n: i32) attributes {noinline = false} {"
)


@pytest.mark.parametrize(
    "line",
    [
        "  %0 = tt.new_operation %x : !tt.ptr<f32> -> !tt.ptr<f32>",
        "  cf.br ^bb1(%x : !tt.ptr<f32>)",
        "  tt.descriptor_store %d[%n], %v : !tt.tensordesc<tensor<16xf32>>, tensor<16xf32>",
        "  tt.store %unknown, %v : !tt.ptr<f32>",
    ],
)
def test_lines_that_say_too_little(line):
    assert stores(f"module {{\n{FUNCTION}\n{line}\n}}\n}}") is None


def test_no_function_and_two():
    assert stores("module {\n}") is None
    assert stores(f"{FUNCTION}\n}}\n{FUNCTION}\n}}") is None
    assert stores(f"{FUNCTION}\n  tt.return\n}}") == Stores(2, frozenset())
