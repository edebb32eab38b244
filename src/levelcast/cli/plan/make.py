"""`levelcast plan`: assign symbols to sessions and sessions to multicast groups (TH)."""

from __future__ import annotations

import enum
import time
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from levelcast.cli.main import COMMANDS
from levelcast.cli.options import AsJson, option
from levelcast.cli.output import print_json, table
from levelcast.cli.plan import apply, from_lake
from levelcast.cli.plan.options import Aggregation, Alpha, Beta, Seed, WeightsFile, weights_of
from levelcast.cli.plan.show import bar, facts, tell
from levelcast.cli.plan.spark import make_on_spark
from levelcast.extras import arrow
from levelcast.planner.annealing import Effort
from levelcast.planner.constrained import differences, replan
from levelcast.planner.costs import fault, received_by_user, require_legal
from levelcast.planner.files import (
    NamedInstance,
    StoredPlan,
    for_problem,
    read_plan,
    read_problem,
    write_plan,
    write_problem,
)
from levelcast.planner.generator import Model, generate
from levelcast.planner.make import Algorithm, check_numbers, make_plan
from levelcast.planner.model import UNSENT, Limits, Plan, PlanError
from levelcast.planner.plots import plot_excess, plot_interest

app = typer.Typer(help=COMMANDS["plan"].help, no_args_is_help=True)


app.command()(apply.apply)
app.command()(apply.current)
app.command(name="from-lake")(from_lake.from_lake)


class Engine(enum.StrEnum):
    """Engine that computes a plan."""

    LOCAL = "local"
    SPARK = "spark"


Directory = Annotated[Path, typer.Argument(metavar="DIR", help="Directory of the plan.")]
Interest = Annotated[Path, option("Parquet or CSV with the columns user and flow.", metavar="FILE")]
Rates = Annotated[Path, option("Parquet or CSV with the columns flow and rate.", metavar="FILE")]


_TH = Model()


@app.command()
def make(
    interest: Interest,
    rates: Rates,
    out: Annotated[Path, option("Directory for the plan.", "--out", "-o", metavar="DIR")],
    groups: Annotated[int, option("Maximum number of multicast groups.")] = 50,
    sessions: Annotated[int, option("Maximum number of sessions.")] = 1000,
    algorithm: Annotated[Algorithm, option("Levelcast's, or one of the paper's (TH §4.3).")] = Algorithm.LEVELCAST,
    effort: Annotated[Effort, option("Search effort of the algorithm levelcast.")] = Effort.FAST,
    alpha: Alpha = None,
    beta: Beta = None,
    aggregation: Aggregation = None,
    weights_file: WeightsFile = None,
    engine: Annotated[Engine, option("Engine that computes the plan.")] = Engine.LOCAL,
    master: Annotated[str, option("With --engine spark: Spark master.", metavar="URL")] = "local[2]",
    seed: Seed = 0,
    old: Annotated[
        Path | None, option("Change this plan instead of starting from scratch.", "--from", metavar="DIR")
    ] = None,
    max_moved: Annotated[
        int, option("With --from: maximum number of flows that change session; 0 only assigns new flows.", min=0)
    ] = 0,
    session_rate: Annotated[
        float | None, option("Maximum session rate, as in --rates.", metavar="RATE", min=0, unset="none")
    ] = None,
    group_rate: Annotated[
        float | None, option("Maximum group rate, as in --rates.", metavar="RATE", min=0, unset="none")
    ] = None,
    together: Annotated[
        list[str] | None, option("Keep these flows in one session (repeatable).", metavar="A,B,…")
    ] = None,
    apart: Annotated[
        list[str] | None, option("Keep these flows in different sessions (repeatable).", metavar="A,B,…")
    ] = None,
    plots: Annotated[bool, option("Also write interest.svg and excess.svg.", "--plots")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a plan: write flow_session.parquet, session_group.parquet and report.json to DIR, all of them or none.

    Flows without users are in no session; `levelcast plan apply` adds them in one more session. The result depends on
    the seed and the effort, not on the run time.

    Examples:

    levelcast plan make --interest interest.csv --rates rates.csv --groups 50 --sessions 1000 --out plan

    levelcast plan make --interest interest.csv --rates rates.csv --from plan --max-moved 100 --out plan-2
    """
    check_numbers(sessions, groups)
    weights = weights_of(alpha, beta, aggregation, weights_file)
    asked = {
        "algorithm": str(algorithm), "effort": str(effort) if algorithm is Algorithm.LEVELCAST else None,
        "seed": seed, "groups_allowed": groups, "sessions_allowed": sessions, "alpha": weights.alpha,
        "beta": weights.beta,
    }  # fmt: skip
    if engine is Engine.SPARK:
        if algorithm is not Algorithm.LEVELCAST or effort is not Effort.FAST:
            raise PlanError("the engine spark supports only the algorithm levelcast with the effort fast")
        if old or together or apart or plots or session_rate is not None or group_rate is not None:
            raise PlanError("the engine spark does not support --from, limits, pins or plots; use the engine local")
        tell(make_on_spark(interest, rates, out, asked, weights, master), f"{out}", as_json)
        return
    problem = read_problem(interest, rates)
    limits = Limits(
        float("inf") if session_rate is None else session_rate,
        float("inf") if group_rate is None else group_rate,
        tuple(tuple(_flow_numbers(problem, each)) for each in together or ()),
        tuple(pair for each in apart or () for pair in combinations(_flow_numbers(problem, each), 2)),
    )
    begun = time.perf_counter()
    with bar(as_json) as report:
        if old is None:
            plan = make_plan(
                problem.instance, sessions, groups,
                algorithm=algorithm, effort=effort, weights=weights, limits=limits, seed=seed, progress=report,
            )  # fmt: skip
            session_ids, group_ids = np.arange(plan.n_sessions), np.arange(plan.n_groups)
        else:
            before = read_plan(old)
            change = replan(
                problem.instance, for_problem(before, problem), sessions, groups, max_moved, weights, limits, seed,
                report,
            )  # fmt: skip
            plan = require_legal(problem.instance, change.plan, limits)
            session_ids = _continued(before.session_ids, change.old_session)
            group_ids = _continued(before.group_ids, change.old_group)
            asked |= {"from": str(old), "max_moved": max_moved, "moved": change.moved}
    seconds = time.perf_counter() - begun
    found = asked | facts(problem.instance, plan, weights) | {"seconds": round(seconds, 3)}
    stored = StoredPlan(plan, problem.flows, session_ids.astype(np.int32), group_ids.astype(np.int32), found)
    write_plan(out, stored, lambda made: _plot(problem, plan, made) if plots else None)
    tell(found, f"{out}", as_json)


@app.command()
def show(directory: Directory, as_json: AsJson = False) -> None:
    """Show a plan: its cost when it was made, and its largest groups.

    Example:

    levelcast plan show plan
    """
    stored = read_plan(directory)
    plan = stored.plan
    sessions = np.bincount(plan.group, minlength=plan.n_groups)
    flows = np.bincount(plan.flow_group(), minlength=plan.n_groups)
    if as_json:
        by_group = [
            {"group": int(g), "sessions": int(s), "flows": int(f)}
            for g, s, f in zip(stored.group_ids, sessions, flows, strict=True)
        ]
        print_json({"report": stored.report, "groups": by_group}, ensure_ascii=False)
        return
    tell(stored.report, str(directory), False)
    typer.echo("Largest groups by number of flows:")
    largest = np.argsort(-flows, kind="stable")[:10]
    rows = ((str(stored.group_ids[g]), int(sessions[g]), int(flows[g])) for g in largest)
    Console().print(table((">group", ">sessions", ">flows"), rows))


@app.command()
def diff(
    one: Annotated[Path, typer.Argument(metavar="A", help="Directory of the first plan.")],
    other: Annotated[Path, typer.Argument(metavar="B", help="Directory of the second plan.")],
    as_json: AsJson = False,
) -> None:
    """Count the flows that plans A and B assign differently. Exit code 1 if flows or sessions differ.

    Sessions are compared by the flows in them, not by their numbers.

    Example:

    levelcast plan diff plan plan-2
    """
    a, b = read_plan(one), read_plan(other)
    pa, pc = arrow(), arrow("pyarrow.compute")
    names, others = a.flows.cast(pa.string()), b.flows.cast(pa.string())
    at = pc.fill_null(pc.index_in(names, value_set=others), UNSENT).to_numpy(zero_copy_only=False)
    here = np.flatnonzero(at >= 0)
    sessions, groups = differences(a.plan, b.plan, np.stack([here, at[here]], axis=1))
    found = {
        "flows_only_in_a": len(names) - len(here),
        "flows_only_in_b": len(others) - len(here),
        "flows_in_both": len(here),
        "in_another_session": sessions,
        "in_another_group": groups,
        "sessions": [a.plan.n_sessions, b.plan.n_sessions],
        "groups": [a.plan.n_groups, b.plan.n_groups],
        "relative_cost": [a.report.get("relative_cost"), b.report.get("relative_cost")],
    }
    if as_json:
        print_json(found)
    else:
        typer.echo(
            f"{len(here):,} flows are in both plans: {sessions:,} of them in another session, {groups:,} in another "
            f"group. {len(names) - len(here):,} flows are only in {one}, {len(others) - len(here):,} only in {other}."
        )
    if sessions or len(names) != len(others) or len(here) != len(names):
        raise typer.Exit(1)


@app.command()
def evaluate(
    directory: Directory,
    interest: Interest,
    rates: Rates,
    alpha: Alpha = None,
    beta: Beta = None,
    aggregation: Aggregation = None,
    weights_file: WeightsFile = None,
    plots: Annotated[
        Path | None, option("Write interest.svg and excess.svg to this directory.", metavar="DIR", unset="none")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compute the cost of a plan for these users and rates. Exit code 1 if it is not legal for them (TH §2).

    Example:

    levelcast plan evaluate plan --interest today.csv --rates rates.csv
    """
    weights = weights_of(alpha, beta, aggregation, weights_file)
    problem = read_problem(interest, rates)
    plan = for_problem(read_plan(directory), problem)
    wrong = fault(problem.instance, plan)
    found = facts(problem.instance, plan, weights) | {"legal": wrong is None, "fault": wrong}
    asked, _, received = received_by_user(problem.instance, plan)
    if len(asked):
        excess = (received - asked) / max(float(problem.instance.rates[problem.instance.wanted].sum()), 1e-300)
        least, median, most = np.quantile(excess, [0, 0.5, 1]).tolist()
        found["excess_of_users"] = {"least": least, "median": median, "most": most}
    if plots is not None:
        plots.mkdir(parents=True, exist_ok=True)
        _plot(problem, plan, plots)
    tell(found, str(directory), as_json)
    if wrong is not None:
        typer.echo(f"levelcast: {directory}: not legal for these users and rates: {wrong}", err=True)
        raise typer.Exit(1)


@app.command(name="generate")
def generate_files(
    out: Annotated[Path, option("Directory for interest.parquet and rates.parquet.", "--out", "-o", metavar="DIR")],
    flows: Annotated[int, option("Number of symbols.")] = _TH.flows,
    users: Annotated[int, option("Number of users.")] = _TH.users,
    markets: Annotated[int, option("Number of markets; interest in the i-th is ∝ 1/i.")] = _TH.markets,
    markets_per_user: Annotated[int, option("Number of markets that a user follows.")] = _TH.markets_per_user,
    share_taken: Annotated[
        float, option("Fraction of a market's symbols that a user follows.", metavar="RATIO")
    ] = _TH.share_taken,
    head: Annotated[float, option("Fraction of a market's symbols that are its head.", metavar="RATIO")] = _TH.head,
    head_share: Annotated[
        float, option("Fraction of a market's trades in its head symbols.", metavar="RATIO")
    ] = _TH.head_share,
    seed: Seed = 0,
    plots: Annotated[bool, option("Also draw the interest matrix (TH Fig. 4).", "--plots")] = False,
) -> None:
    """Generate the benchmark of TH §5.1, with its numbers as defaults.

    Example:

    levelcast plan generate --out benchmark --seed 1
    """
    model = Model(flows, users, markets, markets_per_user, share_taken, head, head_share)
    instance = generate(model, seed)
    write_problem(out, instance)
    if plots:
        plot_interest(instance, out / "interest.svg")
    typer.echo(f"{out}: {flows:,} flows, {users:,} users, {len(instance.users):,} pairs of user and flow")


def _flow_numbers(problem: NamedInstance, names: str) -> list[int]:
    """Return the numbers of the flows in `A,B,C`."""
    pa, pc = arrow(), arrow("pyarrow.compute")
    listed = [name.strip() for name in names.split(",") if name.strip()]
    at = pc.index_in(pa.array(listed, pa.string()), value_set=problem.flows.cast(pa.string())).to_pylist()
    for name, number in zip(listed, at, strict=True):
        if number is None:
            raise PlanError(f"flow to pin not found: {name!r}")
    return [int(number) for number in at]


def _continued(old_ids: Any, old_index: Any) -> Any:
    """Return the old ids of what continues, and new ids above them for the rest."""
    new = old_index == UNSENT
    ids = np.where(new, 0, old_ids[old_index]) if len(old_ids) else np.zeros(len(old_index), np.int64)
    ids[new] = (int(old_ids.max()) + 1 if len(old_ids) else 0) + np.arange(int(new.sum()))
    return ids


def _plot(problem: NamedInstance, plan: Plan, directory: Path) -> None:
    plot_interest(problem.instance, directory / "interest.svg")
    plot_excess(problem.instance, plan, directory / "excess.svg")
