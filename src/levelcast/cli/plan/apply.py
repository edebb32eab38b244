"""`levelcast plan apply` and `levelcast plan current`: plans and a running network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from levelcast.cli.errors import duration_ns
from levelcast.network import load_network
from levelcast.node.operate.channel_plans import PlanRefused, apply_plan, running_plans
from levelcast.node.status_client import ask_all
from levelcast.planner.files import read_plan, read_rates
from levelcast.planner.model import PlanError
from levelcast.runtime.sockets import LOOPBACK

NetworkFile = Annotated[Path, typer.Argument(metavar="NETWORK", help="The network file.", exists=True, dir_okay=False)]


def apply(
    network_file: NetworkFile,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A plan's directory.")],
    rates: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Parquet or CSV with the columns flow, rate: records a second. For line rates.",
            show_default="none",
        ),
    ] = None,
    timeout: Annotated[str, typer.Option(metavar="TIME", help="How long it may take.")] = "30s",
    interface: Annotated[
        str, typer.Option(metavar="ADDRESS", help="The address of the interface on which the core group is.")
    ] = LOOPBACK,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:  # fmt: skip
    """Put a plan in force while everything runs, by records in the sequence. Nobody loses or doubles anything.

    A plan that misses a symbol, has a group that the network file has not, does not fit a line rate or is for other
    symbols is refused, with exit code 1, and the plan in force stays.

    Example:

    levelcast plan apply network.toml plan
    """
    timeout_s = duration_ns(timeout, "--timeout") / 1e9
    network = load_network(network_file)
    try:
        stored = read_plan(directory)
        expected = None if rates is None else read_rates(rates)
        done = apply_plan(network, stored, expected, timeout_s, interface)
    except (PlanRefused, PlanError) as error:
        typer.echo(f"levelcast: {error}", err=True)
        raise typer.Exit(1) from None
    if as_json:
        typer.echo(json.dumps(done._asdict()))
        return
    typer.echo(
        f"Plan {done.number} is in force at {done.edges} edges: ready after {done.ready_s:.2f} s, "
        f"in force {done.swap_s:.2f} s later."
    )


def current(
    network_file: NetworkFile,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Show the plan by which each receiver sends. Exit code 1 if they differ.

    Example:

    levelcast plan current network.toml
    """
    network = load_network(network_file)
    found = running_plans(answer for answer in ask_all(network) if answer.ok)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        table = Table()
        for column in ("receiver", "plan", "sessions", "ready", "refused"):
            table.add_column(column)
        for name, plan in found.items():
            ready, refused = plan.get("ready"), plan.get("refused")
            table.add_row(
                name,
                f"{plan['number']} {plan.get('digest', '')}".rstrip(),
                f"{plan['sessions']:,}",
                f"{ready['number']} {ready['digest']}" if ready else "",
                f"{refused['number']}: {refused['reason']}" if refused else "",
            )
        Console(soft_wrap=True).print(table)
    by_stripe: dict[str, set[tuple[int, str]]] = {}
    for name, plan in found.items():
        stripe = name.rpartition("/")[0]
        by_stripe.setdefault(stripe, set()).add((plan["number"], plan.get("digest", "")))
    if not found or any(len(each) > 1 for each in by_stripe.values()):
        raise typer.Exit(1)
