"""Every rule has its documentation, a bad and a good program, and a golden text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from rote.hazards import rules
from rote.hazards.rules import RULES, Finder, Topic

from ..fixture import ALL, FOLDER, both, codes, skip_without, told_when_run
from ..golden import golden, said

TEXTS = Path(rules.__file__).with_name("texts")
PARTS = ("what", "why", "remedy", "tried", "limits", "unchecked", "bad", "good")


def test_there_are_enough_rules_in_every_group():
    assert len(RULES) >= 40
    assert {rule.topic for rule in RULES.values()} == set(Topic)
    assert all(rule.code == code for code, rule in RULES.items())


@pytest.mark.parametrize("rule", ALL)
def test_documentation(rule):
    about = rule.documentation
    for text in (about.what, about.why, about.remedy, about.limits):
        assert len(text) > 10 and text.endswith((".", ".)")), text
    assert "`" not in about.remedy, "messages end with it"
    assert about.bad and about.good and about.bad != about.good
    assert rule.found_by


@pytest.mark.parametrize("rule", ALL)
def test_a_text_has_its_headings_in_order_and_examples_in_one_block(rule):
    text = (TEXTS / f"{rule.code}.md").read_text(encoding="utf-8")
    assert re.findall("^#.*", re.sub("^```python\n.*?^```\n", "", text, flags=re.M | re.S), re.M) == [
        f"## {part.capitalize()}" for part in PARTS if getattr(rule.documentation, part)
    ]
    for part in ("bad", "good"):
        assert f"## {part.capitalize()}\n\n```python\n{getattr(rule.documentation, part)}\n```\n" in text
    assert text.count("```") == 4 and "``" not in text.replace("```", ""), "code is between single marks"


def test_no_text_without_a_rule():
    assert {path.name for path in TEXTS.iterdir()} == {f"{code}.md" for code in RULES}


@pytest.mark.parametrize("rule", ALL)
def test_examples_are_quoted_from_the_fixtures(rule):
    bad, good = both(rule)
    assert bad.quotes(rule.documentation.bad), rule.documentation.bad
    assert good.quotes(rule.documentation.good), rule.documentation.good


def test_no_fixture_without_a_rule():
    assert {path.name[:5] for path in FOLDER.iterdir() if path.name[:2] == "RT"} == set(RULES)


@pytest.mark.parametrize("rule", ALL)
def test_the_scan_finds_the_bad_one_only(rule):
    bad, good = both(rule)
    if Finder.SCAN in rule.found_by:
        found = [each for each in bad.scan() if each.code == rule.code]
        assert found and all(each.remedy and each.message for each in found)
    told = good.scan()
    assert not any(each.code == rule.code or each.severity.is_error for each in told), [*map(str, told)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rule", ALL)
def test_the_bad_one_runs(rule):
    told = both(rule)[0].run(_device(both(rule)[0].needs))
    if told_when_run(rule):
        assert rule.code in codes(told), told


@pytest.mark.parametrize("rule", ALL)
def test_the_good_one_runs(rule):
    told = both(rule)[1].run(_device(both(rule)[1].needs))
    assert rule.code not in codes(told), told


@pytest.mark.cuda
@pytest.mark.parametrize("rule", ALL)
def test_on_a_gpu(rule):
    skip_without("cuda")
    bad, good = both(rule)
    if bad.needs != "cuda":
        pytest.skip("runs without a GPU")
    told = bad.run(torch.device("cuda"))
    if Finder.RUNTIME in rule.found_by:
        assert rule.code in codes(told), told
    assert rule.code not in codes(good.run(torch.device("cuda")))


@pytest.mark.parametrize("rule", ALL)
def test_golden_text(rule):
    """As the newest PyTorch has it; code of an older one may give a call further reasons."""
    expected, found = golden(rule).read_text().splitlines(), said(rule)
    if torch.__version__ < "2.13":
        found = [line for line in found if line in expected]
    assert found == expected


def _device(needs):
    return torch.device("cuda" if needs in ("cuda", "multi_gpu") and torch.cuda.is_available() else "cpu")
