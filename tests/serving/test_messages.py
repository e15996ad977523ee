"""Messages: what goes in comes out, and what should not come in does not, whatever it announces."""

from __future__ import annotations

import pickle
import struct
import tracemalloc
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rote import MisuseError
from rote.serving import WireLimits, decode, encode

msgpack = pytest.importorskip("msgpack", reason="serving needs msgpack: pip install 'rote[serve]'")
clients = pytest.importorskip("tests.serving.clients", reason="serving needs websockets")

LIMITS = WireLimits()
SMALL = WireLimits(message_bytes=1 << 16, array_bytes=1 << 14, values=200, depth=8)

TYPES = ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "<U3", "S3"]
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
ARRAYS = st.sampled_from(TYPES).flatmap(lambda kind: hnp.arrays(np.dtype(kind), SHAPES))
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(),
    st.text(max_size=5), st.binary(max_size=5),
)  # fmt: skip
VALUES = st.recursive(
    st.one_of(SCALARS, ARRAYS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


def same(left: Any, right: Any) -> bool:
    if isinstance(right, np.ndarray):
        there = isinstance(left, np.ndarray) and left.dtype == right.dtype and left.shape == right.shape
        return there and left.tobytes() == right.tobytes()
    if isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in right)
    if isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and (left == right or (left != left and right != right))


# --- There and back --------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(VALUES)
def test_a_value_comes_back(value: Any) -> None:
    assert same(decode(encode(value), LIMITS), value)


@settings(max_examples=60)
@given(VALUES)
def test_both_ends_speak_the_same(value: Any) -> None:
    """The test's client is written after openpi's, and knows nothing of rote's."""
    assert same(clients.unpack(encode(value)), value)
    assert same(decode(clients.pack(value), LIMITS), value)


@settings(max_examples=60)
@given(hnp.arrays(np.dtype(">f4"), SHAPES), st.sampled_from([np.float16, np.uint8, np.bool_, np.int64]))
def test_arrays_have_the_order_of_this_machine_and_can_be_written(array: Any, kind: Any) -> None:
    found = decode(clients.pack([array, kind(1)]), LIMITS)
    assert found[0].dtype == np.float32 and found[0].flags.writeable
    assert np.array_equal(found[0], array, equal_nan=True)
    assert type(found[1]) is kind and found[1] == 1


def test_tensors_are_written_as_arrays() -> None:
    x = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    found = decode(encode({"a": x.t(), "b": (x > 2, [x.to(torch.int64)])}), LIMITS)
    assert same(found, {"a": x.t().numpy(), "b": [(x > 2).numpy(), [x.to(torch.int64).numpy()]]})
    assert same(decode(encode(x.requires_grad_()), LIMITS), x.detach().numpy())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [np.array([None])]}, r"result\['a'\]\[0\] has the type object"),
        ({"a": np.zeros(2, "c8")}, r"result\['a'\] has the type complex64"),
        ({"a": np.zeros(2, "i4,f4")}, r"result\['a'\] has the type \[\('f0'"),
        ({"a": np.datetime64("2020-01-01")}, r"result\['a'\] has the type datetime64\[D\]"),
        ({"a": torch.zeros(2, dtype=torch.bfloat16)}, r"result\['a'\] is a tensor of torch.bfloat16 .*float"),
        ({"a": torch.eye(2).to_sparse()}, r"result\['a'\] is a tensor of torch.float32 \(torch.sparse_coo\)"),
        ({1: 2}, "result has the key 1; a message has texts and bytes as keys"),
        ({"a": object()}, r"result\['a'\] is a object, which a message cannot hold"),
        ({"a": 2**64}, "result has an integer of more than 64 bits"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_named(value: Any, text: str) -> None:
    with pytest.raises(MisuseError, match=text):
        encode(value)


def test_what_contains_itself_cannot_be_written() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(MisuseError, match="lies deeper than 32 in lists and dicts"):
        encode(endless)


# --- What is refused -------------------------------------------------------------------------------------


def array(**changes: Any) -> dict[bytes, Any]:
    fields = {b"__ndarray__": True, b"data": bytes(8), b"dtype": "<f4", b"shape": [2]}
    return {**fields, **{name.encode(): value for name, value in changes.items()}}


def generic(data: Any, dtype: Any) -> dict[bytes, Any]:
    return {b"__npgeneric__": True, b"data": data, b"dtype": dtype}


OBJECTS = np.array([print, {"a": 1}], dtype=object)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (array(dtype="|O"), r"arrays of type '\|O' are not accepted"),
        (array(dtype="O", data=pickle.dumps(OBJECTS)), "arrays of type 'O' are not accepted"),
        (array(dtype="|V8"), r"arrays of type '\|V8' are not accepted"),
        (array(dtype="i4,f4"), "arrays of type 'i4,f4' are not accepted"),
        (array(dtype=[["a", "<f4"], ["b", "<f4"]]), "the type of an array is to be a text, and is a list"),
        (array(dtype="<c8"), "arrays of type '<c8' are not accepted"),
        (array(dtype="<M8[ns]"), r"arrays of type '<M8\[ns\]' are not accepted"),
        (array(dtype="<f16"), "arrays of type '<f16' are not accepted"),
        (array(dtype="float32"), "arrays of type 'float32' are not accepted"),
        (array(dtype="<f4\n"), r"arrays of type '<f4\\n' are not accepted"),
        (array(dtype="<U0"), "arrays of type '<U0' are not accepted"),
        (array(dtype="(1000000,1000000)f4"), "are not accepted"),
        (array(dtype="x" * 1000), "arrays of type 'x+[.]{3}' are not accepted"),
        (array(shape=[3]), r"an array <f4\[3\] has 12 bytes, and 8 came"),
        (array(shape=[2**40]), "an array has a shape of more than 16,777,216 bytes"),
        (array(shape=[0, 2**40], data=b""), "an array has a shape of more than 16,777,216 bytes"),
        (array(shape=[-2]), "the shape of an array is to be a list of sizes"),
        (array(shape=[True, 2]), "the shape of an array is to be a list of sizes"),
        (array(shape=[2.0]), "the shape of an array is to be a list of sizes"),
        (array(shape=2), "the shape of an array is to be a list of sizes"),
        (array(shape=[1] * 40), "an array has 40 dimensions, and 32 are the limit"),
        (array(data="12345678"), "the data of an array is to be bytes, and is a str"),
        (array(more=1), "is to have __ndarray__: true, data, dtype, shape and nothing else"),
        (array(__ndarray__=1), "is to have __ndarray__: true"),
        ({b"__ndarray__": True}, "is to have __ndarray__: true"),
        (array(dtype="|b1", data=b"\x02\0", shape=[2]), "booleans has bytes that are neither 0 nor 1"),
        (array(dtype="<U2", data=b"\xff" * 8, shape=[1]), "an array of texts has letters that are none"),
        (generic(300, "|u1"), r"300 is no value of type \|u1"),
        (generic(10**9, "|S4"), r"a value of type \|S4 cannot be made of a int"),
        (generic([1], "<f4"), "a value of type <f4 cannot be made of a list"),
        (generic(b"", "|O"), r"arrays of type '\|O' are not accepted"),
        (generic(pickle.dumps(print), "|V9"), r"arrays of type '\|V9' are not accepted"),
        ({1: 2}, "a key of a map is neither a text nor bytes"),
        (msgpack.ExtType(5, b"x"), "extension types of msgpack are not accepted"),
        (msgpack.Timestamp(1), "extension types of msgpack are not accepted"),
    ],
)  # fmt: skip
def test_what_is_not_accepted(value: Any, text: str) -> None:
    with pytest.raises(MisuseError, match=text):
        decode(msgpack.packb(value), LIMITS)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (b"", "a message ends in the middle"),
        (b"\xc1", "a message is no msgpack: FormatError"),
        (b"\x01\x02", "1 bytes follow behind the value of a message"),
        (b"\xdd\xff\xff\xff\xff", "a message ends in the middle"),
        (b"\xdf\xff\xff\xff\xff\xa1a\x01", "a message ends in the middle"),
        (b"\xdc\x00", "a message is no msgpack"),
        (b"\xc6\xff\xff\xff\xff", "a message is no msgpack"),
        (b"\xdb\x7f\xff\xff\xff", "a message is no msgpack"),
        (b"\xa1\xff", "a message is no msgpack: 'utf-8' codec can't decode"),
        (b"\x81\x90\x01", "a key of a map is neither a text nor bytes"),
        (b"\x82\xa1a\x01\xa1a\x02", "a key of a map comes twice"),
        (b"\x91" * 9 + b"\x01", "lists and maps lie deeper than 8 in each other"),
        (b"\x91" * 60_000, "lists and maps lie deeper than 8 in each other"),
        (b"\xdc\x03\xe8" + b"\xc0" * 1000, "a message has more than 200 values"),
        (b"\x9f" + (b"\x9f" + b"\x80" * 15) * 15, "a message has more than 200 values"),
        (bytes(1 << 17), "a message has 131,072 bytes, and 65,536 are the limit"),
    ],
    ids=range(16),
)
def test_headers_that_lie(message: bytes, text: str) -> None:
    with pytest.raises(MisuseError, match=text):
        decode(message, SMALL)


def test_an_array_may_be_as_large_as_the_limit_and_no_larger() -> None:
    decode(encode(np.zeros(1 << 14, np.uint8)), SMALL)
    with pytest.raises(MisuseError, match="an array has 16,385 bytes, and 16,384 are the limit"):
        decode(encode(np.zeros((1 << 14) + 1, np.uint8)), SMALL)


# --- Whatever comes --------------------------------------------------------------------------------------

HEADERS = st.sampled_from(
    [bytes([kind]) + more for kind in range(0x80, 0xE0) for more in (b"", b"\xff" * 4)]
)  # fmt: skip
LIES = st.lists(st.one_of(HEADERS, st.binary(max_size=6), VALUES.map(encode)), max_size=20).map(b"".join)
SHAPE_LIES = st.builds(
    lambda sizes, kind, data: clients.pack(array(shape=sizes, dtype=kind, data=data)),
    st.lists(st.one_of(st.integers(0, 3), st.integers(0, 2**63)), max_size=4),
    st.one_of(st.sampled_from(TYPES), st.text(max_size=6)),
    st.binary(max_size=64),
)


@given(st.one_of(st.binary(max_size=200), LIES, SHAPE_LIES))
@example(b"\xdd" + struct.pack(">I", 60_000) + b"\x80" * 60_000)
@example(b"\x81\xa1a" * 20_000)
def test_nothing_crashes_or_allocates_more_than_the_limits_say(message: bytes) -> None:
    tracemalloc.start()
    try:
        decode(message, SMALL)
    except MisuseError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 3 * len(message) + 1000 * SMALL.values


@settings(max_examples=60)
@given(VALUES, st.data())
def test_a_message_that_is_cut_off_is_refused(value: Any, data: st.DataObject) -> None:
    message = encode({"v": value})
    cut = data.draw(st.integers(0, len(message) - 1))
    with pytest.raises(MisuseError):
        decode(message[:cut], LIMITS)


@settings(max_examples=60)
@given(VALUES, st.data())
def test_a_message_with_a_wrong_byte_is_refused_or_read(value: Any, data: st.DataObject) -> None:
    message = bytearray(encode({"v": value}))
    message[data.draw(st.integers(0, len(message) - 1))] ^= data.draw(st.integers(1, 255))
    with suppress(MisuseError):
        decode(bytes(message), LIMITS)
