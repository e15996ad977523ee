"""A few of the small programs, and that they find what they are for."""

from __future__ import annotations

import logging
import random

import pytest
import torch

from .pieces import PIECES
from .small import compare, compiled, play, program

EACH = 2


@pytest.mark.sampled(2)
@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: piece.name)
def test_programs_about_a_piece(piece, caplog):
    caplog.set_level(logging.ERROR, "rote")
    for number in range(EACH):
        text = program(random.Random(number), [piece])
        difference, _ = compare(text)
        assert not difference, f"{difference}\n{text}"


@pytest.mark.sampled(2)
@pytest.mark.filterwarnings("ignore::UserWarning")  # Dynamo's, about what it cannot compile
@pytest.mark.parametrize("number", range(6))
def test_programs_under_torch_compile(number, caplog):
    """Graphed, compiled code does what it does alone."""
    for name in ("rote", "torch"):
        caplog.set_level(logging.CRITICAL, name)
    text = program(random.Random(number), PIECES)
    torch.compiler.reset()
    difference, _ = compare(text, compiled)
    assert not difference, f"{difference}\n{text}"


def test_a_difference_is_found():
    """A wrapper that answers every call with its first result differs in some program."""

    def first_forever(function):
        kept = []

        def call(*args):
            kept.append(kept[0] if kept else function(*args))
            return kept[0]

        return call

    texts = [program(random.Random(number), PIECES[:1]) for number in range(20)]
    assert any(play(text, first_forever) != play(text, lambda function: function) for text in texts)
