"""Every rule, with what to write instead."""

from __future__ import annotations

from itertools import groupby

from rote.hazards.rules import RULES, Rule

GROUPS = {
    "1": "Operations that end a segment",
    "2": "Calls that are not steady",
    "3": "Guards, limits, memory and the self-check",
    "4": "Autograd and optimizers",
    "5": "Values that cannot be handed out",
    "6": "Tensors and devices",
    "7": "Libraries",
    "8": "Several processes",
}


def all_rules() -> list[Rule]:
    """All rules, by code."""
    return sorted(RULES.values(), key=lambda rule: rule.code)


def sections() -> str:
    """A heading for each group, and one for each rule."""
    parts: list[str] = []
    for digit, group in groupby(all_rules(), key=lambda rule: rule.code[2]):
        parts.append(f"## {GROUPS.get(digit, f'{digit}xx')}")
        parts += [
            f"### {rule.code}: {rule.title} {{#{rule.code.lower()}}}\n\n{rule.remedy}" for rule in group
        ]
    return "\n\n".join(parts)
