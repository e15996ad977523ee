"""Each planted hazard is found at its line, and nothing else."""

from __future__ import annotations

import pytest
import torch
from tests.checker import programs
from tests.checker.afresh import check_or_skip
from tests.checker.programs import PROGRAMS, Program


def checked(program: Program):
    def build():
        made = program.build()
        return made[0], made[1:], {}

    return check_or_skip(build, target=program.name)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.name)
def test_program(program):
    findings = checked(program)
    found = {(finding.code, finding.where.line) for finding in findings}
    assert found == program.expected(), f"\n{findings}"
    assert not findings.incomplete
    assert all(finding.where.file == programs.__file__ for finding in findings)
    assert all(finding.source and finding.remedy and finding.message for finding in findings)
    assert findings.operations or program.name == "results_put_into_an_argument"


def test_nothing_is_left_behind():
    assert not torch.cuda.is_available() or torch.cuda.device_count()
    assert torch.get_default_device().type == "cpu"
