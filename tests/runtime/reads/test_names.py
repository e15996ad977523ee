"""The names that handlers go by are those of something."""

from __future__ import annotations

import _io
import builtins
import codecs
import inspect
import logging
import pkgutil
import sys
import types

import numpy
import pytest
import torch

from rote.runtime.reads.table import NAMES, names, table

OWNERS = {
    "identifying": torch.Tensor, "counting": torch.Tensor, "namespace": type, "arrays": numpy.ndarray,
    "nodes": torch.autograd.function.BackwardCFunction, "frames": types.FrameType, "storages": torch.UntypedStorage,
    "states": torch.Generator, "shared_states": torch.Generator, "writing_methods": _io.TextIOWrapper,
    "harmless_methods": _io.TextIOWrapper, "hand_out": builtins, "iterate": builtins,
}  # fmt: skip
"""What has the names of a row as attributes."""
OF_OTHER_VERSIONS = {
    "names",
    "__array_interface__",
    "__cuda_array_interface__",
    "_python_dispatch",
    "__type_params__",
    "needs_input_grad",
}
OF_LIBRARIES = {"libraries", "writing_functions", "times", "cython"}
"""Rows about libraries that need not be there."""
OF_CLASSES = {"classes", "parts", "parameters"}
"""Names that classes may have or not."""
TYPES = {"plain_types", "fixed_types", "types_by_content"}
SINCE = {"fixed_types_since_3_12"} if sys.version_info >= (3, 12) else set()


def test_every_row_is_looked_at_here():
    others = {
        "codecs",
        "said_of_output",
        "harmless",
        "keeping",
        "seeding",
        "shallow",
        "modules_of_modes",
        "renewing",
        "left_out",
        "fixed_types_since_3_12",
    }
    assert set(NAMES) == OWNERS.keys() | OF_LIBRARIES | OF_CLASSES | TYPES | others


@pytest.mark.parametrize("row", OWNERS)
def test_attributes_are_there(row):
    absent = object()
    missing = {name for name in NAMES[row] if inspect.getattr_static(OWNERS[row], name, absent) is absent}
    assert missing <= OF_OTHER_VERSIONS


@pytest.mark.parametrize("row", sorted(TYPES | SINCE))
def test_types_are_types(row):
    assert all([inspect.isclass(each) for each in names.types_in(row)])


def test_codecs_are_known():
    for name in NAMES["codecs"]:
        try:
            codecs.lookup(name)
        except LookupError:
            codecs.lookup_error(name)


def test_callables_and_rows_are_in_the_table():
    assert NAMES["said_of_output"] <= set(table.REFUSED)
    for name in NAMES["harmless"] | NAMES["keeping"] | NAMES["seeding"]:
        assert callable(pkgutil.resolve_name(name.removesuffix("()")))


def test_modules_are_there():
    assert all([inspect.ismodule(pkgutil.resolve_name(name)) for name in NAMES["modules_of_modes"]])
    assert all(
        [inspect.ismodule(pkgutil.resolve_name(name.rpartition(".")[0])) for name in NAMES["left_out"]]
    )


def test_the_standard_library_has_what_it_writes_by():
    assert {name for name in NAMES["writing_functions"] if hasattr(logging.Logger, name)} >= {
        "debug",
        "warning",
        "log",
    }
    assert vars(logging.makeLogRecord({})).keys() & NAMES["times"] >= {"created", "msecs", "relativeCreated"}
