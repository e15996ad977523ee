"""``rote plans``: what lies in a directory of plans. It needs no GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..base import MisuseError
from ..plans import PlanEntry, PlanFile, check, entries, prune
from .output import told

SHOWN = 24
"""Operations and conditions that are shown without ``--all``."""

plans = typer.Typer(
    no_args_is_help=True, help="What was learned and is kept for later processes (rote.graph(plans=DIR))."
)

Directory = Annotated[Path, typer.Argument(help="The directory of plans.")]


@plans.command("list")
def list_plans(directory: Directory) -> None:
    """List the keys that something is known of, a line for each."""
    with told():
        found = entries(str(directory))
        for each in found:
            if each.plan is not None:
                typer.echo(f"{each.name[:12]}  {_summary(each.plan)}")
        code = [each for each in found if each.name.startswith("code/")]
        nbytes = sum([each.nbytes for each in found])
        typer.echo(f"{len(found) - len(code)} facts, {len(code)} files of code, {nbytes / 1e6:.1f} MB")


@plans.command()
def show(
    directory: Directory,
    name: Annotated[str, typer.Argument(help="How a name in the list begins.")] = "",
    everything: Annotated[bool, typer.Option("--all", help="All operations and conditions.")] = False,
) -> None:
    """Show all that is known of the keys whose names begin so."""
    with told():
        found = [each for each in entries(str(directory)) if each.plan and each.name.startswith(name)]
        if not found:
            raise MisuseError(
                f"{directory} has no facts whose name begins with {name!r}; see rote plans list"
            )
        for each in found:
            typer.echo("\n".join(_details(each, None if everything else SHOWN)))


@plans.command("check")
def check_plans(directory: Directory) -> None:
    """Say what would not be used here and why; the exit status is 1 if there is anything."""
    with told():
        found = list(check(str(directory)))
        for name, why in found:
            typer.echo(f"{name}: {why}")
        if found:
            raise typer.Exit(1)
        typer.echo("all of it can be used here")


@plans.command("prune")
def prune_plans(
    directory: Directory,
    older: Annotated[float, typer.Option(help="Remove what was written before so many days.")] = 90.0,
    stale: Annotated[bool, typer.Option("--stale", help="Remove what would not be used here.")] = False,
) -> None:
    """Remove files that cannot be read, that were never finished, or that are old."""
    with told():
        gone = prune(str(directory), older=older, all_stale=stale)
        typer.echo("\n".join([*[f"removed {name}" for name in gone], f"{len(gone)} files removed"]))


def _summary(plan: PlanFile) -> str:
    facts = plan.facts
    head = f"{plan.callable} {facts.key}: "
    if facts.verdict is not None:
        return f"{head}nothing came of it, {facts.verdict.reason.code}"
    if not facts.states:
        return f"{head}arguments {', '.join(map(str, facts.leaves))} change"
    state = facts.states[0]
    exact = f", exact tier with {state.kernels} launches of kernels" if state.exact else ""
    return (
        f"{head}recorded in call {facts.calls}, {state.count} operations in {state.segments} segments{exact}"
    )


def _details(entry: PlanEntry, most: int | None) -> list[str]:
    plan = entry.plan
    if plan is None:
        return []
    lines = [f"{entry.name}: {_summary(plan)}"]
    lines += [f"  {name}: {value}" for name, value in plan.around.items()]
    lines += [f"  code: {name}" for name in plan.code]
    facts = plan.facts
    if facts.verdict is not None:
        price = f"a traced call cost {facts.verdict.price:.0f} plain ones"
        lines.append(f"  verdict: {facts.verdict.reason} ({price})")
    lines += [f"  changes: {name}" for name in [*facts.slots, *map(str, facts.lines)]]
    for state in facts.states:
        if state.replay_us is not None and state.plain_us is not None:
            lines.append(f"  {state.replay_us:.1f} us a replay, {state.plain_us:.1f} us a plain call")
        lines += [f"  island: {island}" for island in state.islands[:most]]
        lines += [f"  operation: {each}" for each in state.operations[:most]]
        lines += [f"  condition: {name} = {value}" for name, value in [*state.conditions.items()][:most]]
    return [*lines, *[f"  reason: {why}" for why in facts.reasons]]
