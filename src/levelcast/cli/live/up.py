"""`levelcast up`: run all nodes of a network on this machine, then compare their tapes."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from levelcast.cli.errors import duration_ns, on_interrupt
from levelcast.cli.live.node import Data
from levelcast.network import load_network
from levelcast.network.roles import FLOOR
from levelcast.node.cluster import Cluster, ClusterRun, Kill
from levelcast.node.options import NodeOptions
from levelcast.node.verdict import ClusterVerdict, judge
from levelcast.protocol.event_text import sentence

DOWN_S = 2.0
"""How long a node that was killed stays down."""
_PLAIN_LINE_EVERY_S = 2.0


def up(
    network_file: Annotated[Path, typer.Argument(metavar="NETWORK", help="The network file.")],
    data: Data,
    publish: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="How long the floors trade.", show_default="until ^C")
    ] = None,
    rate: Annotated[float, typer.Option(min=0, help="Records a second, of all floors together.")] = 2000.0,
    impair: Annotated[bool, typer.Option(help="Add the delay and loss of the file's links.")] = True,
    floors: Annotated[
        bool, typer.Option(help="Start the floors too; without them, levelcast publish is the floors.")
    ] = True,
    kill: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME@TIME", help=f"kill -9 that node then, and start it again {DOWN_S:g} s later."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object at the end and nothing else.")] = False,
    seed: Annotated[int, typer.Option(help="Of made-up trades, and of added loss.")] = 1,
) -> None:
    """Run a whole network on this machine, each node a process, over multicast on loopback; then compare the tapes.

    Exit code 0 means that all tapes are identical and complete, 1 that they are not.

    Examples:

    levelcast up network.toml --data data --for 20s

    levelcast up network.toml --data data --for 20s --rate 500 --kill tokyo-1@5s
    """
    network = load_network(network_file)
    run_ns = None if publish is None else duration_ns(publish)
    cluster = Cluster(network, network_file, data, NodeOptions(rate, run_ns, impair, seed), floors=floors)
    stripes = [stripe.name for stripe in network.stripes]
    bound_s = max(sum(term.ns for term in network.liveness(stripe)) for stripe in stripes) / 1e9 + 5.0
    kills = [_kill(cluster, text) for text in kill or ()]
    run = ClusterRun(cluster, None if run_ns is None else run_ns / 1e9, bound_s, kills)
    console = Console(stderr=as_json, quiet=as_json)
    _watch(console, run)
    verdicts = {
        stripe: judge(
            data, [each.place.part for each in cluster.releasing if each.place.stripe == stripe], run.problems
        )
        for stripe in stripes
    }
    if as_json:
        typer.echo(json.dumps(_as_json(cluster, verdicts), indent=2))
    else:
        for stripe, verdict in verdicts.items():
            if len(stripes) > 1:
                console.print(f"Stripe {stripe}", style="bold", highlight=False)
            _print_verdict(console, cluster, verdict)
    raise typer.Exit(0 if all(verdict.identical for verdict in verdicts.values()) else 1)


def _kill(cluster: Cluster, text: str) -> Kill:
    name, _, at = text.rpartition("@")
    if name not in cluster.members:
        known = ", ".join(cluster.members)
        raise typer.BadParameter(f'"{text}" is not NAME@TIME with one of {known}', param_hint="--kill")
    at_s = duration_ns(at, "--kill") / 1e9
    return Kill(name, at_s, at_s + DOWN_S)


def _watch(console: Console, run: ClusterRun) -> None:
    """Run it, with a live table on a terminal and plain lines elsewhere."""
    cluster, told_s = run.cluster, 0.0

    def interrupt() -> None:
        run.interrupted = True

    on_interrupt(interrupt)
    live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
    with live or nullcontext():
        for _ in run.steps():
            while cluster.events:
                name, event = cluster.events.popleft()
                what = f"{event.KIND} {sentence(event)}".rstrip()
                console.print(f"{cluster.elapsed_s:6.1f} s  {name}: {what}", highlight=False, soft_wrap=True)
            if live is not None:
                live.update(_table(cluster, run.phase))
            elif cluster.elapsed_s - told_s >= _PLAIN_LINE_EVERY_S:
                told_s = cluster.elapsed_s
                console.print(_line(cluster, run.phase), highlight=False, soft_wrap=True)


def _table(cluster: Cluster, phase: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=f"{cluster.elapsed_s:.0f} s, {phase}", title_justify="left")
    table.add_column("receiver")
    for title in ("state", "ring", "slot", "released", "late", "requests"):
        table.add_column(title, justify="right")
    for member in cluster.releasing:
        said = member.status if member.running else {"state": "down"}
        values = [said.get(key, "") for key in ("state", "generation", "released_slot", "tape_records")]
        values += [said.get("late", ""), said.get("requests", "")]
        table.add_row(member.place.part, *(f"{v:,}" if isinstance(v, int) else str(v) for v in values))
    return table


def _line(cluster: Cluster, phase: str) -> str:
    released = (
        f"{member.place.part} {member.status.get('tape_records', 0):,}"
        if member.running
        else f"{member.place.part} down"
        for member in cluster.releasing
    )
    return f"{cluster.elapsed_s:6.1f} s  {phase}; released: {', '.join(released)}"


def _ms(quantiles: tuple[int, int, int]) -> str:
    return " / ".join(f"{ns / 1e6:.2f}" for ns in quantiles)


def _print_verdict(console: Console, cluster: Cluster, verdict: ClusterVerdict) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("receiver")
    for title in ("released", "late", "behind its instant, ms\np50 / p99 / max", "requests", "killed"):
        table.add_column(title, justify="right")
    for each in verdict.receivers:
        member = cluster.members[each.name]
        requests = str(member.status.get("requests", "?"))
        table.add_row(
            each.name, f"{each.records:,}", f"{each.late:,}", _ms(each.behind_ns), requests, str(member.kills)
        )
    console.print(table, highlight=False)
    stripe = cluster.members[verdict.receivers[0].name].place.stripe if verdict.receivers else None
    floors = [member for member in cluster.of_role(FLOOR) if member.place.stripe == stripe]
    published = sum(member.status.get("published", 0) for member in floors)
    for line in (
        "late: more than 1 ms after timestamp + Δ_A; a node that was away has all that it missed late.",
        f"Published since the floors' last start: {published:,} records.",
        f"Spread of a slot over all receivers: {_ms(verdict.spread_ns)} ms (p50 / p99 / max).",
    ):
        console.print(line, style="dim", highlight=False, soft_wrap=True)
    if verdict.identical:
        first = verdict.receivers[0]
        console.print(
            f"The tapes are identical: {first.records:,} records in {first.frames:,} frames, chain {first.chain}",
            style="bold green",
            highlight=False,
            soft_wrap=True,
        )
        return
    console.print("The tapes are NOT as they should be:", style="bold red")
    for problem in verdict.problems:
        console.print(f"- {problem}", style="red", highlight=False, markup=False, soft_wrap=True)


def _as_json(cluster: Cluster, verdicts: dict[str, ClusterVerdict]) -> dict[str, Any]:
    """The figures of the first stripe where they have always been; `stripes` has those of all."""

    def figures(verdict: ClusterVerdict) -> dict[str, Any]:
        return {
            "identical": verdict.identical,
            "problems": verdict.problems,
            "spread_ns": verdict.spread_ns,
            "receivers": [asdict(each) for each in verdict.receivers],
        }

    first = figures(next(iter(verdicts.values())))
    more = {"stripes": {name: figures(verdict) for name, verdict in verdicts.items()}} if len(verdicts) > 1 else {}
    if more:
        first["identical"] = all(verdict.identical for verdict in verdicts.values())
    return {**first, **more, "nodes": {name: member.status for name, member in cluster.members.items()}}
