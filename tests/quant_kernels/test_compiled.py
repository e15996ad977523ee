"""What the compiler makes of the kernels for Hopper, which it tells without a GPU."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed"),
]

PROBE = """
import json, sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from rote.quant.kernels import jit_gemm

def compiled(bm, bn, warps, turn=0, tma=0, split=0):
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
    names = jit_gemm.product.arg_names
    source = ASTSource(
        jit_gemm.product,
        {name: types.get(name, "constexpr") for name in names},
        constexprs={(names.index(name),): value for name, value in values.items()},
        attrs={
            (names.index(name),): [["tt.divisibility", 16]]
            for name, kind in types.items() if name != "M" and "tensor" not in kind
        },
    )
    options = dict(num_warps=warps, num_stages=4)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm

every = [compiled(*map(int, size.split("x"))) for size in sys.argv[1:]]
json.dump([(asm["ptx"], asm["ttgir"]) for asm in every], sys.stdout)
"""


TRANSFORM = """
import json, sys
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from rote.quant.kernels import jit_transform

def compiled(width, kind, warps):
    types = dict(
        x="*" + kind, r1="*" + kind, order="*i32", r2="*" + kind, q="*i8", scale="*fp32", zero="*i32",
        total="*i32", work="*i32", M="i32", COUNT="i32", WIDTH="i32", K="i32", clip="fp32",
    )
    whole = kind != "bf16"
    values = dict(
        smooth=None, static_scale=None, static_zero=None, SMOOTH=False, R1=True, ORDER=True, R2=True, B=128,
        NB=width // 128, T=1, MODE=2, LOW=-128, HIGH=127, SPLIT_X=whole, SPLIT_R=whole, EXACT=False,
        WAIT=True, PDL=True, ZERO=True, ORIGIN=False, FULL=True,
    )
    names = jit_transform.shared.arg_names
    source = ASTSource(
        jit_transform.shared,
        {name: types.get(name, "constexpr") for name in names},
        constexprs={(names.index(name),): value for name, value in values.items()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in types if name != "clip"},
    )
    options = dict(num_warps=warps, num_stages=1)
    made = compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    return made.metadata.shared, made.asm["ptx"]

sizes = [size.split("x") for size in sys.argv[1:]]
json.dump([compiled(int(width), kind, int(warps)) for width, kind, warps in sizes], sys.stdout)
"""


TURN = """
import json, sys
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from rote.quant.kernels.jit_turns import turn

def compiled(members):
    types = dict(x="*bf16", out="*i8", work="*i32", M="i32", COUNT="i32", WIDTH="i32", K="i32")
    for i in range(members):
        types |= {f"order_{i}": "*i32", f"matrices_{i}": "*bf16", f"divisor_{i}": "*fp32"}
    values = dict(
        MEMBERS=members, ORDER=True, CLEAR=True, B=16, BM=32, LOW=-128, HIGH=127, PDL=True,
    )
    names = turn.arg_names
    source = ASTSource(
        turn,
        {name: types.get(name, "constexpr") for name in names},
        constexprs={(i,): values.get(name) for i, name in enumerate(names) if name not in types},
    )
    return compile(source, target=GPUTarget("cuda", 90, 32), options=dict(num_warps=4)).asm["ptx"]

json.dump([compiled(int(members)) for members in sys.argv[1:]], sys.stdout)
"""


def assembly(*sizes: str) -> list[str]:
    """PTX of the product with tiles of some sizes."""
    return [ptx for ptx, _ in probed(PROBE, *sizes)]


def probed(program: str, *sizes: str) -> list[Any]:
    """What a program says of sizes, in a process that does not interpret kernels."""
    source = str(Path(__file__).resolve().parents[2] / "src")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", program, *sizes], env=environment, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_integers_go_to_tensor_cores_from_registers():
    few, many, single = assembly("16x64x4", "128x128x8", "8x64x4")
    for text, instruction in ((few, "m64n16k32"), (many, "m64n128k32")):
        lines = text.splitlines()
        found = [number for number, line in enumerate(lines) if f"{instruction}.s32.s8.s8" in line]
        assert found, f"no {instruction} on int8"
        operands = lines[found[0]].split("},", 1)[1]
        assert operands.lstrip().startswith("{"), "the unpacked weight goes through shared memory"
    assert "mma.sync.aligned.m16n8k32.row.col" in single


def test_unpacking_needs_no_shuffles_of_bytes():
    (text,) = assembly("16x64x4")
    assert text.count("0xF0F0F0F0") >= 2
    assert text.count("prmt") <= 8


def test_tiles_come_by_the_memory_accelerator():
    threads, described = assembly("64x128x4", "64x128x4x0x1")
    assert "cp.async.cg.shared" in threads and "cp.async.bulk.tensor" not in threads
    assert "cp.async.cg.shared" not in described and described.count("cp.async.bulk.tensor.2d") >= 2
    loop = described[described.index("wgmma") :]
    assert loop.count("wgmma.wait_group") == 1, "more than one wait for a step"


def test_rows_are_rotated_back_and_weights_are_asked_for_early():
    """Also compiles what the interpreter leaves out: the wait for the launch before, and what goes ahead."""
    (text,) = assembly("32x64x4x16")
    early, late = text.split("griddepcontrol.wait", 1)
    assert "cp.async.bulk.prefetch.L2" in early and "ld.global" in early
    assert "wgmma" in late and late.count("fma.rn.f32") >= 64


def test_short_transforms_read_after_their_predecessor_and_launch_behind_their_codes():
    for text in probed(TURN, "1", "3"):
        before, after = text.split("griddepcontrol.wait", 1)
        assert "ld.global" not in before and "st.global" not in before
        codes, zeros = after.split("griddepcontrol.launch_dependents", 1)
        assert "ld.global" in codes and "ld.global" not in zeros
        assert "st.global" in codes and "st.global" in zeros


def test_the_widest_rows_fit_in_shared_memory():
    for shared, _ in probed(TRANSFORM, "32768xbf16x16", "32768xfp32x16", "16384xbf16x8"):
        assert shared <= 227 << 10


def test_transforms_read_and_write_after_their_predecessor_and_let_others_start_then():
    ((_, text),) = probed(TRANSFORM, "2048xbf16x4")
    before, after = text.split("griddepcontrol.wait", 1)
    assert "ld.global" not in before and "st.global" not in before
    started = after.index("griddepcontrol.launch_dependents")
    assert "ld.global" not in after[:started] and "ld.global" in after[started:]


def test_neighbouring_sums_are_added_by_neighbouring_threads():
    ((_, text),) = probed(PROBE, "32x64x4x0x0x1")
    (addition,) = (line for line in text.splitlines() if "tt.atomic_rmw add, relaxed" in line)
    layout = addition.split("#", 1)[1].split(">", 1)[0]
    (wanted,) = (line for line in text.splitlines() if line.startswith(f"#{layout} = "))
    assert "sizePerThread = [1, 1], threadsPerWarp = [32, 1]" in wanted
