"""`levelcast plan from-lake`: make a plan for the edges from earlier rates and subscriptions in a lake."""

from __future__ import annotations

import enum
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console

from levelcast.cli.lake.spark import spark_errors
from levelcast.cli.options import AsJson, LakeDir, Master, option
from levelcast.cli.output import table
from levelcast.cli.plan.options import Aggregation, Alpha, Beta, Seed, WeightsFile, weights_of
from levelcast.cli.plan.show import bar, tell
from levelcast.edge.server.plan_switch import PlanLimits
from levelcast.errors import NetError
from levelcast.network import Network, SymbolDirectory, load_network
from levelcast.node.operate.channel_plans import has_line_rate, line_limits, plan_in_force, require_lines
from levelcast.pipeline.session import require_spark, spark_session
from levelcast.planner.annealing import Effort
from levelcast.planner.files import StoredPlan, read_plan
from levelcast.planner.make import check_numbers
from levelcast.planner.model import Limits, PlanError
from levelcast.runtime.sockets import LOOPBACK

if TYPE_CHECKING:
    from levelcast.pipeline.channels.job import Made, PlanRequest

RUNNING = "running"
SESSIONS_A_GROUP = 20
"""Value of TH's benchmark."""
_SHOWN = 5
_centred = partial(table, title_justify="center")


class LakeEngine(enum.StrEnum):
    """Engine that computes a plan."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


class When(enum.StrEnum):
    """Rates to plan for."""

    MEAN = "mean"
    BUSIEST = "busiest"


def from_lake(
    lake: LakeDir,
    out: Annotated[Path, option("Directory for the plan.", "--out", "-o", metavar="DIR")],
    network_file: Annotated[
        Path | None,
        option(
            "Network file; the plan covers all its symbols and uses its groups.",
            "--network",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            unset="none",
        ),
    ] = None,
    interest: Annotated[
        Path | None,
        option(
            "Load subscriptions from this file first, as `pipeline load` does.",
            "--subscriptions",
            metavar="FILE",
            unset="the lake's",
        ),
    ] = None,
    days: Annotated[
        list[str] | None, option("Day of the rates (repeatable).", "--day", metavar="YYYY-MM-DD", unset="newest")
    ] = None,
    when: Annotated[When, option("Mean rates of the days, or of their busiest 5 minutes.", "--rates")] = When.MEAN,
    current: Annotated[
        str | None,
        option(
            "Active plan to compare with: its directory, or running to query the network.",
            metavar="DIR|running",
            unset="one session for all",
        ),
    ] = None,
    groups: Annotated[int | None, option("Maximum number of groups.", min=1, unset="the network's, or 50")] = None,
    sessions: Annotated[
        int | None,
        option("Maximum number of sessions.", min=1, unset=f"{SESSIONS_A_GROUP} per group, 1 with a line rate"),
    ] = None,
    skip_unknown: Annotated[
        bool, option("Skip subscriptions to symbols that the network does not have.", "--skip-unknown")
    ] = False,
    engine: Annotated[LakeEngine, option("Planning engine; auto: by the number of pairs.")] = LakeEngine.AUTO,
    effort: Annotated[Effort, option("Search effort; Spark supports only fast.")] = Effort.FAST,
    alpha: Alpha = None,
    beta: Beta = None,
    aggregation: Aggregation = None,
    weights_file: WeightsFile = None,
    seed: Seed = 0,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Make a plan from the rates and subscriptions of a lake, and print the savings.

    DIR gets the files of `levelcast plan make`, `customers.parquet` (messages/s that reach each subscriber before and
    after) and `rates.parquet` (for `plan apply --rates`). A row is added to the table plans of the lake.

    Examples:

    levelcast plan from-lake --lake lake --network network.toml --out plan && levelcast plan apply plan

    levelcast plan from-lake --lake lake --network network.toml --current running --rates busiest --out plan
    """
    with spark_errors():
        weights = weights_of(alpha, beta, aggregation, weights_file)
        asked, before = _asked(network_file, days, when, current, groups, sessions, skip_unknown, engine, effort, seed)
        made = run(
            lake, out, replace(asked, weights=weights), before, master, interest, network_file, quiet=as_json
        )  # fmt: skip
    if as_json:
        tell(made.report, f"{out}", True)
        return
    show(made, Console(soft_wrap=True))
    typer.echo(sentence(made))
    if made.skipped:
        typer.echo(f"{made.skipped:,} subscriptions were skipped: no floor of {network_file} trades their symbols.")
    if network_file is not None:
        typer.echo(f"levelcast plan apply --network {network_file} {out}")


def run(
    lake: Path,
    out: Path,
    asked: PlanRequest,
    before: StoredPlan | None = None,
    master: str | None = None,
    interest: Path | None = None,
    network_file: Path | None = None,
    *,
    quiet: bool = False,
) -> Made:
    """Make a plan, write its directory and add its row to the lake."""
    from levelcast.pipeline.channels import job as channels_job
    from levelcast.pipeline.jobs.load import load_subscriptions
    from levelcast.pipeline.jobs.refresh import refresh_interest
    from levelcast.pipeline.lake.lake import Lake

    tables = Lake(lake)
    channels_job.chosen_days(tables, asked.days)  # check before Spark is started
    if interest is not None and not interest.exists():
        raise PlanError(f"{interest}: file not found; check --subscriptions")
    with spark_session(master, "levelcast plan") as spark, bar(quiet) as progress:
        if interest is not None:
            with tables.alone():  # the rest reads, or adds one row, and can run during a stream
                load_subscriptions(spark, tables, interest)
                refresh_interest(spark, tables)
        made = channels_job.execute(spark, tables, asked, before, progress)
        if not asked.limits.none and network_file is not None:
            rates = dict(zip(made.stored.flows.to_pylist(), made.rates.tolist(), strict=True))
            require_lines(load_network(network_file), made.stored, rates)
        channels_job.write(made, out)
        channels_job.record(spark, tables, made)
    return made


def _asked(
    network_file: Path | None, days: list[str] | None, when: When, current: str | None, groups: int | None,
    sessions: int | None, skip_unknown: bool, engine: LakeEngine, effort: Effort, seed: int,
) -> tuple[PlanRequest, StoredPlan | None]:  # fmt: skip
    require_spark()
    from levelcast.pipeline.channels.job import PlanRequest

    for day in days or ():
        try:
            date.fromisoformat(day)
        except ValueError:
            raise PlanError(f'"{day}" is not a day such as 2013-10-07') from None
    network = None if network_file is None else load_network(network_file)
    most = None if network is None else PlanLimits.of_network(network).groups
    wanted = groups or most or 50
    if most is not None and wanted > most:
        raise PlanError(f"{wanted:,} groups exceed the {most:,} of the smallest [[edge.group]] block of {network_file}")
    allowed = sessions or (1 if network is not None and has_line_rate(network) else SESSIONS_A_GROUP) * wanted
    check_numbers(allowed, wanted)
    asked = PlanRequest(
        days=tuple(days or ()),
        busiest=when is When.BUSIEST,
        symbols=None if network is None else frozenset(SymbolDirectory(network).symbols),
        network=str(network_file),
        skip_unknown=skip_unknown,
        sessions=allowed,
        groups=wanted,
        limits=Limits() if network is None else line_limits(network, allowed, wanted),
        effort=effort,
        seed=seed,
        spark=None if engine is LakeEngine.AUTO else engine is LakeEngine.SPARK,
    )
    return asked, _before(current, network, asked)


def _before(current: str | None, network: Network | None, asked: PlanRequest) -> StoredPlan | None:
    if current is None:
        return None
    if current != RUNNING:
        stored = read_plan(Path(current))
    elif network is None:
        raise PlanError("--current running needs --network")
    else:
        try:
            found = plan_in_force(network, interface=LOOPBACK)
        except NetError as error:
            raise PlanError(str(error)) from None
        if found is None:
            return None
        stored = found
    if asked.symbols is not None:
        foreign = sorted({str(flow) for flow in stored.flows.to_pylist()} - asked.symbols)
        if foreign:
            raise PlanError(
                f"{current}: the plan is for other symbols; no floor of {asked.network} trades {foreign[0]}"
            )
    return stored


# -- terminal output --------------------------------------------------------------------------------------


def show(made: Made, console: Console) -> None:
    """Print costs before and after, and the subscribers with the highest filtered rates."""
    told, before, after = made.report, made.before, made.after
    title = f"Rates of {', '.join(made.days)}, messages/s of all {len(made.users):,} subscribers"
    rows = [
        ("groups", before.groups, after.groups),
        ("sessions", before.sessions, after.sessions),
        ("received in groups", float(before.received.sum()), told["received"]),
        ("accepted in sessions", float(before.accepted.sum()), told["accepted"]),
        ("subscribed", told["asked"], told["asked"]),
        ("filtered out", before.filtered, after.filtered),
        ("goodput, %", 100 * told["goodput_before"], 100 * told["goodput"]),
        ("cost C_w", told["c_w_before"], told["c_w"]),
        ("excess C_x", told["c_x_before"], told["c_x"]),
    ]
    console.print(_centred(("", ">before", ">after"), [map(_short, row) for row in rows], title=title))
    worst = np.argsort(-(after.received - after.asked), kind="stable")[:_SHOWN]
    figures = (after.asked, before.received, after.received)
    customers = [(made.users[at], *(_short(float(each[at])) for each in figures)) for at in worst]
    columns = ("subscriber", ">subscribed", ">received before", ">received after")
    console.print(_centred(columns, customers, title="Subscribers with the highest filtered rates"))


def _short(value: Any) -> Any:
    return f"{value:,.4g}" if isinstance(value, float) else value


def sentence(made: Made) -> str:
    """Return the savings in one message."""
    before, after, users = made.before, made.after, max(1, len(made.users))
    told = made.report
    was, now = float(before.received.sum()) / users, float(after.received.sum()) / users
    return (
        f"A subscriber receives {now:,.3g} messages/s on average instead of {was:,.3g}; "
        f"{told['goodput']:.0%} of them are subscribed instead of {told['goodput_before']:.0%}."
    )
