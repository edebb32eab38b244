"""`levelcast plan apply` and `levelcast plan current`: activate and show plans in a running network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from levelcast.cli.errors import duration_ns
from levelcast.cli.options import NETWORK_FILE, AsJson, Interface, NetworkFile, option
from levelcast.cli.output import print_json, table
from levelcast.errors import NetError
from levelcast.network import load_network
from levelcast.node.operate.channel_plans import PlanRefused, apply_plan, has_line_rate, running_plans
from levelcast.node.status_client import ask_all
from levelcast.planner.files import RATES, read_plan, read_rates, require_plan
from levelcast.planner.model import PlanError
from levelcast.runtime.sockets import LOOPBACK

_NAMED = 3
"""Maximum number of symbols listed in a message."""


def apply(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of the plan.")],
    network_file: NetworkFile = NETWORK_FILE,
    rates: Annotated[
        Path | None,
        option(
            "Parquet or CSV with the columns flow and rate (records/s), to check line rates.",
            metavar="FILE",
            unset="DIR/rates.parquet for a line rate",
        ),
    ] = None,
    timeout: Annotated[str, option("Time limit.", metavar="TIME")] = "30s",
    interface: Interface = LOOPBACK,
    as_json: AsJson = False,
) -> None:
    """Activate a plan in a running network, by records in the sequence. No subscriber loses or duplicates a record.

    A plan is refused if it has a group that the network file does not have, exceeds a line rate or is for other
    symbols. Then the exit code is 1, and the active plan stays. Symbols that the plan leaves out, because they have no
    subscriber, are sent in one more session: anyone may subscribe to them later.

    Example:

    levelcast plan apply plan
    """
    timeout_s = duration_ns(timeout, "--timeout") / 1e9
    network = load_network(network_file)
    require_plan(directory)
    try:
        stored = read_plan(directory)
        if rates is None and has_line_rate(network) and (directory / RATES).exists():
            rates = directory / RATES
        expected = None if rates is None else read_rates(rates)
        done = apply_plan(network, stored, expected, timeout_s, interface)
    except (PlanRefused, PlanError) as error:
        typer.echo(f"levelcast: {error}", err=True)
        raise typer.Exit(1) from None
    if as_json:
        print_json(done._asdict(), None)
        return
    typer.echo(
        f"Plan {done.number} is active at {done.edges} edges: ready after {done.ready_s:.2f} s, "
        f"active {done.swap_s:.2f} s later."
    )
    if done.added:
        named = ", ".join(done.added[:_NAMED]) + (", …" if len(done.added) > _NAMED else "")
        typer.echo(f"The plan leaves out {len(done.added):,} symbols, now in one more session: {named}.")


def current(
    network_file: NetworkFile = NETWORK_FILE,
    as_json: AsJson = False,
) -> None:
    """Show the active plan of each receiver. Exit code 1 if they differ.

    Example:

    levelcast plan current
    """
    network = load_network(network_file)
    found = running_plans(answer for answer in ask_all(network) if answer.ok)
    if not found:
        raise NetError(f"{network_file}: no receiver replies; start the network, and check it with `levelcast status`")
    if as_json:
        print_json(found)
    else:
        rows = []
        for name, plan in found.items():
            ready, refused = plan.get("ready"), plan.get("refused")
            told = f"{ready['number']} {ready['digest']}" if ready else ""
            why = f"{refused['number']}: {refused['reason']}" if refused else ""
            rows.append((name, f"{plan['number']} {plan.get('digest', '')}".rstrip(), plan["sessions"], told, why))
        Console(soft_wrap=True).print(table(("receiver", "plan", "sessions", "ready", "refused"), rows))
    by_stripe: dict[str, set[tuple[int, str]]] = {}
    for name, plan in found.items():
        by_stripe.setdefault(name.rpartition("/")[0], set()).add((plan["number"], plan.get("digest", "")))
    if any(len(each) > 1 for each in by_stripe.values()):
        raise typer.Exit(1)
