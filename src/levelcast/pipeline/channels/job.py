"""The channel plan job: read rates and interest from a lake, compute a plan and its costs before and after (TH).

1. Read λ of every symbol from `rates` for the requested days: the mean, or the busiest interval.
2. Read the interest from `subscriptions`. A subscribed symbol without a message on those days has the rate 0.
3. Plan in this process up to `LOCAL_PAIRS` pairs of subscriber and symbol, above that on Spark, next to the data
   (`levelcast.pipeline.channels.spark_plan`).
4. Compute what each subscriber receives with the new plan and with the active one.

For a network, the plan contains every symbol of its directory (`levelcast.planner.user_load`). A day that is in the
lake twice, in two stripes, would count double: it is refused. `record` writes a row of `plans`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from levelcast.extras import arrow
from levelcast.pipeline.channels import spark_plan
from levelcast.pipeline.lake.defaults import LakeError
from levelcast.pipeline.lake.lake import Lake
from levelcast.pipeline.lake.tables import PLANS
from levelcast.planner.annealing import Effort, Progress
from levelcast.planner.costs import fault_of_maps
from levelcast.planner.files import RATES, StoredPlan, write_plan, write_table
from levelcast.planner.make import make_plan
from levelcast.planner.model import UNSENT, Floats, Limits, Plan, PlanError, Weights, from_pairs
from levelcast.planner.user_load import Reach, complete_plan, one_for_all, reach_of

LOCAL_PAIRS = 5_000_000
"""Up to this number of pairs, one process plans in seconds and in half a gigabyte."""
ONE_FOR_ALL = "one session for all"
CUSTOMERS = "customers.parquet"
_NAMED = 3


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Options of the requested plan."""

    days: tuple[str, ...] = ()
    """Days of the rates; none: the newest day."""
    busiest: bool = False
    """Use λ of the busiest interval of those days, not their mean."""
    symbols: frozenset[str] | None = None
    """Symbols of the network, which the plan must all contain; none: plan only subscribed symbols."""
    network: str = "the network"
    """Name of the network in messages."""
    skip_unknown: bool = False
    """Ignore subscriptions to symbols that the network does not have."""
    sessions: int = 1000
    groups: int = 50
    weights: Weights = Weights()  # noqa: RUF009  (frozen)
    effort: Effort = Effort.FAST
    seed: int = 0
    limits: Limits = Limits()  # noqa: RUF009  (frozen)
    """Limits of the network's lines, in records/s; one process plans with them."""
    spark: bool | None = None
    """Run the planner on Spark; none: decide by the number of pairs."""


@dataclass(frozen=True, slots=True)
class Made:
    """A plan, and what each user receives with it and with the plan before it."""

    stored: StoredPlan
    rates: Floats
    """Rates of the plan's flows."""
    users: list[str]
    before: Reach
    after: Reach
    days: tuple[str, ...]
    skipped: int
    """Ignored pairs: the network does not have their symbols."""

    @property
    def report(self) -> dict[str, Any]:
        return self.stored.report


# -- input ------------------------------------------------------------------------------------------------


def flow_rates(rows: DataFrame, *, busiest: bool = False) -> DataFrame:
    """Return `flow` and `rate` from rows of `rates`: over the active parts of the days, or at their peak."""
    if busiest:
        peak = (
            rows.groupBy("day", "start_s").agg(f.sum("messages").alias("all")).orderBy(f.desc("all"), "day", "start_s")
        )
        rows = rows.join(f.broadcast(peak.limit(1).drop("all")), ["day", "start_s"])
    spans = rows.groupBy("day").agg((f.max(f.col("start_s") + f.col("seconds")) - f.min("start_s")).alias("span"))
    span = spans.agg(f.sum("span").alias("span"))
    flows = rows.groupBy(f.col("symbol").alias("flow")).agg(f.sum("messages").alias("messages"))
    return flows.crossJoin(f.broadcast(span)).select("flow", (f.col("messages") / f.col("span")).alias("rate"))


def overlapping(tape: DataFrame) -> DataFrame:
    """Find symbols of a floor that two stripes have at one time of a day: a floor of a ring is in one stripe only, so
    the same day was loaded twice. Input: rows of `tape`; output: `day, venue, symbol, one, other` (the stripes)."""
    spans = (
        tape.filter("symbol is not null and kind in ('trade', 'quote', 'order')")
        .groupBy("day", "venue", "symbol", "kind", "stripe")
        .agg(f.min("ts_recv").alias("low"), f.max("ts_recv").alias("high"))
    )
    one, other = spans.alias("a"), spans.alias("b")
    same = [f.col(f"a.{name}").eqNullSafe(f.col(f"b.{name}")) for name in ("day", "venue", "symbol", "kind")]
    meets = (f.col("a.low") <= f.col("b.high")) & (f.col("b.low") <= f.col("a.high"))
    pairs = one.join(other, [*same, f.col("a.stripe") < f.col("b.stripe"), meets])
    return pairs.selectExpr("a.day", "a.venue", "a.symbol", "a.stripe as one", "b.stripe as other")


def chosen_days(lake: Lake, asked: Sequence[str]) -> tuple[str, ...]:
    """Return the days of the rates: the requested ones, or the newest."""
    known = sorted({file.day for file in lake.files("rates") if file.rows})
    if not known:
        raise LakeError(
            f"{lake.directory}: has no rates to plan from; run `levelcast pipeline run --input TAPE "
            f"--lake {lake.directory}`"
        )
    wanted = tuple(sorted(set(asked))) or (known[-1],)
    for day in wanted:
        if day not in known:
            told = known[0] if len(known) == 1 else f"{known[0]} to {known[-1]}"
            raise LakeError(f"{lake.directory}: no rates for {day}; available: {told}")
    return wanted


def check_overlap(spark: SparkSession, lake: Lake, days: Sequence[str]) -> None:
    """Refuse days with duplicate data in the lake. Only days with several stripes are checked."""
    stripes: dict[str, set[int]] = {}
    for file in lake.files("tape", days=days):
        stripes.setdefault(file.day, set()).add(file.stripe)
    several = [day for day, found in stripes.items() if len(found) > 1]
    if not several:
        return
    twice = overlapping(lake.read(spark, "tape", days=several)).orderBy("day", "symbol", "venue").limit(1).collect()
    if twice:
        day, venue, symbol, one, other = twice[0]
        raise LakeError(
            f"{lake.directory}: {day} is duplicated: {symbol} of {venue or 'no floor'} is in stripes {one} and {other} "
            "at the same time, so its rates would be double; plan from other days (--day), or load one of the two into "
            "another lake"
        )


def subscriptions(spark: SparkSession, lake: Lake) -> tuple[DataFrame, int]:
    """Return the pairs of `user` and `flow`, and their number."""
    files = lake.files("subscriptions")
    if not (rows := sum(file.rows for file in files)):
        raise LakeError(
            f"{lake.directory}: has no subscriptions; load them with `levelcast pipeline load "
            f"subscriptions FILE --lake {lake.directory}`"
        )
    return lake.read_files(spark, "subscriptions", files).select("user", "flow"), rows


# -- the job ----------------------------------------------------------------------------------------------


def execute(
    spark: SparkSession,
    lake: Lake,
    asked: PlanRequest,
    current: StoredPlan | None = None,
    progress: Progress = lambda *_: None,
) -> Made:
    """Compute the plan for a lake. `current` is the active plan; none: one session with everything."""
    begun, made_ns = time.perf_counter(), time.time_ns()
    days = chosen_days(lake, asked.days)
    pairs, rows = subscriptions(spark, lake)
    check_overlap(spark, lake, days)
    rates = flow_rates(lake.read(spark, "rates", days=days), busiest=asked.busiest)
    skipped = 0
    if asked.symbols is not None:
        pairs, skipped = _known(spark, pairs, rates, asked, lake)
    on_spark = rows > LOCAL_PAIRS if asked.spark is None else asked.spark
    if not on_spark and rows > LOCAL_PAIRS:
        raise PlanError(
            f"{lake.directory}: has {rows:,} subscriptions, but one process plans at most {LOCAL_PAIRS:,} from a "
            "lake; omit the engine, or plan on Spark (--engine spark)"
        )
    plan = _plan_on_spark if on_spark else _plan_here
    stored, values, users, before, after = plan(pairs, rates, asked, current, progress)
    cost_before, cost = before.costs(asked.weights), after.costs(asked.weights)
    report = {
        "made_ns": made_ns,
        "plan": digest(stored),
        "days": list(days),
        "rates": "busiest" if asked.busiest else "mean",
        "engine": "spark" if on_spark else "local",
        "seed": asked.seed,
        "groups_allowed": asked.groups,
        "sessions_allowed": asked.sessions,
        "alpha": asked.weights.alpha,
        "beta": asked.weights.beta,
        "flows_sent": int((stored.plan.session >= 0).sum()),
        "flows_nobody_wants": int((stored.plan.session >= 0).sum()) - stored.report["wanted"],
        "users": len(users),
        "pairs": stored.report["pairs"],
        "sessions": stored.plan.n_sessions,
        "groups": stored.plan.n_groups,
        "relative_cost": cost.relative,
        **asdict(cost),
        **{name: float(getattr(after, name).sum()) for name in ("asked", "accepted", "received")},
        "before": ONE_FOR_ALL if current is None else digest(current),
        "sessions_before": before.sessions,
        "groups_before": before.groups,
        **{f"{name}_before": float(getattr(before, name).sum()) for name in ("accepted", "received")},
        **{f"{name}_before": getattr(cost_before, name) for name in ("goodput", "c_w", "c_x")},
        "seconds": round(time.perf_counter() - begun, 3),
    }
    return Made(replace(stored, report=report), values, users, before, after, days, skipped)


def _known(
    spark: SparkSession, pairs: DataFrame, rates: DataFrame, asked: PlanRequest, lake: Lake
) -> tuple[DataFrame, int]:
    """Return the pairs with symbols that the network has, and the number of other pairs."""
    assert asked.symbols is not None
    symbols = spark.createDataFrame(arrow().table({"flow": sorted(asked.symbols)}))
    traded = rates.filter("rate > 0").select("flow")
    if not traded.join(f.broadcast(symbols), "flow", "left_semi").limit(1).count():
        others = [row.flow for row in traded.orderBy("flow").limit(_NAMED + 1).collect()]
        raise PlanError(
            f"{lake.directory}: belongs to another directory: no floor of {asked.network} trades its symbols, such as "
            f"{_some(others)}"
        )
    unknown = pairs.join(f.broadcast(symbols), "flow", "left_anti")
    count = unknown.count()
    if not count:
        return pairs, 0
    names = [row.flow for row in unknown.select("flow").distinct().orderBy("flow").limit(_NAMED + 1).collect()]
    if not asked.skip_unknown:
        raise PlanError(
            f"{lake.directory}: {count:,} subscriptions are for symbols that no floor of {asked.network} trades: "
            f"{_some(names)}; correct them, or ignore them with --skip-unknown"
        )
    return pairs.join(f.broadcast(symbols), "flow", "left_semi"), count


_Planned = tuple[StoredPlan, Floats, list[str], Reach, Reach]


def _plan_here(
    pairs: DataFrame, rates: DataFrame, asked: PlanRequest, current: StoredPlan | None, progress: Progress
) -> _Planned:
    """Plan in this process, with all pairs."""
    pc = arrow("pyarrow.compute")
    told, wants = rates.toArrow(), pairs.toArrow()
    sent = asked.symbols if asked.symbols is not None else told["flow"].to_pylist()
    flows = arrow().array(sorted({*pc.unique(wants["flow"]).to_pylist(), *sent}), arrow().string())
    at = pc.index_in(flows, value_set=told["flow"].combine_chunks())
    values = np.zeros(len(flows))
    here = np.flatnonzero(at.is_valid().to_numpy(zero_copy_only=False))
    values[here] = told["rate"].to_numpy()[at.drop_null().to_numpy()]
    users = sorted(pc.unique(wants["user"]).to_pylist())
    user_at = pc.index_in(wants["user"], value_set=arrow().array(users, arrow().string()))
    flow_at = pc.index_in(wants["flow"], value_set=flows)
    instance = from_pairs(values, user_at.to_numpy(), flow_at.to_numpy(), len(users))
    make = make_plan if asked.symbols is None else complete_plan
    plan = make(
        instance, asked.sessions, asked.groups,
        effort=asked.effort, weights=asked.weights, seed=asked.seed, progress=progress, limits=asked.limits,
    )  # fmt: skip
    old = one_for_all(instance) if current is None else _of_flows(current, flows)
    facts = {"wanted": int(instance.wanted.sum()), "pairs": len(instance.users)}
    return _stored(plan, flows, facts), values, users, reach_of(instance, old), reach_of(instance, plan)


def _plan_on_spark(
    pairs: DataFrame, rates: DataFrame, asked: PlanRequest, current: StoredPlan | None, _: Progress
) -> _Planned:
    """Plan on Spark, next to the data. Flows without a subscriber get their own group, if there are two."""
    if asked.effort is not Effort.FAST:
        raise PlanError("Spark supports only the effort fast")
    if not asked.limits.none:
        raise PlanError("Spark does not plan for line rates; use --engine local")
    columns = spark_plan.count_columns(*spark_plan.gather_columns(pairs, rates, missing=0.0))
    try:
        wanted = columns.rows.select("flow")
        others = rates.join(wanted, "flow", "left_anti")
        rest: list[str] = []
        rest_rates = np.empty(0)
        if asked.symbols is None:
            rest_rate = float(others.agg(f.sum("rate")).collect()[0][0] or 0.0)
        else:
            symbols = pairs.sparkSession.createDataFrame(arrow().table({"flow": sorted(asked.symbols)}))
            others = others.join(f.broadcast(symbols), "flow", "left_semi")
            told = {row.flow: row.rate for row in others.collect()}
            rest = sorted(asked.symbols.difference(wanted.toArrow()["flow"].to_pylist()))
            rest_rates = np.array([told.get(flow, 0.0) for flow in rest])
            rest_rate = float(rest_rates.sum())
        if rest and asked.sessions < 2:
            raise PlanError("a plan on Spark needs at least two sessions: one is for flows without a subscriber")
        own = bool(rest) and asked.groups > 1
        most = asked.sessions - bool(rest)
        made = spark_plan.plan_columns(columns, most, asked.groups - own, asked.weights, asked.seed)
        if (wrong := fault_of_maps(made.plan)) is not None:
            raise PlanError(f"the plan is not legal: {wrong}")
        if current is None:
            heard = np.full(len(columns.users), columns.rate + rest_rate)
            before = Reach(made.reach.asked, heard, heard, columns.rate, 1, 1)
        else:
            before = spark_plan.reach_on_spark(columns, current.flows.cast(arrow().string()), current.plan, others)
    finally:
        columns.rows.unpersist()
    facts = {"wanted": columns.flows, "pairs": columns.pairs}
    if not rest:
        return _stored(made.plan, made.flows, facts), made.rates, made.users, before, made.reach
    pa = arrow()
    flows = pa.concat_arrays([made.flows, pa.array(rest, pa.string())])
    session = np.append(made.plan.session, np.full(len(rest), made.plan.n_sessions, np.int32)).astype(np.int32)
    group = np.append(made.plan.group, made.plan.n_groups if own else 0).astype(np.int32)
    received = made.reach.received if own else made.reach.received + rest_rate
    plan = Plan(session, group)
    after = Reach(made.reach.asked, made.reach.accepted, received, columns.rate, plan.n_sessions, plan.n_groups)
    return _stored(plan, flows, facts), np.append(made.rates, rest_rates), made.users, before, after


def _of_flows(current: StoredPlan, flows: Any) -> Plan:
    """Return the active plan for these flows; a flow that it does not contain is in its first session, as at edges."""
    pc = arrow("pyarrow.compute")
    at = pc.fill_null(pc.index_in(flows, value_set=current.flows.cast(arrow().string())), UNSENT)
    place = at.to_numpy(zero_copy_only=False)
    return Plan(np.where(place >= 0, current.plan.session[place], 0).astype(np.int32), current.plan.group)


def _stored(plan: Plan, flows: Any, facts: dict[str, Any]) -> StoredPlan:
    sessions, groups = (np.arange(number, dtype=np.int32) for number in (plan.n_sessions, plan.n_groups))
    return StoredPlan(plan, flows, sessions, groups, facts)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")


# -- output -----------------------------------------------------------------------------------------------


def digest(stored: StoredPlan) -> str:
    """Return a hash of the map of flows to sessions and groups that does not depend on their order."""
    group_of = stored.group_ids[stored.plan.group]
    places = zip(stored.flows.to_pylist(), stored.plan.session.tolist(), strict=True)
    hashed = blake2b(digest_size=8)
    for flow, session in sorted((str(flow), session) for flow, session in places if session >= 0):
        hashed.update(f"{flow}\t{stored.session_ids[session]}\t{group_of[session]}\n".encode())
    return hashed.hexdigest()


def write(made: Made, directory: Path) -> None:
    """Write the plan's directory, with the load of each user and the rates for `plan apply --rates`."""
    before, after = made.before, made.after

    def extra(folder: Path) -> None:
        customers = {
            "user": arrow().array(made.users, arrow().string()),
            "asked": after.asked,
            "accepted": after.accepted,
            "received": after.received,
            "accepted_before": before.accepted,
            "received_before": before.received,
        }
        write_table(folder / CUSTOMERS, customers)
        write_table(folder / RATES, {"flow": made.stored.flows, "rate": made.rates})

    write_plan(directory, made.stored, extra)


def record(spark: SparkSession, lake: Lake, made: Made) -> None:
    """Add a row to `plans`."""
    told = dict(made.report)
    days = [date.fromisoformat(day) for day in made.days]
    told |= {"first_day": days[0], "last_day": days[-1], "flows": told["flows_sent"]}
    told |= {"cost": told["c_w"], "cost_before": told["c_w_before"]}
    values = tuple(told[name] for name in PLANS.names)
    lake.append("plans", spark.createDataFrame([values], PLANS.ddl).coalesce(1))
