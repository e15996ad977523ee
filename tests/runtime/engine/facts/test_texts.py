"""Facts as text: nothing of the process in them, and nothing that is not to be told."""

from __future__ import annotations

import enum
import itertools

import pytest
import torch

from rote.runtime.arguments import bind
from rote.runtime.engine.facts.texts import KeyName, hide_strings

PROSE = "PyTorch's own code reads what isn't the user's, and nobody else's"


def hidden(text):
    return f"<{len(text)}>"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("self.mode was 'fast' and is 'slow'", "self.mode was 'fast' and is 'slow'"),
        (f"self.text was '{'a' * 33}' and is 'b'", "self.text was <35> and is 'b'"),
        (f"self.text was '{'a' * 40}...", "self.text was <44>"),
        (f'self.text was "it\'s {"a" * 40}"', "self.text was <47>"),
        ("os.environ['HOME'] was '/root' and is '/tmp'", "os.environ['HOME'] was <7> and is <6>"),
        (PROSE, PROSE),
        ("cfg['a'].b was a Thing (id 0x7f12)", "cfg['a'].b was a Thing (id 0x...)"),
        ("aten::item gave 0.25, which was not seen before (before: 1.0)",
         "aten::item gave a value that was not seen before"),
    ],
)  # fmt: skip
def test_messages(text, told, monkeypatch):
    monkeypatch.delenv("HOME", raising=False)
    assert hide_strings(text, hidden) == told


def test_values_of_the_environment_are_hidden_wherever_they_come(monkeypatch):
    monkeypatch.setenv("TOKEN", "abc123xyz")
    assert hide_strings("self.header was 'Bearer abc123xyz'", hidden) == "self.header was <18>"


class Loud(enum.Enum):
    ON = 1

    def __repr__(self):
        return str(next(COUNT))


COUNT = itertools.count()


def test_names_of_keys_run_no_code_of_the_users_and_have_no_address():
    class Thing:
        pass

    def name(*args):
        return KeyName.of(bind(args, {}), hidden).text

    x = torch.ones(2, 3)
    assert name(x, Thing()) == name(torch.zeros(2, 3), Thing()) and "0x" not in name(x, Thing())
    assert name(x, Loud.ON) == name(x, Loud.ON) and "Loud.ON" in name(x, Loud.ON)
    parameters = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    assert name(parameters[0]) == name(parameters[1]) != name(torch.nn.Parameter(torch.ones(3)))
    assert (
        len({name(x), name(x.t()), name(x.double()), name(x, 1), name(x, 2), name(x, 1.0), name((x,))}) == 7
    )


def test_numbers_may_be_left_open():
    calls = [bind((torch.ones(2), number), {}) for number in (1.0, 2.0, 2)]
    open_ones = [KeyName.of(call, hidden, numbers=False).text for call in calls]
    assert open_ones[0] == open_ones[1] != open_ones[2]
    assert len({KeyName.of(call, hidden).text for call in calls}) == 3
