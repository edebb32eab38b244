"""`levelcast group`: run the protocols of wide-area groups as processes, or compare them in virtual time (TT)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from levelcast.cli.errors import duration_ns, on_interrupt
from levelcast.cli.options import NETWORK_FILE, JsonAtEnd, NetworkFile, option
from levelcast.cli.output import counting, print_after, print_json, print_problems, table
from levelcast.network import Network, load_network
from levelcast.node.group_run import (
    MAX_SIZE,
    MIN_SIZE,
    GroupMember,
    GroupRun,
    GroupRunOptions,
    MemberReport,
    run_alone,
)
from levelcast.overlay.wide.choices import WIDE_PROTOCOLS, CopiesBy
from levelcast.overlay.wide.measure import GroupFigures
from levelcast.runtime.group_setup import (
    ALLOWED_LOSS,
    group_config,
    group_members,
    group_network,
    largest_jitter_ns,
    protocol_choices,
)
from levelcast.sim.wide.compare import Workload, compare_protocols, recommend
from levelcast.units import quantiles

_PLAIN_LINE_EVERY = 8
"""Steps of a run for each line that is printed without a terminal: about 2 s."""
FIGURES: tuple[tuple[str, str, str], ...] = (
    ("mean", "delivered_mean_ms", "{:,.0f}"),
    ("last", "last_mean_ms", "{:,.0f}"),
    ("p99", "last_p99_ms", "{:,.0f}"),
    ("sender", "sender_knows_ms", "{:,.0f}"),
    ("all", "all_know_ms", "{:,.0f}"),
    ("p99", "all_know_p99_ms", "{:,.0f}"),
    ("data", "data", "{:.2f}"),
    ("other", "statements", "{:.2f}"),
    ("kept s", "kept_s", "{:.2f}"),
    ("max", "kept_most", "{:,}"),
)
_LEGEND = (
    "ms from the sending: mean: to the delivery; last, p99: to that at the last receiver; "
    "sender, all, p99: until the sender and all know that all have received it.",
    "data, other: datagrams per message and receiver; kept s: time in buffers, of all receivers; max: in one buffer.",
)
_NARROW: dict[str, Any] = {"box": box.SIMPLE_HEAD, "padding": (0, 1, 0, 0)}


def group(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Network file, instead of --network.")] = None,
    network_file: NetworkFile = NETWORK_FILE,
    protocol: Annotated[
        str | None,
        option(f"Protocol: {', '.join(WIDE_PROTOCOLS)}.", metavar="NAME", unset="compare all in virtual time"),
    ] = None,
    copies: Annotated[
        str | None, option(f"Additional copies: {', '.join(CopiesBy)}.", metavar="BY", unset="the protocol's")
    ] = None,
    allowed_loss: Annotated[
        float,
        option("Probability that all copies to a receiver are lost, which decides their number.", metavar="RATIO"),
    ] = ALLOWED_LOSS,
    messages: Annotated[int, option("Number of messages, sent by the receivers in turn.", min=1)] = 100,
    every: Annotated[str, option("Interval between messages.", metavar="TIME")] = "100ms",
    size: Annotated[int, option("Size of a message in bytes.", min=MIN_SIZE, max=MAX_SIZE)] = 64,
    near: Annotated[
        str, option("Maximum delay between two receivers of a subgroup, for N, NR and HD.", metavar="TIME")
    ] = "25ms",
    defer: Annotated[
        str | None, option("Time that confirmations wait for a message to ride on.", metavar="TIME", unset="none")
    ] = None,
    name: Annotated[
        str | None, option("Run this receiver alone; the others run elsewhere.", metavar="NAME", unset="all here")
    ] = None,
    port: Annotated[
        int | None, option("UDP port of the first receiver; each further one uses the next.", unset="those of the file")
    ] = None,
    impair: Annotated[
        bool | None,
        option("Inject the delay and loss of the network file's links.", unset="impair; with --name no-impair"),
    ] = None,
    start: Annotated[str, option("Time in which all receivers must run.", metavar="TIME")] = "1min",
    seed: Annotated[int, option("Random seed for injected loss, and for the comparison.")] = 1,
    as_json: JsonAtEnd = False,
) -> None:
    """Send messages to all receivers without multicast, with the protocols of wide-area groups.

    With --protocol, one process per receiver runs on this machine and sends over UDP. Without it, all protocols are
    compared in virtual time, with the delay and loss of the file, and one is recommended.

    Exit code 0: each message was delivered to all, and all know it; 1: not.

    Examples:

    levelcast group network.toml

    levelcast group network.toml --protocol MR --messages 100

    levelcast group network.toml --protocol MR --name tokyo-1
    """
    network = group_network(load_network(file or network_file), port)
    members = [each.name for each in group_members(network)]
    options = GroupRunOptions(
        protocol or "M",
        copies,
        messages,
        duration_ns(every, "--every") / 1e9,
        size,
        duration_ns(near, "--near") / 1e9,
        0.0 if defer is None else duration_ns(defer, "--defer") / 1e9,
        name is None if impair is None else impair,
        seed,
        None,
        duration_ns(start, "--start") / 1e9,
        _checked_ratio(allowed_loss),
    )
    if protocol is None and (name is not None or copies is not None):
        raise typer.BadParameter(
            f"the comparison runs all of {', '.join(WIDE_PROTOCOLS)}; with --name or --copies choose one of them",
            param_hint="--protocol",
        )
    console = Console(stderr=as_json, quiet=as_json, highlight=False)
    if protocol is None:
        _compare(console, network, options, as_json=as_json)
        return
    protocol_choices(protocol, copies)
    good = (
        _run_all(console, network, options, as_json=as_json)
        if name is None
        else _run_one(console, network, name, options, len(members), as_json=as_json)
    )
    raise typer.Exit(0 if good else 1)


def _checked_ratio(ratio: float) -> float:
    if not 0 < ratio < 1:
        raise typer.BadParameter(f"{ratio:g} is not a ratio above 0 and below 1", param_hint="--allowed-loss")
    return ratio


# -- comparison -------------------------------------------------------------------------------------------


def _compare(console: Console, network: Network, options: GroupRunOptions, *, as_json: bool) -> None:
    config = group_config(
        network,
        protocol_choices(options.protocol),
        near_ns=round(options.near_s * 1e9),
        defer_ns=round(options.defer_s * 1e9),
        alive_ns=0,
        allowed_loss=options.allowed_loss,
    )
    work = Workload(options.messages, round(options.every_s * 1e9), largest_jitter_ns(network), options.seed)
    found: dict[str, GroupFigures] = {}
    with counting("{task.fields[state]}", quiet=as_json) as progress:
        task = progress.add_task("protocols", total=len(WIDE_PROTOCOLS), state="")
        for each in WIDE_PROTOCOLS:
            progress.update(task, state=each)
            found |= dict(compare_protocols(config, work, [each]))
            progress.advance(task)
    chosen = recommend(found)
    if as_json:
        figures = {each: one._asdict() for each, one in found.items()}
        print_json({"protocols": figures, "recommended": chosen.protocol, "reason": chosen.reason})
        return
    title = f"{len(config.members)} receivers, {options.messages:,} messages, virtual time"
    _print_figures(console, found, title)
    print_after(console, f"Recommended: {chosen.protocol}", f": {chosen.reason}.")


def _print_figures(console: Console, found: Mapping[str, GroupFigures], title: str) -> None:
    columns = ("protocol", *(f">{heading}" for heading, _, _ in FIGURES))
    rows = [(each, *(form.format(getattr(one, key)) for _, key, form in FIGURES)) for each, one in found.items()]
    console.print(table(columns, rows, title=title, **_NARROW))
    for line in _LEGEND:
        console.print(line, style="dim", soft_wrap=True)


# -- processes --------------------------------------------------------------------------------------------


def _run_all(console: Console, network: Network, options: GroupRunOptions, *, as_json: bool) -> bool:
    """Run all receivers on this machine, and print the results; return whether all messages were received."""
    run = GroupRun(network, options)
    on_interrupt(partial(setattr, run, "interrupted", True))
    live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
    step = 0
    steps = run.steps()
    next(steps)  # the processes are forked before the display starts a thread
    with live or nullcontext():
        for _ in steps:
            step += 1
            if live is not None:
                live.update(_progress(run))
            elif step % _PLAIN_LINE_EVERY == 0:
                counts = run.counts.values()
                sent, delivered, known = (sum(each[place] for each in counts) for place in range(3))
                console.print(f"sent {sent:,}, delivered {delivered:,}, known to be received {known:,}")
    if as_json:
        print_json(_as_json(run))
        return run.all_received
    _print_members(console, list(run.reports.values()))
    if not run.all_received:
        print_problems(console, "The group", run.problems)
        return False
    _print_figures(
        console, {options.protocol: run.figures()}, f"{options.messages:,} messages, {len(run.names)} processes"
    )
    count = len(run.names)
    console.print(
        f"Each of {options.messages:,} messages was delivered to all {count - 1} others, and all {count} know it.",
        style="bold green",
        soft_wrap=True,
    )
    return True


def _progress(run: GroupRun) -> Table:
    rows = [(each, *counts) for each, counts in run.counts.items()]
    return table(("receiver", ">sent", ">delivered", ">received by all"), rows, box=box.SIMPLE_HEAD)


def _print_members(console: Console, reports: list[MemberReport]) -> None:
    rows = []
    for each in reports:
        times = quantiles(each.delays_ns, (0.5, 0.99, 1.0)) if each.delays_ns else ()
        delays = [f"{ns / 1e6:,.0f}" for ns in times] or ["", "", ""]
        data, other = each.datagrams["data"], each.datagrams.total() - each.datagrams["data"]
        rows.append((each.name, *each.counts, *delays, data, other, each.buffers.most))
    delay = (">p50", ">p99", ">max")
    columns = ("receiver", ">sent", ">delivered", ">known", *delay, ">data", ">other", ">kept")
    console.print(table(columns, rows, **_NARROW))
    console.print("known: to be received by all; p50, p99, max: delay in ms; data, other: datagrams.", style="dim")
    dropped: Counter[str] = Counter()
    for each in reports:
        dropped += each.dropped
    for reason, count in dropped.items():
        console.print(f"{count:,} received datagrams were dropped: {reason}.", style="yellow", soft_wrap=True)


def _as_json(run: GroupRun) -> dict[str, Any]:
    figures = run.figures()._asdict() if run.all_received else None
    members = [_member_json(each) for each in run.reports.values()]
    return {"received": run.all_received, "problems": run.problems, "figures": figures, "receivers": members}


def _member_json(report: MemberReport) -> dict[str, Any]:
    return {
        "name": report.name,
        **report.counts._asdict(),
        "delay_ns": quantiles(report.delays_ns, (0.5, 0.99, 1.0)) if report.delays_ns else None,
        "datagrams": dict(report.datagrams),
        "dropped": dict(report.dropped),
        "kept_most": report.buffers.most,
        "kept_ns": report.buffers.kept_ns,
        "cpu_s": round(report.cpu_s, 3),
    }


def _run_one(
    console: Console, network: Network, name: str, options: GroupRunOptions, members: int, *, as_json: bool
) -> bool:
    """Run one receiver, and print its results; return whether all messages were received here and by all."""
    member = GroupMember(network, name, options)
    console.print(f"{name} waits for {members - 1} other receivers.", soft_wrap=True)
    report, problems = asyncio.run(run_alone(member))
    if as_json:
        print_json({"received": not problems, "problems": problems, **_member_json(report)})
        return not problems
    _print_members(console, [report])
    if problems:
        print_problems(console, "The group", problems)
    return not problems
