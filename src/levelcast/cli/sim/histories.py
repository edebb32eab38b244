"""`levelcast sim`: random fault histories of the ring, checked against every promise."""

from __future__ import annotations

import json
import os
import re
import time
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from levelcast.cli.sim import steady
from levelcast.sim.mutations import MUTATIONS
from levelcast.sim.run import SCENARIOS, Summary, first_failing_seed, replay, replay_command, run_seeds
from levelcast.sim.scenarios.ring import Outcome

_SEEDS = re.compile(r"(\d+)\.\.(\d+)|(\d+)")
MAX_BROKEN_SHOWN = 5


def sim(
    scenario: Annotated[
        str, typer.Option(help="What to simulate: " + ", ".join((*SCENARIOS, steady.NAME)) + ".")
    ] = "ring",
    seeds: Annotated[
        str | None,
        typer.Option(help="One seed, or a range FROM..TO with both ends.", show_default="0..199; 1 for steady"),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes to run in.")] = os.cpu_count() or 1,
    without: Annotated[
        str | None, typer.Option(help="Take one clause out of the rules; see --mutations for the names.")
    ] = None,
    mutations: Annotated[
        bool, typer.Option("--mutations", help="Take out each clause in turn and look for a seed that shows it.")
    ] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Print the history itself, one line an event.")] = False,
    last: Annotated[int, typer.Option(min=1, help="How many lines of the history --trace prints.")] = 120,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
    protocol: Annotated[
        str, typer.Option(help="Of steady: timed, rmp (the original, event-driven) or both.", rich_help_panel="Steady")
    ] = "both",
    members: Annotated[int, typer.Option(help="Of steady: members of the ring.", rich_help_panel="Steady")] = 5,
    loss: Annotated[float, typer.Option(help="Of steady: share that is lost.", rich_help_panel="Steady")] = 0.01,
    load: Annotated[float, typer.Option(help="Of steady: packets a second.", rich_help_panel="Steady")] = 20.0,
    seconds: Annotated[float, typer.Option(help="Of steady: how long.", rich_help_panel="Steady")] = 10.0,
    branch_loss: Annotated[
        float,
        typer.Option(help="Of steady: share lost at each of 4 branches, for all below.", rich_help_panel="Steady"),
    ] = 0.0,
    nack_sets: Annotated[
        str | None,
        typer.Option(help="Of steady: sets that ask one after the other; a number or tree.", rich_help_panel="Steady"),
    ] = None,
) -> None:
    """Run random fault histories and check every promise of the ring in each.

    The scenario steady has no faults but loss: it runs the timed token and the original RMP and compares their figures.

    A seed is a history, bit for bit: members, delays, losses, crashes, lost disks, partitions, wrong clocks. Exit
    code 1 means that a promise broke; the command that replays it is printed.

    Examples:

    levelcast sim --scenario ring --seeds 0..19999 --jobs 2

    levelcast sim --seeds 2003..2003 --trace

    levelcast sim --mutations --seeds 0..999

    levelcast sim --scenario steady --protocol rmp --seeds 1..3 --load 5
    """
    if scenario == steady.NAME:
        if trace or mutations or without is not None:
            raise typer.BadParameter("the scenario steady has no history to trace and no clause to take out")
        steady.check_numbers(members, loss, load, seconds, branch_loss)
        sets = steady.chosen_sets(nack_sets, members)
        wanted, chosen = steady.chosen_protocols(protocol), parse_seeds("1" if seeds is None else seeds)
        steady.run(wanted, chosen, members, loss, load, seconds, branch_loss, sets, as_json=as_json)
        return
    if scenario not in SCENARIOS:
        known = ", ".join((*SCENARIOS, steady.NAME))
        raise typer.BadParameter(f"there is no scenario {scenario!r}; known: {known}")
    if without is not None and without not in MUTATIONS:
        raise typer.BadParameter(f"there is no clause {without!r}; known: {', '.join(MUTATIONS)}")
    chosen = parse_seeds("0..199" if seeds is None else seeds)
    if trace and (as_json or mutations):
        raise typer.BadParameter("--trace prints a history as text; leave out --json and --mutations")
    if trace:
        broken = _show_traces(scenario, chosen, without, last)
    elif mutations:
        _show_mutations(scenario, chosen, jobs, as_json=as_json)
        return
    else:
        broken = _run(scenario, chosen, jobs, without, as_json=as_json)
    if broken:
        raise typer.Exit(1)


def parse_seeds(text: str) -> range:
    """`7` or `0..199`, both ends included."""
    match = _SEEDS.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is no seed and no range of seeds; write 7 or 0..199")
    first, last, only = match.groups()
    if only is not None:
        return range(int(only), int(only) + 1)
    if int(last) < int(first):
        raise typer.BadParameter(f"the range {text} runs backward; write {last}..{first}")
    return range(int(first), int(last) + 1)


def _progress(console: Console) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _run(scenario: str, seeds: range, jobs: int, without: str | None, *, as_json: bool) -> bool:
    summary = Summary()
    began = time.perf_counter()
    with _progress(Console(stderr=True)) as progress:
        task = progress.add_task("histories", total=len(seeds), state="")
        for outcome in run_seeds(scenario, seeds, jobs, without):
            summary.add(outcome)
            progress.update(task, advance=1, state=f"{len(summary.broken)} broken")
    took = time.perf_counter() - began
    if as_json:
        report = {"scenario": scenario, "seeds": [seeds[0], seeds[-1]], "without": without, **summary.as_json()}
        typer.echo(json.dumps({**report, "wall_seconds": round(took, 2), "jobs": jobs}, indent=2))
    else:
        _show_summary(summary, scenario, seeds, without, took, jobs)
    return bool(summary.broken)


def _show_summary(summary: Summary, scenario: str, seeds: range, without: str | None, took: float, jobs: int) -> None:
    console = Console()
    table = Table(title=f"scenario {scenario}, seeds {seeds[0]}..{seeds[-1]}", title_justify="left", show_header=False)
    table.add_column("what")
    table.add_column("count", justify="right")
    rows = {
        "histories": f"{summary.histories:,}",
        "simulated time": f"{summary.simulated_ns / 3.6e12:.2f} h",
        "events": f"{summary.events:,}",
        "datagrams": f"{summary.datagrams:,}",
        "packets submitted": f"{summary.packets:,}",
        "frames released": f"{summary.releases:,}",
        "of them late": f"{summary.late_releases:,}",
        "rings formed": f"{summary.reformations:,}",
        "slots voided": f"{summary.voided_slots:,}",
        "crashes": f"{summary.crashes:,}",
        "disks lost": f"{summary.disks_lost:,}",
        "membership changes": f"{summary.membership_changes:,}",
        "catch-ups by frames": f"{summary.caught_up_by_frames:,}",
        "strikes just after a moment that matters": f"{summary.strikes:,}",
        "damaged datagrams rejected": f"{summary.malformed:,}",
        "liveness, share of the bound: p50 / p99 / max": " / ".join(
            f"{summary.liveness_quantile(share):.2f}" for share in (0.5, 0.99, 1.0)
        ),
        "histories per second": f"{summary.histories / took:.1f} ({jobs} processes)",
    }
    if summary.secondaries:
        rows |= {"secondaries": f"{summary.secondaries:,}", "groups formed": f"{summary.groups:,}"}
    if summary.customers:
        rows |= {
            "plans replaced": f"{summary.plans:,}",
            "customers": f"{summary.customers:,}",
            "records delivered to them": f"{summary.delivered:,}",
            "of them merged over sessions": f"{summary.merged:,}",
            "requests for retransmission": f"{summary.requests:,}",
            "records told as lost": f"{summary.lost:,}",
        }
    for what, count in rows.items():
        table.add_row(what, count)
    console.print(table)
    if not summary.broken:
        console.print("[green]Every promise held in every history.[/green]")
        return
    console.print(f"[red]{len(summary.broken)} histories broke a promise.[/red]")
    for outcome in summary.broken[:MAX_BROKEN_SHOWN]:
        _show_broken(console, scenario, outcome, without)
    _, lines = replay(scenario, summary.broken[0].seed, without, last=25)
    console.print(f"\nThe end of history {summary.broken[0].seed}:")
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _show_broken(console: Console, scenario: str, outcome: Outcome, without: str | None) -> None:
    console.print(f"  seed {outcome.seed}: {outcome.broken}", markup=False, highlight=False, soft_wrap=True)
    command = replay_command(scenario, outcome.seed, without)
    console.print(f"    {command}", markup=False, highlight=False, soft_wrap=True)


def _show_traces(scenario: str, seeds: range, without: str | None, last: int) -> bool:
    broken = False
    for seed in seeds:
        outcome, lines = replay(scenario, seed, without, last=last)
        typer.echo(f"history {seed}: {outcome.mode}, {outcome.members} primaries, last {len(lines)} lines")
        for line in lines:
            typer.echo(line)
        typer.echo(f"history {seed}: {outcome.broken or 'every promise held'}")
        broken = broken or outcome.broken is not None
    return broken


def _show_mutations(scenario: str, seeds: range, jobs: int, *, as_json: bool) -> None:
    """Which clause, taken out, is found by random search, and after how many seeds."""
    rows = []
    console = Console()
    with _progress(Console(stderr=True)) as progress:
        task = progress.add_task("clauses", total=len(MUTATIONS), state="")
        for name, mutation in MUTATIONS.items():
            progress.update(task, state=name)
            found = first_failing_seed(scenario, name, seeds, jobs)
            after = found.seed - seeds[0] + 1 if found is not None else None
            rows.append((mutation, after, found.broken if found is not None else None))
            progress.update(task, advance=1)
    if as_json:
        report = [
            {"clause": m.name, "history": m.history, "rule": m.rule, "seeds": after, "broken": broken}
            for m, after, broken in rows
        ]
        typer.echo(json.dumps(report, indent=2))
        return
    table = Table(title=f"clauses taken out, seeds {seeds[0]}..{seeds[-1]}", title_justify="left")
    for column in ("history", "rule", "clause", "how the rule reads without it", "found after", "what broke"):
        table.add_column(column)
    for mutation, after, broken in rows:
        found_after = f"{after:,} seeds" if after is not None else f"not in {len(seeds):,}"
        what = (broken or "").split(":")[0]
        table.add_row(mutation.history, mutation.rule, mutation.name, mutation.without, found_after, what)
    console.print(table)
