"""Every rule, with what to write instead."""

from __future__ import annotations

from itertools import groupby

from rote.hazards.rules import RULES

GROUPS = {
    "1": "Operations that end a segment",
    "2": "Calls that are not steady",
    "3": "Guards, limits, memory and the self-check",
    "4": "Autograd and optimizers",
    "5": "Values that cannot be handed out",
    "6": "Tensors and devices",
}


def sections() -> str:
    """A heading for each group, and one for each rule."""
    parts: list[str] = []
    ordered = sorted(RULES, key=lambda rule: rule.code)
    for digit, group in groupby(ordered, key=lambda rule: rule.code[2]):
        parts.append(f"## {GROUPS.get(digit, f'{digit}xx')}")
        parts += [
            f"### {rule.code}: {rule.title} {{#{rule.code.lower()}}}\n\n{rule.remedy}" for rule in group
        ]
    return "\n\n".join(parts)
