"""Rules have stable codes, and reasons a fixed text."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from rote.base.location import NOWHERE, Site
from rote.hazards import rules
from rote.hazards.rules import RULES, Reason, reason
from rote.hazards.rules.rule import parsed


def test_codes():
    codes = [rule.code for rule in RULES.values()]
    assert len(set(codes)) == len(codes) >= 25
    for rule in RULES.values():
        assert re.fullmatch(r"RT[1-8]\d\d", rule.code)
        assert rule.title and not rule.title.endswith(".") and rule.remedy.endswith("."), rule


def test_codes_of_the_contract():
    wanted = {
        "RT101": rules.HOST_READ,
        "RT111": rules.DYNAMIC_SHAPE,
        "RT201": rules.STATE_CHANGES,
        "RT202": rules.OPERAND_DIFFERS,
        "RT204": rules.HOST_RANDOM,
        "RT301": rules.TENSOR_MOVED,
        "RT303": rules.TOO_MANY_RECORDINGS,
        "RT304": rules.TOO_MANY_PATHS,
        "RT401": rules.OUTPUT_GRADIENT,
        "RT402": rules.GRADIENT_RETURNED,
    }
    assert {code: rule.code for code, rule in wanted.items()} == {code: code for code in wanted}


def test_text():
    site = Site("policy.py", 12, "act")
    assert str(reason(rules.TENSOR_MOVED, "model.w was here and is there", site)) == (
        "RT301 at policy.py:12: model.w was here and is there. Update the tensor in place (copy_)."
    )
    for nowhere in (None, NOWHERE):
        assert str(reason(rules.NOT_YET, "x", nowhere)).startswith("RT307: x. ")
    assert reason(rules.NEW_KEY, "x") == Reason("RT306", "x", None, rules.NEW_KEY.remedy)


def test_a_reason_is_given_where_no_file_can_be_opened(monkeypatch):
    def refuse(*_, **__):
        raise OSError(24, "Too many open files")

    rule = replace(rules.NEW_KEY)  # has not read its text
    with monkeypatch.context() as patched:
        patched.setattr("pathlib.Path.read_text", refuse)
        assert str(reason(rule, "x")) == "RT306: x. See rote explain RT306."
    assert reason(rule, "x").remedy == rules.NEW_KEY.remedy


def test_a_text_is_complete():
    with pytest.raises(TypeError, match="good"):
        parsed("## What\n\nIt.\n\n## Why\n\nSo.\n\n## Remedy\n\nNo.\n\n## Limits\n\nNo.\n\n## Bad\n\nx\n")
    with pytest.raises(TypeError, match="cause"):
        parsed("## Cause\n\nIt.\n")
