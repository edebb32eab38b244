"""`levelcast sim`: run random fault histories of the ring and check every guarantee."""

from __future__ import annotations

import os
import re
import time
from difflib import get_close_matches
from functools import partial
from typing import Annotated

import typer
from rich.console import Console

from levelcast.cli.options import AsJson, option
from levelcast.cli.output import counting, print_json, table
from levelcast.cli.sim import steady
from levelcast.sim.compare_protocols import PROTOCOLS
from levelcast.sim.run import (
    CHAIN,
    SCENARIOS,
    Summary,
    first_failing_seed,
    mutations_of,
    replay,
    replay_command,
    run_seeds,
)
from levelcast.sim.scenarios.chain import GroupSize
from levelcast.sim.scenarios.ring import Outcome

_SEEDS = re.compile(r"(\d+)\.\.(\d+)|(\d+)")
MAX_BROKEN_SHOWN = 5
_group = partial(option, rich_help_panel="Options of the scenarios steady and chain")
_steady = partial(option, rich_help_panel="Options of the scenario steady")

Seeds = Annotated[
    str | None, option("Seed, or inclusive range of seeds.", metavar="N|FROM..TO", unset="0..199; 1 for steady")
]


def sim(
    scenario: Annotated[
        str, option(f"Scenario to simulate: {', '.join((*SCENARIOS, steady.NAME))}.", metavar="SCENARIO")
    ] = "ring",
    seeds: Seeds = None,
    jobs: Annotated[int, option("Number of processes.", min=1, unset="one per core")] = os.cpu_count() or 1,
    without: Annotated[
        str | None, option("Remove this clause from the rules; --mutations lists the names.", metavar="CLAUSE")
    ] = None,
    mutations: Annotated[
        bool, option("Remove each clause in turn and search for a seed that reveals it.", "--mutations")
    ] = False,
    trace: Annotated[bool, option("Print the history, one line per event.", "--trace")] = False,
    last: Annotated[int, option("Maximum number of lines that --trace prints.", min=1)] = 120,
    as_json: AsJson = False,
    protocol: Annotated[
        str, _steady("Protocol to run; rmp is the original, event-driven one.", metavar="|".join((*PROTOCOLS, "both")))
    ] = "both",
    members: Annotated[
        int | None, _group("Number of members: of steady 2 to 100, of chain 4 to 13.", unset="5; 4 for chain")
    ] = None,
    liars: Annotated[
        int | None, _group("Number of members of chain that lie.", metavar="COUNT", unset="as many as may lie")
    ] = None,
    loss: Annotated[float, _steady("Loss ratio, 0 to 0.5.", metavar="RATIO")] = 0.01,
    load: Annotated[float, _steady("Packets/s.", metavar="RATE")] = 20.0,
    seconds: Annotated[float, _steady("Duration in seconds.")] = 10.0,
    branch_loss: Annotated[
        float, _steady("Loss ratio at each of 4 branches, for all members below.", metavar="RATIO")
    ] = 0.0,
    nack_sets: Annotated[
        str | None,
        _steady("Number of NACK sets, which send requests in turn, or tree.", metavar="N|tree", unset="none"),
    ] = None,
) -> None:
    """Run random fault histories and check every guarantee.

    The scenario steady has no faults except loss: it runs the timed token and the original RMP and compares them.

    A seed determines a history, bit for bit: members, delays, losses, crashes, lost disks, partitions, wrong clocks.
    Exit code 1: a guarantee was violated; the command that replays the history is printed.

    Examples:

    levelcast sim --scenario ring --seeds 0..19999 --jobs 2

    levelcast sim --seeds 2003..2003 --trace

    levelcast sim --mutations --seeds 0..999

    levelcast sim --scenario chain --members 7 --liars 2 --seeds 0..99

    levelcast sim --scenario steady --protocol rmp --seeds 1..3 --load 5
    """
    if scenario == steady.NAME:
        if trace or mutations or without is not None:
            raise typer.BadParameter("the scenario steady does not support --trace, --mutations or --without")
        if liars is not None:
            raise typer.BadParameter("only the scenario chain has members that lie", param_hint="--liars")
        settings = steady.SteadyOptions(5 if members is None else members, loss, load, seconds, branch_loss)
        settings.check()
        sets = steady.chosen_sets(nack_sets, settings.members)
        wanted, chosen = steady.chosen_protocols(protocol), parse_seeds("1" if seeds is None else seeds)
        steady.run(wanted, chosen, settings, sets, as_json=as_json)
        return
    if scenario not in SCENARIOS:
        known = ", ".join((*SCENARIOS, steady.NAME))
        raise typer.BadParameter(f'"{scenario}" is not one of {known}', param_hint="--scenario")
    clauses = mutations_of(scenario)
    if without is not None and without not in clauses:
        near = " or ".join(get_close_matches(without, clauses))
        hint = f"did you mean {near}?" if near else f"choose one of {', '.join(clauses)}"
        raise typer.BadParameter(f'unknown clause "{without}"; {hint}', param_hint="--without")
    chosen, group = parse_seeds("0..199" if seeds is None else seeds), chosen_group(scenario, members, liars)
    if trace and (as_json or mutations):
        raise typer.BadParameter("--trace prints a history as text; omit --json and --mutations")
    if trace:
        broken = _show_traces(scenario, chosen, without, last, group)
    elif mutations:
        _show_mutations(scenario, chosen, jobs, group, as_json=as_json)
        return
    else:
        broken = _run(scenario, chosen, jobs, without, group, as_json=as_json)
    if broken:
        raise typer.Exit(1)


def parse_seeds(text: str) -> range:
    """Parse `7` or `0..199`, both ends included."""
    match = _SEEDS.fullmatch(text.strip())
    if match is None:
        message = f'"{text}" is not a seed or a range of seeds; write 7 or 0..199'
        raise typer.BadParameter(message, param_hint="--seeds")
    first, last, only = match.groups()
    if only is not None:
        return range(int(only), int(only) + 1)
    if int(last) < int(first):
        raise typer.BadParameter(f"the range {text} runs backward; write {last}..{first}", param_hint="--seeds")
    return range(int(first), int(last) + 1)


def chosen_group(scenario: str, members: int | None, liars: int | None) -> GroupSize | None:
    """Return the group of the scenario chain; raise BadParameter for a size that cannot be."""
    if scenario != CHAIN:
        if members is not None or liars is not None:
            raise typer.BadParameter("only the scenarios steady and chain have this option", param_hint="--members")
        return None
    size = GroupSize() if members is None else GroupSize(members)
    if not 4 <= size.members <= 13:
        raise typer.BadParameter(f"{members} members; use 4 to 13", param_hint="--members")
    if liars is not None and not 0 <= liars < size.members:
        raise typer.BadParameter(
            f"{liars} liars of {size.members} members; use 0 to {size.members - 1}", param_hint="--liars"
        )
    return size._replace(liars=liars)


def _run(
    scenario: str, seeds: range, jobs: int, without: str | None, group: GroupSize | None, *, as_json: bool
) -> bool:
    summary = Summary()
    began = time.perf_counter()
    with counting("{task.fields[state]}") as progress:
        task = progress.add_task("histories", total=len(seeds), state="")
        for outcome in run_seeds(scenario, seeds, jobs, without, group):
            summary.add(outcome)
            progress.update(task, advance=1, state=f"{len(summary.broken)} broken")
    took = time.perf_counter() - began
    if as_json:
        report = {"scenario": scenario, "seeds": [seeds[0], seeds[-1]], "without": without, **summary.as_json()}
        print_json({**report, "wall_seconds": round(took, 2), "jobs": jobs})
    else:
        _show_summary(summary, scenario, seeds, without, took, jobs, group)
    return bool(summary.broken)


def _show_summary(
    summary: Summary, scenario: str, seeds: range, without: str | None, took: float, jobs: int, group: GroupSize | None
) -> None:
    console = Console()
    rows = {
        "histories": summary.histories,
        "simulated time": f"{summary.simulated_ns / 3.6e12:.2f} h",
        "events": summary.events,
        "datagrams": summary.datagrams,
        "packets submitted": summary.packets,
        "frames released": summary.releases,
        "of them late": summary.late_releases,
        "rings formed": summary.reformations,
        "slots voided": summary.voided_slots,
        "crashes": summary.crashes,
        "planned stops": summary.planned_stops,
        "timing records": summary.timing_changes,
        "disks lost": summary.disks_lost,
        "membership changes": summary.membership_changes,
        "catch-ups by frames": summary.caught_up_by_frames,
        "faults injected right after a critical step": summary.strikes,
        "damaged datagrams rejected": summary.malformed,
        "datagrams of another network rejected": summary.foreign,
        "liveness, fraction of the bound: p50 / p99 / max": " / ".join(
            f"{summary.liveness_quantile(share):.2f}" for share in (0.5, 0.99, 1.0)
        ),
        "histories per second": f"{summary.histories / took:.1f} ({jobs} processes)",
    }
    if summary.secondaries:
        rows |= {"secondaries": summary.secondaries, "groups formed": summary.groups}
    if summary.customers:
        rows |= {
            "plans replaced": summary.plans,
            "subscribers": summary.customers,
            "records delivered to them": summary.delivered,
            "of them merged over sessions": summary.merged,
            "requests for retransmission": summary.requests,
            "records reported as lost": summary.lost,
        }
    if scenario == CHAIN:
        rows = _chain_rows(summary) | {"histories per second": rows["histories per second"]}
    title = f"scenario {scenario}, seeds {seeds[0]}..{seeds[-1]}"
    console.print(table(("what", ">count"), rows.items(), title=title, show_header=False))
    if not summary.broken:
        console.print("[green]Every guarantee held in every history.[/green]")
        return
    console.print(f"[red]{len(summary.broken)} histories violated a guarantee.[/red]")
    for outcome in summary.broken[:MAX_BROKEN_SHOWN]:
        _show_broken(console, scenario, outcome, without, group)
    _, lines = replay(scenario, summary.broken[0].seed, without, last=25, group=group)
    console.print(f"\nThe end of history {summary.broken[0].seed}:")
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _chain_rows(summary: Summary) -> dict[str, object]:
    return {
        "histories": summary.histories,
        "simulated time": f"{summary.simulated_ns / 3.6e12:.2f} h",
        "events": summary.events,
        "datagrams": summary.datagrams,
        "packets submitted": summary.packets,
        "messages delivered, over all members": summary.delivered,
        "crashes": summary.crashes,
        "messages fetched": summary.fetched,
        "sent again without acknowledgements (C-6)": summary.resent,
        "acknowledged directly after a time-out (C-7)": summary.acknowledged_late,
        "delivered by statements (C-9)": summary.stated,
        "conflicting versions": summary.shadows,
        "convictions": summary.convictions,
        "refused": summary.refused,
        "delivered from senders outside the group": summary.from_outside,
        "changes of epoch": summary.epochs,
        "first messages delivered after one of an epoch before": summary.orders_across_epochs,
        "liveness, fraction of the bound: p50 / p99 / max": " / ".join(
            f"{summary.liveness_quantile(share):.2f}" for share in (0.5, 0.99, 1.0)
        ),
    }


def _show_broken(
    console: Console, scenario: str, outcome: Outcome, without: str | None, group: GroupSize | None
) -> None:
    command = replay_command(scenario, outcome.seed, without, group)
    for line in (f"  seed {outcome.seed}: {outcome.broken}", f"    {command}"):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _show_traces(scenario: str, seeds: range, without: str | None, last: int, group: GroupSize | None) -> bool:
    broken = False
    for seed in seeds:
        outcome, lines = replay(scenario, seed, without, last=last, group=group)
        typer.echo(f"history {seed}: {outcome.mode}, {outcome.members} primaries, last {len(lines)} lines")
        for line in lines:
            typer.echo(line)
        typer.echo(f"history {seed}: {outcome.broken or 'every guarantee held'}")
        broken = broken or outcome.broken is not None
    return broken


def _show_mutations(scenario: str, seeds: range, jobs: int, group: GroupSize | None, *, as_json: bool) -> None:
    """Print after how many seeds random search detects the removal of each clause."""
    rows, clauses = [], mutations_of(scenario)
    with counting("{task.fields[state]}") as progress:
        task = progress.add_task("clauses", total=len(clauses), state="")
        for name, mutation in clauses.items():
            progress.update(task, state=name)
            found = first_failing_seed(scenario, name, seeds, jobs, group)
            after = found.seed - seeds[0] + 1 if found is not None else None
            rows.append((mutation, after, found.broken if found is not None else None))
            progress.update(task, advance=1)
    if as_json:
        report = [
            {"clause": m.name, "history": m.history, "rule": m.rule, "seeds": after, "broken": broken}
            for m, after, broken in rows
        ]
        print_json(report)
        return
    columns = ("history", "rule", "clause", "rule without it", "found after", "violation")
    lines = []
    for mutation, after, broken in rows:
        found_after = f"{after:,} seeds" if after is not None else f"not in {len(seeds):,}"
        what = (broken or "").split(":")[0]
        lines.append((mutation.history, mutation.rule, mutation.name, mutation.without, found_after, what))
    Console().print(table(columns, lines, title=f"clauses removed, seeds {seeds[0]}..{seeds[-1]}"))
