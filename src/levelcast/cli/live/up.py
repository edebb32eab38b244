"""`levelcast up`: run all nodes of a network on this machine, then compare their tapes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from levelcast.cli.errors import duration_ns, on_interrupt
from levelcast.cli.keys.create import create_keys
from levelcast.cli.network_file.hold import missing_holds
from levelcast.cli.options import NETWORK_FILE, Data, JsonAtEnd, NetworkFile, option
from levelcast.cli.output import print_json, print_problems, print_unfinished, table
from levelcast.network import load_network
from levelcast.network.addresses import on_loopback
from levelcast.network.placement import all_places
from levelcast.network.roles import FLOOR
from levelcast.node.cluster import Cluster, ClusterRun, Kill
from levelcast.node.options import NodeOptions
from levelcast.node.verdict import ClusterVerdict, check_floors, judge
from levelcast.protocol.event_text import headline
from levelcast.protocol.events import Event
from levelcast.runtime.core_sockets import free_loopback_port
from levelcast.runtime.cpu_contention import CpuContention, explain_contention
from levelcast.runtime.event_log import RepeatFilter
from levelcast.storage.disk import create_data

DOWN_S = 2.0
"""Time in seconds that a killed node stays down."""
CONTENTION_EFFECT = "which delays releases"
_PLAIN_LINE_EVERY_S = 2.0


def up(
    data: Data = Path("data"),
    network_file: NetworkFile = NETWORK_FILE,
    publish: Annotated[str | None, option("Trading time.", "--for", metavar="TIME", unset="until ^C")] = None,
    rate: Annotated[float, option("Records/s of all floors together.", min=0)] = 2000.0,
    impair: Annotated[bool, option("Inject the delay and loss of the network file's links.")] = True,
    floors: Annotated[bool, option("Start the floors; without them, use levelcast publish.")] = True,
    kill: Annotated[
        list[str] | None,
        option(f"Kill this node (kill -9), restart it {DOWN_S:g} s later (repeatable).", metavar="NAME@TIME"),
    ] = None,
    as_json: JsonAtEnd = False,
    seed: Annotated[int, option("Random seed for synthetic trades and injected loss.")] = 1,
    keys: Annotated[
        bool, option("Create keys for all nodes, if the network file has none, and add them to it.", "--keys")
    ] = False,
) -> None:
    """Run all nodes of a network as processes on this machine over loopback, then compare the tapes.

    Exit code 0: all tapes are identical and complete; 1: they are not, or the nodes were not ready in time.

    Examples:

    levelcast up --for 20s

    levelcast up --data elsewhere --for 20s --rate 500 --kill tokyo-1@5s
    """
    network = load_network(network_file)
    if keys and network.keys is None:
        create_keys(network_file)
        network = load_network(network_file)
    run_ns = None if publish is None else duration_ns(publish)
    holds = missing_holds(network, quiet=as_json)
    network = network.with_holds(holds)
    options, port = NodeOptions(rate, run_ns, impair, seed), None
    if network.transport != "multicast" or network.edge.unicast:
        port = free_loopback_port(network)
        if port != network.core.port and not as_json:
            typer.echo(
                f"levelcast: the ports of [core] are in use, so the nodes use those from {port} on; "
                f"other programs need a file with port = {port}",
                err=True,
            )
        network = on_loopback(network, port)
    cluster = Cluster(network, network_file, data, options, floors=floors, holds=holds, loopback_port=port)
    stripes = [stripe.name for stripe in network.stripes]
    bound_s = max(sum(term.ns for term in network.liveness(stripe)) for stripe in stripes) / 1e9 + 5.0
    kills = [parse_kill(text, list(cluster.members)) for text in kill or ()]
    create_data(data)
    run = ClusterRun(cluster, None if run_ns is None else run_ns / 1e9, bound_s, kills)
    console = Console(stderr=as_json, quiet=as_json, highlight=False)
    _watch(console, run)
    contention = cluster.cpu_meter.measure()
    verdicts = {}
    for stripe in stripes:
        parts = [each.place.part for each in cluster.releasing if each.place.stripe == stripe]
        verdicts[stripe] = judge(data, parts, unfinished=run.problems)
        if floors and rate > 0:
            check_floors(cluster, stripe, verdicts[stripe])
    if as_json:
        print_json(_as_json(cluster, verdicts, contention))
    else:
        print_results(console, cluster, verdicts, contention)
    raise typer.Exit(0 if all(verdict.identical for verdict in verdicts.values()) else 1)


def parse_kill(text: str, known: Sequence[str], other: str = "", default_s: float | None = None) -> Kill:
    """Parse a node to kill: NAME@TIME, or NAME if there is a default time; `other` extends the error message."""
    name, at, time_text = (text, "", "") if "@" not in text and default_s is not None else text.rpartition("@")
    if name not in known:
        why = f'"{text}" is not NAME@TIME{other}; NAME is one of {", ".join(known)}'
        raise typer.BadParameter(why, param_hint="--kill")
    at_s = duration_ns(time_text, "--kill") / 1e9 if at or default_s is None else default_s
    return Kill(name, at_s, at_s + DOWN_S)


def _watch(console: Console, run: ClusterRun) -> None:
    """Run the cluster, with a live table on a terminal and plain lines otherwise."""
    cluster, told_s = run.cluster, 0.0
    on_interrupt(partial(setattr, run, "interrupted", True))
    live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
    with live or nullcontext(), _EventPrinter(console, cluster) as events:
        for _ in run.steps():
            events.print_new()
            if live is not None:
                live.update(_table(cluster, run.phase))
            elif cluster.elapsed_s - told_s >= _PLAIN_LINE_EVERY_S:
                told_s = cluster.elapsed_s
                console.print(_line(cluster, run.phase), soft_wrap=True)


class _EventPrinter:
    """Print the events of a cluster; an event that a node repeats is counted. On exit, print the remaining ones."""

    def __init__(self, console: Console, cluster: Cluster) -> None:
        self._console = console
        self._cluster = cluster
        self._names = {place.id: place.name for place in all_places(cluster.network)}
        self._repeats: defaultdict[str, RepeatFilter] = defaultdict(lambda: RepeatFilter(self._names))

    def print_new(self) -> None:
        while self._cluster.events:
            name, event = self._cluster.events.popleft()
            self._print(name, self._repeats[name].add(event, time.monotonic()))
        for name, repeats in self._repeats.items():
            self._print(name, repeats.due(time.monotonic()))

    def _print(self, name: str, events: Iterable[Event]) -> None:
        for event in events:
            line = f"{self._cluster.elapsed_s:6.1f} s  {name} {headline(event, self._names)}"
            self._console.print(line, soft_wrap=True, markup=False)

    def __enter__(self) -> _EventPrinter:
        return self

    def __exit__(self, *_: object) -> None:
        self.print_new()
        for name, repeats in self._repeats.items():
            self._print(name, repeats.rest(time.monotonic()))


def _table(cluster: Cluster, phase: str) -> Table:
    columns = ("receiver", ">state", ">ring", ">slot", ">released", ">late", ">requests")
    keys = ("state", "generation", "released_slot", "tape_records", "late", "requests")
    rows = []
    for member in cluster.releasing:
        said = member.status if member.running else {"state": "down"}
        rows.append((member.place.part, *map(said.get, keys)))
    return table(columns, rows, box=box.SIMPLE_HEAD, title=f"{cluster.elapsed_s:.0f} s, {phase}")


def _line(cluster: Cluster, phase: str) -> str:
    released = []
    for member in cluster.releasing:
        state = f"{member.status.get('tape_records', 0):,}" if member.running else "down"
        released.append(f"{member.place.part} {state}")
    return f"{cluster.elapsed_s:6.1f} s  {phase}; released: {', '.join(released)}"


def show_ms(quantiles: tuple[int, int, int]) -> str:
    """Format quantiles in milliseconds."""
    return " / ".join(f"{ns / 1e6:.2f}" for ns in quantiles)


def print_results(
    console: Console, cluster: Cluster, verdicts: Mapping[str, ClusterVerdict], contention: CpuContention
) -> None:
    """Print the verdict of each stripe, and what the machine lacked."""
    for stripe, verdict in verdicts.items():
        if len(verdicts) > 1:
            console.print(f"Stripe {stripe}", style="bold")
        _print_verdict(console, cluster, verdict)
    for name, member in cluster.members.items():
        if member.deaths:
            why = f"{name} exited {member.deaths}× by itself and was restarted; its log has the reason."
            console.print(why, style="yellow", soft_wrap=True)
    for line in explain_contention(contention, CONTENTION_EFFECT):
        console.print(line, style="yellow", soft_wrap=True)


def _print_verdict(console: Console, cluster: Cluster, verdict: ClusterVerdict) -> None:
    rows = []
    for each in verdict.receivers:
        member = cluster.members[each.name]
        requests = str(member.status.get("requests", "?"))
        rows.append((each.name, each.records, each.late, show_ms(each.delay_ns), requests, member.kills))
    delay = ">delay, ms\np50 / p99 / max"
    columns = ("receiver", ">released", ">late", delay, ">requests", ">killed")
    console.print(table(columns, rows, box=box.SIMPLE_HEAD))
    stripe = cluster.members[verdict.receivers[0].name].place.stripe if verdict.receivers else None
    floors = [member for member in cluster.of_role(FLOOR) if member.place.stripe == stripe]
    published = sum(member.status.get("published", 0) for member in floors)
    latency: tuple[str, ...] = ()
    if verdict.latency_ns is not None:
        seconds = " / ".join(f"{ns / 1e9:.3f}" for ns in verdict.latency_ns)
        latency = (f"Latency of a trade, from its floor to a release: {seconds} s (p50 / p99 / max).",)
    for line in (
        "late: not ready at timestamp + Δ_A, by protocol; all that a node missed while it was down is late.",
        "delay: from the time from which a release was possible to the release; the process ran late.",
        f"Published since the floors' last start: {published:,} records.",
        f"Spread of a slot over all receivers: {show_ms(verdict.spread_ns)} ms (p50 / p99 / max).",
        *latency,
    ):
        console.print(line, style="dim", soft_wrap=True)
    if not verdict.identical:
        if verdict.problems:
            print_problems(console, "The tapes", verdict.problems)
        if verdict.unfinished:
            print_unfinished(console, verdict.unfinished, agree=not verdict.problems)
        return
    first = verdict.receivers[0]
    what = f"The tapes are identical: {first.records:,} records in {first.frames:,} frames, chain {first.chain}"
    console.print(what, style="bold green", soft_wrap=True)


def _as_json(cluster: Cluster, verdicts: dict[str, ClusterVerdict], contention: CpuContention) -> dict[str, Any]:
    """Return the results of the first stripe at the top level, and those of all in `stripes`."""

    def figures(verdict: ClusterVerdict) -> dict[str, Any]:
        return {
            "identical": verdict.identical,
            "problems": verdict.problems,
            "unfinished": verdict.unfinished,
            "spread_ns": verdict.spread_ns,
            "latency_ns": verdict.latency_ns,
            "receivers": [asdict(each) for each in verdict.receivers],
        }

    first = figures(next(iter(verdicts.values())))
    more = {"stripes": {name: figures(verdict) for name, verdict in verdicts.items()}} if len(verdicts) > 1 else {}
    if more:
        first["identical"] = all(verdict.identical for verdict in verdicts.values())
    nodes = {name: member.status for name, member in cluster.members.items()}
    return {**first, **more, "contention": asdict(contention), "nodes": nodes}
