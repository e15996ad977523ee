"""Sizes as people write them."""

from __future__ import annotations

import pytest

from rote.base.errors import OptionError
from rote.runtime.memory.budget import format_size, parse_size


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        (None, None), (7, 7), ("7", 7), ("7B", 7), ("2GiB", 2 << 30), ("2 gib", 2 << 30), ("0.5 KiB", 512),
        ("500 MB", 500_000_000), ("1.5kB", 1500), ("3TiB", 3 << 40),
    ],
)  # fmt: skip
def test_what_is_a_size(text, nbytes):
    assert parse_size(text, "budget") == nbytes


@pytest.mark.parametrize("wrong", ["2 XiB", "-3", "1e9", "0", "0.1B", 0, -2, 2.0, True, ("1",)])
def test_what_is_none(wrong):
    with pytest.raises(OptionError, match=r"^budget=.* a string like '2GiB' or '500 MB'$"):
        parse_size(wrong, "budget")


def test_how_sizes_read():
    written = [format_size(n) for n in (0, 1023, 1024, 1536, 5 << 20, 3 << 30, 2 << 50)]
    assert written == ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "5.0 MiB", "3.0 GiB", "2048.0 TiB"]
