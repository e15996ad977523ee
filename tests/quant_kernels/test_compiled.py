"""What the compiler makes of the kernels for Hopper, which it tells without a GPU."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed"),
]

PROGRAM = """
import json, sys
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from rote.quant.kernels.jit.gemm import product
from rote.quant.kernels.jit.transform import shared
from rote.quant.kernels.jit.turns import turn

def compiled(kernel, types, values, aligned, **options):
    names = kernel.arg_names
    known = types.keys() - values.keys()
    source = ASTSource(
        kernel,
        {name: types.get(name, "constexpr") for name in names},
        constexprs={(i,): values.get(name) for i, name in enumerate(names) if name not in known},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in aligned},
    )
    made = compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    return made.metadata.shared, made.asm["ptx"], made.asm["ttgir"]

def of_product(bm, bn, warps, turn=0, tma=0, split=0):
    types = dict(
        x="*i8", rest="*i8", x_scale="*fp32", x_zero="*i32", x_sum="*i32", weight="*i8", w_scale="*fp32",
        w_zero="*i8", w_sum="*i32", turn="*bf16", bias="*bf16", out="*bf16", work="*i32", M="i32", N="i32",
        K="i32", FEATURES="i32",
    )
    if tma:
        types |= dict(rest="constexpr", x=f"tensordesc<i8[{bm}, 128]>", weight=f"tensordesc<i8[{bn}, 64]>")
    values = dict(
        BITS=4, FLOAT=False, X_SCALE=True, X_ZERO=True, W_ZERO=True, BIAS=False, RAW=False, TURN=turn,
        EVEN_K=True, BM=bm, BN=bn, UNROLL=1, SPLIT=bool(split), STAGES=4, ASM=True, PDL=-1 if turn else 0,
        TMA=bool(tma), TAIL=0,
    )
    aligned = [name for name, kind in types.items() if name != "M" and "tensor" not in kind]
    return compiled(product, types, values, aligned, num_warps=warps, num_stages=4)

def of_transform(width, kind, warps):
    types = dict(
        x="*" + kind, r1="*" + kind, order="*i32", r2="*" + kind, q="*i8", scale="*fp32", zero="*i32",
        total="*i32", work="*i32", M="i32", COUNT="i32", WIDTH="i32", K="i32", clip="fp32",
    )
    whole = kind != "bf16"
    values = dict(
        SMOOTH=False, R1=True, ORDER=True, R2=True, B=128,
        NB=width // 128, T=1, MODE=2, LOW=-128, HIGH=127, SPLIT_X=whole, SPLIT_R=whole, EXACT=False,
        WAIT=True, PDL=True, ZERO=True, ORIGIN=False, FULL=True,
    )
    aligned = [name for name in types if name != "clip"]
    return compiled(shared, types, values, aligned, num_warps=warps, num_stages=1)

def of_turn(members):
    types = dict(x="*bf16", out="*i8", work="*i32", M="i32", COUNT="i32", WIDTH="i32", K="i32")
    for i in range(members):
        types |= {f"order_{i}": "*i32", f"matrices_{i}": "*bf16", f"divisor_{i}": "*fp32"}
    values = dict(
        MEMBERS=members, ORDER=True, CLEAR=True, B=16, BM=32, LOW=-128, HIGH=127, PDL=True,
    )
    return compiled(turn, types, values, (), num_warps=4)

kinds = dict(product=of_product, transform=of_transform, turn=of_turn)
calls = [(each, each.split()) for each in sys.argv[1:]]
words = lambda rest: [int(word) if word.isdigit() else word for word in rest]
json.dump({each: kinds[kind](*words(rest)) for each, (kind, *rest) in calls}, sys.stdout)
"""

FEW, MANY, SINGLE, SPLIT = "product 16 64 4", "product 128 128 8", "product 8 64 4", "product 32 64 4 0 0 1"
THREADS, DESCRIBED, TURNED = "product 64 128 4", "product 64 128 4 0 1", "product 32 64 4 16"
WIDE = ("transform 32768 bf16 16", "transform 32768 fp32 16", "transform 16384 bf16 8")
NARROW, TURNS = "transform 2048 bf16 4", ("turn 1", "turn 3")
EVERY = (FEW, MANY, SINGLE, SPLIT, THREADS, DESCRIBED, TURNED, *WIDE, NARROW, *TURNS)


class Compiled(NamedTuple):
    """What the compiler says of a kernel."""

    shared: int
    ptx: str
    ttgir: str


@functools.cache
def compiled() -> dict[str, Compiled]:
    """Every kernel, compiled in one process, which does not interpret any."""
    source = str(Path(__file__).resolve().parents[2] / "src")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *EVERY], env=environment, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stderr
    return {name: Compiled(*values) for name, values in json.loads(done.stdout).items()}


def test_integers_go_to_tensor_cores_from_registers():
    few, many, single = (compiled()[size].ptx for size in (FEW, MANY, SINGLE))
    for text, instruction in ((few, "m64n16k32"), (many, "m64n128k32")):
        lines = text.splitlines()
        found = [number for number, line in enumerate(lines) if f"{instruction}.s32.s8.s8" in line]
        assert found, f"no {instruction} on int8"
        operands = lines[found[0]].split("},", 1)[1]
        assert operands.lstrip().startswith("{"), "the unpacked weight goes through shared memory"
    assert "mma.sync.aligned.m16n8k32.row.col" in single


def test_unpacking_needs_no_shuffles_of_bytes():
    text = compiled()[FEW].ptx
    assert text.count("0xF0F0F0F0") >= 2
    assert text.count("prmt") <= 8


def test_tiles_come_by_the_memory_accelerator():
    threads, described = compiled()[THREADS].ptx, compiled()[DESCRIBED].ptx
    assert "cp.async.cg.shared" in threads and "cp.async.bulk.tensor" not in threads
    assert "cp.async.cg.shared" not in described and described.count("cp.async.bulk.tensor.2d") >= 2
    loop = described[described.index("wgmma") :]
    assert loop.count("wgmma.wait_group") == 1, "more than one wait for a step"


def test_rows_are_rotated_back_and_weights_are_asked_for_early():
    """Also compiles what the interpreter leaves out: the wait for the launch before, and what goes ahead."""
    early, late = compiled()[TURNED].ptx.split("griddepcontrol.wait", 1)
    assert "cp.async.bulk.prefetch.L2" in early and "ld.global" in early
    assert "wgmma" in late and late.count("fma.rn.f32") >= 64


def test_short_transforms_read_after_their_predecessor_and_launch_behind_their_codes():
    for size in TURNS:
        before, after = compiled()[size].ptx.split("griddepcontrol.wait", 1)
        assert "ld.global" not in before and "st.global" not in before
        codes, zeros = after.split("griddepcontrol.launch_dependents", 1)
        assert "ld.global" in codes and "ld.global" not in zeros
        assert "st.global" in codes and "st.global" in zeros


def test_the_widest_rows_fit_in_shared_memory():
    for size in WIDE:
        assert compiled()[size].shared <= 227 << 10


def test_transforms_read_and_write_after_their_predecessor_and_let_others_start_then():
    before, after = compiled()[NARROW].ptx.split("griddepcontrol.wait", 1)
    assert "ld.global" not in before and "st.global" not in before
    started = after.index("griddepcontrol.launch_dependents")
    assert "ld.global" not in after[:started] and "ld.global" in after[started:]


def test_neighbouring_sums_are_added_by_neighbouring_threads():
    text = compiled()[SPLIT].ttgir
    (addition,) = (line for line in text.splitlines() if "tt.atomic_rmw add, relaxed" in line)
    layout = addition.split("#", 1)[1].split(">", 1)[0]
    (wanted,) = (line for line in text.splitlines() if line.startswith(f"#{layout} = "))
    assert "sizePerThread = [1, 1], threadsPerWarp = [32, 1]" in wanted
