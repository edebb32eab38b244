"""Compute a channel plan on Spark: the pairs of user and flow stay on the executors, the driver reads a sample.

1. Collect the users of each flow into one row (`columns`), with the flow's rate.
2. Plan a sample of the flows, drawn by a hash of their names, on the driver, with rates scaled up to the total.
3. Insert every part of the columns into the sample's groups, each flow at the lowest cost; the sample stays.
4. Split every group into sessions on the executors: about as many as the sample's plan has in that group.

The result has one row per flow. The costs are exact: each group reports the rates that each of its users requested,
accepts and receives. `reach_on_spark` computes the cost of another plan for the same interest in the same way.
Deviation from the local search: groups are not annealed over all flows, and a group's sessions are not exchanged with
another's; `docs/planner.md` states the cost of this.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import fsum
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from levelcast.extras import arrow
from levelcast.planner.annealing import Effort
from levelcast.planner.cluster import ClusterLimits, PlanShape, cluster, cluster_both, seed_for
from levelcast.planner.costs import Costs, received_by_user
from levelcast.planner.make import make_plan
from levelcast.planner.model import UNSENT, Floats, Instance, Ints, Plan, PlanError, Weights, tidy
from levelcast.planner.user_load import Reach

SAMPLE = 20_000
"""Number of flows that the driver plans."""
PARTS = 16
"""Partitions of the flows, each sorted, so that equal interest gives an equal plan on any machine."""


@dataclass(frozen=True, slots=True)
class SparkPlan:
    """A plan with the names of its flows (all of them subscribed), and its cost."""

    flows: Any
    rates: Floats
    plan: Plan
    costs: Costs
    reach: Reach
    users: list[Any]
    n_pairs: int


@dataclass(frozen=True, slots=True)
class Columns:
    """The subscribed flows on the executors, and their totals."""

    rows: DataFrame
    """`flow`, `rate` and `users`, the numbers of the users that want it."""
    users: list[Any]
    """Names of the users, by number."""
    flows: int
    pairs: int
    rate: float


def read_table(spark: SparkSession, path: Path, columns: tuple[str, ...]) -> DataFrame:
    """Read Parquet or CSV with these columns."""
    if not path.exists():
        raise PlanError(f"{path}: file not found; check the path")
    where = str(path.resolve())
    if path.suffix in (".parquet", ".pq") or path.is_dir():
        table = spark.read.parquet(where)
    else:
        table = spark.read.option("header", True).option("inferSchema", True).csv(where)
    for column in columns:
        if column not in table.columns:
            raise PlanError(f"{path}: column {column!r} not found; required: {' and '.join(columns)}")
    return table.select(*columns)


def gather_columns(interest: DataFrame, rates: DataFrame, missing: float | None = None) -> tuple[DataFrame, list[Any]]:
    """Return one row per subscribed flow (name, rate, numbers of its users), and the users' names by number.

    With `missing`, the rates are not checked (one per flow, none below 0), and a flow without one gets `missing`.
    """
    if missing is None:
        _check(rates.groupBy("flow").count().filter("count > 1"), "flow {flow!r} has {count} rates")
        _check(rates.filter("rate is null or isnan(rate) or rate < 0"), "flow {flow!r} has the rate {rate}")
    names = sorted(row.user for row in interest.select("user").distinct().toLocalIterator())
    spark = interest.sparkSession
    numbered = spark.createDataFrame([(name, number) for number, name in enumerate(names)], ["user", "number"])
    pairs = interest.join(f.broadcast(numbered), "user").select("flow", f.col("number").cast("int").alias("number"))
    users = pairs.groupBy("flow").agg(f.sort_array(f.collect_list("number")).alias("users"))
    columns = users.join(rates.select("flow", f.col("rate").cast("double")), "flow", "left")
    if missing is not None:
        columns = columns.fillna({"rate": missing})
    columns = columns.repartition(PARTS, "flow").sortWithinPartitions("flow").persist()
    if missing is None:
        _check(columns.filter("rate is null"), "flow {flow!r} has no rate")
    _check(
        columns.filter(f.size(f.array_distinct("users")) < f.size("users")),
        "flow {flow!r} is paired more than once with a user",
    )
    return columns, names


def _check(wrong: DataFrame, sentence: str) -> None:
    found = wrong.limit(1).collect()
    if found:
        raise PlanError(sentence.format(**found[0].asDict()))


def plan_on_spark(
    interest: DataFrame, rates: DataFrame, sessions: int, groups: int, weights: Weights, seed: int
) -> SparkPlan:
    """Compute a legal plan of an interest that is too large for the driver."""
    columns = count_columns(*gather_columns(interest, rates))
    try:
        return plan_columns(columns, sessions, groups, weights, seed)
    finally:
        columns.rows.unpersist()


def count_columns(rows: DataFrame, users: list[Any]) -> Columns:
    # As a decimal, the sum of the rates does not depend on the order of its parts.
    total = rows.agg(
        f.count("*").alias("flows"),
        f.sum(f.col("rate").cast("decimal(28,12)")).cast("double").alias("rate"),
        f.sum(f.size("users")).alias("pairs"),
    ).collect()[0]
    if not total.flows:
        raise PlanError("no subscriptions; nothing to plan")
    return Columns(rows, users, int(total.flows), int(total.pairs), float(total.rate))


def plan_columns(columns: Columns, sessions: int, groups: int, weights: Weights, seed: int) -> SparkPlan:
    """Run steps 2 to 4."""
    rows, n_users = columns.rows, len(columns.users)
    every = max(1, columns.flows // SAMPLE)
    drawn = rows.filter(f.pmod(f.xxhash64("flow", f.lit(seed)), f.lit(every)) == 0).toArrow()
    if drawn.num_rows < groups:
        drawn = rows.limit(max(groups, 1)).toArrow()
    sample = scaled(instance_of(drawn, n_users), columns.rate)
    plan = make_plan(sample, sessions, groups, effort=Effort.FAST, weights=weights, seed=seed)
    start = (sample.rates, sample.start, sample.users, plan.flow_group())
    room = np.bincount(plan.group, minlength=plan.n_groups)

    def to_groups(batches: Iterator[Any]) -> Iterator[Any]:
        return insert(batches, Instance(*start[:3], n_users), start[3], plan.n_groups, seed)

    def to_sessions(key: tuple[Any, ...], table: Any) -> Any:
        return split_group(table, int(key[0].as_py()), n_users, int(room[key[0].as_py()]), seed)

    flow_type = rows.schema["flow"].dataType.simpleString()
    grouped = rows.mapInArrow(to_groups, f"flow {flow_type}, rate double, users array<int>, group int")
    placed = grouped.groupBy("group").applyInArrow(
        to_sessions, f"flow {flow_type}, rate double, group int, session int, {_HEARD_DDL}"
    )
    table = placed.toArrow()
    group = table["group"].to_numpy().astype(np.int64)
    final = tidy(group * sessions + table["session"].to_numpy(), np.arange(plan.n_groups * sessions) // sessions)
    reach = _reach(table, columns, final.n_sessions, final.n_groups)
    flows = table["flow"].combine_chunks()
    rates = np.asarray(table["rate"].to_numpy(), np.float64)
    return SparkPlan(flows, rates, final, reach.costs(weights), reach, columns.users, columns.pairs)


def reach_on_spark(columns: Columns, flows: Any, plan: Plan, rest: DataFrame) -> Reach:
    """Return the load of the users with another plan; flows that it does not contain are in its first session.

    `rest` has `flow` and `rate` of the flows that are sent without a subscriber.
    """
    spark, n_users = columns.rows.sparkSession, len(columns.users)
    places = arrow().table({"flow": flows, "session": plan.session, "group": plan.flow_group()})
    known = spark.createDataFrame(places).filter("session >= 0")
    first = int(plan.group[0]) if plan.n_sessions else 0
    nobody = f.array().cast("array<int>").alias("users")
    every = columns.rows.select("flow", "rate", "users").union(rest.select("flow", "rate", nobody))
    rows = every.join(known, "flow", "left").fillna({"session": 0, "group": first})

    def heard(_: tuple[Any, ...], table: Any) -> Any:
        label = np.unique(table["session"].to_numpy(), return_inverse=True)[1].astype(np.int32)
        return arrow().table(_heard(instance_of(table, n_users), label, rows=1))

    found = rows.select("rate", "users", f.col("session").cast("int"), "group").groupBy("group")
    return _reach(found.applyInArrow(heard, _HEARD_DDL).toArrow(), columns, plan.n_sessions, plan.n_groups)


_HEARD = ("asked", "accepted", "received")
_HEARD_DDL = ", ".join(f"{name} array<double>" for name in _HEARD)


def _heard(flows: Instance, session: Ints, rows: int) -> dict[str, Any]:
    """Return the rates that the users of one group request, accept and receive: arrays by user in the first row."""
    plan = Plan(session, np.zeros(int(session.max()) + 1, np.int32))
    pa = arrow()
    kind = pa.list_(pa.float64())
    return {
        name: pa.array([values, *[None] * (rows - 1)], kind)
        for name, values in zip(_HEARD, received_by_user(flows, plan), strict=True)
    }


def _reach(table: Any, columns: Columns, sessions: int, groups: int) -> Reach:
    """Return the sum over the groups."""
    n_users = len(columns.users)

    def by_user(name: str) -> Floats:
        parts = table[name].drop_null().combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(-1, n_users)
        return np.array([fsum(part) for part in parts.T])  # independent of the order of the groups

    asked, accepted, received = map(by_user, _HEARD)
    return Reach(asked, accepted, received, columns.rate, sessions, groups)


def instance_of(table: Any, n_users: int) -> Instance:
    """Convert rows of flow, rate and users to an instance."""
    users = table["users"].combine_chunks()
    lengths = arrow("pyarrow.compute").list_value_length(users).to_numpy(zero_copy_only=False)
    start = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    flat = np.asarray(users.flatten().to_numpy(zero_copy_only=False), np.int32)
    return Instance(np.asarray(table["rate"].to_numpy(), np.float64), start, flat, n_users)


def scaled(sample: Instance, rate: float) -> Instance:
    """Scale the sample to the total rate, so that its groups have the weight of the final groups."""
    have = float(sample.rates.sum())
    return Instance(sample.rates * (rate / have if have else 1.0), sample.start, sample.users, sample.n_users)


def insert(batches: Iterator[Any], sample: Instance, at: Ints, groups: int, seed: int) -> Iterator[Any]:
    """Yield each flow's group: the lowest cost next to the sample; the sample's flows stay in their groups."""
    pa = arrow()
    for batch in batches:
        table = pa.Table.from_batches([batch])
        both = joined(sample, instance_of(table, sample.n_users))
        new = both.n_flows - sample.n_flows
        label = np.concatenate([at, np.full(new, UNSENT, np.int32)]).astype(np.int32)
        rules = ClusterLimits()
        rules.home, rules.weight = label.copy(), np.ones(len(label), np.int32)
        # One level: a slot is a group here. The sample may not leave its slots, so only the new flows move.
        cluster_both(both, label, PlanShape(groups, 1, groups), Weights(0, 1), seed_for(seed, 7), np.zeros(2), rules)
        column = pa.array(label[sample.n_flows :], pa.int32())
        yield from table.append_column("group", column).select(["flow", "rate", "users", "group"]).to_batches()


def joined(one: Instance, other: Instance) -> Instance:
    """Return the flows of both, in this order."""
    start = np.concatenate([one.start, one.start[-1] + other.start[1:]])
    rates, users = np.concatenate([one.rates, other.rates]), np.concatenate([one.users, other.users])
    return Instance(rates, start, users, one.n_users)


def split_group(table: Any, group: int, n_users: int, room: int, seed: int) -> Any:
    """Return the sessions of one group, by greedy insertion and descent; the first row has the load of its users."""
    pa = arrow()
    table = table.sort_by("flow")  # rows arrive in any order
    flows = instance_of(table, n_users)
    label = np.full(flows.n_flows, UNSENT, np.int32)
    cluster(flows, label, max(room, 1), seed_for(seed, 1000 + group), np.zeros(3))
    return pa.table(
        {
            "flow": table["flow"],
            "rate": table["rate"],
            "group": pa.array(np.full(flows.n_flows, group), pa.int32()),
            "session": pa.array(label, pa.int32()),
            **_heard(flows, label, flows.n_flows),
        }
    )
