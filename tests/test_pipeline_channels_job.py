"""The plan job: rates and overlaps on a handful of rows, and the whole of it on a small lake with real Spark."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import pytest

from levelcast.extras import arrow
from levelcast.pipeline.channels import job as channels_job
from levelcast.pipeline.channels.job import PlanRequest, check_overlap, execute, flow_rates, overlapping, record, write
from levelcast.pipeline.derive.rates import SECONDS
from levelcast.pipeline.lake.defaults import LakeError
from levelcast.pipeline.lake.lake import Lake
from levelcast.pipeline.lake.tables import TABLES
from levelcast.planner.files import StoredPlan, read_plan, read_rates
from levelcast.planner.generator import generate
from levelcast.planner.model import Instance, Plan, PlanError
from levelcast.planner.user_load import one_for_all, reach_of
from tests.plan_parts import SMALL
from tests.spark_parts import spark

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

__all__ = ["spark"]

pytestmark = pytest.mark.timeout(600)

DAY, NEXT = date(2026, 11, 16), date(2026, 11, 17)
RATES = "day date, symbol string, start_s int, seconds int, messages long"
TAPE = "day date, venue string, symbol string, kind string, stripe int, ts_recv long"


def rate_rows(spark: Any, *rows: tuple[date, str, int, int]) -> Any:
    return spark.createDataFrame(
        [(day, symbol, start, SECONDS, count) for day, symbol, start, count in rows], RATES
    ).selectExpr("*", "messages / seconds as rate")


def test_rates_are_means_over_the_days_or_of_the_busiest_interval(spark: Any) -> None:
    rows = rate_rows(
        spark, (DAY, "A", 0, 300), (DAY, "A", 600, 600), (DAY, "B", 300, 90), (NEXT, "B", 0, 30), (NEXT, "A", 0, 30)
    )
    mean = {row.flow: row.rate for row in flow_rates(rows).collect()}
    assert mean == {"A": 930 / 1200, "B": 120 / 1200}  # 900 s of one day and 300 s of the other
    assert {row.flow: row.rate for row in flow_rates(rows, busiest=True).collect()} == {"A": 2.0}


def test_a_day_that_is_there_twice_is_found(spark: Any) -> None:
    rows = [
        (DAY, "XNYS", "IBM", "trade", 0, 10), (DAY, "XNYS", "IBM", "trade", 0, 20),
        (DAY, "XNYS", "IBM", "trade", 1, 15), (DAY, "XNYS", "IBM", "quote", 2, 15),  # the same time; another kind
        (DAY, "XNYS", "IBM", "trade", 3, 30), (DAY, "XNYS", "BAC", "trade", 1, 15),  # later; another symbol
        (DAY, "ARCX", "IBM", "trade", 4, 15), (NEXT, "XNYS", "IBM", "trade", 5, 15),  # another floor; another day
    ]  # fmt: skip
    found = overlapping(spark.createDataFrame(rows, TAPE)).collect()
    assert [tuple(row) for row in found] == [(DAY, "XNYS", "IBM", 0, 1)]


def fill(spark: Any, directory: Path, instance: Instance, day: date = DAY) -> Lake:
    """A lake with the rates and the interest of an instance: flow 7 is S007, user 3 is u3. Its tape is empty."""
    lake = Lake.create(directory)
    counts = np.maximum(1, np.round(instance.rates * 100_000)).astype(int).tolist()
    rows = [(day, f"S{flow:03}", 36_000, count) for flow, count in enumerate(counts)]
    lake.append("rates", rate_rows(spark, *rows))
    flows = np.repeat(np.arange(instance.n_flows), instance.degrees)
    pairs = [(f"u{user}", f"S{flow:03}") for user, flow in zip(instance.users.tolist(), flows.tolist(), strict=True)]
    lake.append("subscriptions", spark.createDataFrame(pairs, "user string, flow string"))
    return lake


def counted(instance: Instance) -> Instance:
    """The instance with the rates that its lake has."""
    rates = np.maximum(1, np.round(instance.rates * 100_000)) / SECONDS
    return Instance(rates, instance.start, instance.users, instance.n_users)


@pytest.fixture(scope="module")
def instance() -> Instance:
    return generate(SMALL, 1)


@pytest.fixture(scope="module")
def lake(spark: Any, instance: Instance, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return fill(spark, tmp_path_factory.mktemp("planjob") / "lake", instance)


def names(instance: Instance) -> frozenset[str]:
    return frozenset(f"S{flow:03}" for flow in range(instance.n_flows))


def of_lake(stored: StoredPlan, instance: Instance) -> Plan:
    """The stored plan for the flows by number, -1 where it has none."""
    place = dict(zip(stored.flows.to_pylist(), stored.plan.session.tolist(), strict=True))
    session = [place.get(f"S{flow:03}", -1) for flow in range(instance.n_flows)]
    return Plan(np.array(session, np.int32), stored.plan.group)


@pytest.mark.parametrize("on_spark", [False, True])
def test_costs_before_and_after_are_exact_at_either_engine(
    spark: Any, lake: Lake, instance: Instance, tmp_path: Path, on_spark: bool
) -> None:
    asked = PlanRequest(symbols=names(instance), sessions=40, groups=5, spark=on_spark)
    made = execute(spark, lake, asked)
    order = [int(user[1:]) for user in made.users]
    assert sorted(order) == list(range(instance.n_users))
    exact = reach_of(counted(instance), of_lake(made.stored, instance))
    flood = reach_of(counted(instance), one_for_all(instance))
    for reach, expected in ((made.after, exact), (made.before, flood)):
        assert reach.asked == pytest.approx(expected.asked[order])
        assert reach.accepted == pytest.approx(expected.accepted[order])
        assert reach.received == pytest.approx(expected.received[order])
    told = made.report
    assert (told["flows_sent"], told["pairs"]) == (instance.n_flows, len(instance.users))
    assert told["flows_nobody_wants"] == int((~instance.wanted).sum()) > 0
    assert told["engine"] == ("spark" if on_spark else "local")
    assert (made.after.groups <= 5, made.after.sessions <= 40) == (True, True)
    assert told["c_w"] < told["c_w_before"] / 2
    assert told["before"] == "one session for all"

    write(made, tmp_path / "plan")
    stored = read_plan(tmp_path / "plan")
    assert set(stored.flows.to_pylist()) == names(instance)
    assert read_rates(tmp_path / "plan" / "rates.parquet")["S000"] == pytest.approx(counted(instance).rates[0])
    customers = parquet.read_table(tmp_path / "plan" / "customers.parquet")
    assert customers["received"].to_numpy().sum() == pytest.approx(told["received"])
    assert json.loads((tmp_path / "plan" / "report.json").read_text(encoding="utf-8"))["plan"] == told["plan"]

    again = execute(spark, lake, asked, stored)
    assert again.report["plan"] == told["plan"] == again.report["before"]
    assert again.before.received == pytest.approx(made.after.received)
    assert again.before.accepted == pytest.approx(made.after.accepted)


def test_without_a_network_only_what_is_wanted_is_planned(spark: Any, lake: Lake, instance: Instance) -> None:
    both = [execute(spark, lake, PlanRequest(sessions=40, groups=5, spark=on_spark)) for on_spark in (False, True)]
    for made in both:
        assert made.report["flows_sent"] == int(instance.wanted.sum())
        assert made.before.received == pytest.approx(np.full(instance.n_users, counted(instance).rates.sum()))


def test_a_plan_in_force_that_lacks_symbols_sends_them_in_its_first_session(spark: Any, lake: Lake) -> None:
    """As edges do: a symbol that was listed after the plan goes to the default session."""
    one = StoredPlan(
        Plan(np.array([0, 1], np.int32), np.array([0, 1], np.int32)), arrow().array(["S000", "S001"]),
        np.arange(2, dtype=np.int32), np.arange(2, dtype=np.int32), {},
    )  # fmt: skip
    here, there = (execute(spark, lake, PlanRequest(sessions=40, groups=5, spark=each), one) for each in (False, True))
    assert here.before.received == pytest.approx(there.before.received)
    assert here.before.accepted == pytest.approx(there.before.accepted)


def test_more_pairs_than_one_process_takes_are_planned_on_spark(
    spark: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels_job, "LOCAL_PAIRS", 3)
    assert execute(spark, lake, PlanRequest(sessions=4, groups=2)).report["engine"] == "spark"
    with pytest.raises(PlanError, match=r"but one process plans at most 3 from a lake; omit the engine"):
        execute(spark, lake, PlanRequest(sessions=4, groups=2, spark=False))


def test_a_row_of_plans_is_kept(spark: Any, lake: Lake, instance: Instance) -> None:
    made = execute(spark, lake, PlanRequest(symbols=names(instance), sessions=40, groups=5, busiest=True))
    record(spark, lake, made)
    (row,) = lake.arrow("plans").to_pylist()
    assert set(row) == set(TABLES["plans"].names)
    assert (row["plan"], row["first_day"], row["rates"]) == (made.report["plan"], DAY, "busiest")
    assert row["cost"] == pytest.approx(made.report["c_w"])
    assert row["cost_before"] == pytest.approx(made.report["c_w_before"])
    assert row["received"] == pytest.approx(float(made.after.received.sum()))


# -- what cannot be ---------------------------------------------------------------------------------------


def test_a_lake_without_rates_or_subscriptions(spark: Any, tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    with pytest.raises(LakeError, match="has no rates to plan from; run `levelcast pipeline run"):
        execute(spark, lake, PlanRequest())
    lake.append("rates", rate_rows(spark, (DAY, "A", 0, 300)))
    with pytest.raises(LakeError, match="has no subscriptions; load them with `levelcast pipeline load subscriptions"):
        execute(spark, lake, PlanRequest())
    with pytest.raises(LakeError, match="no rates for 2026-11-17; available: 2026-11-16"):
        execute(spark, lake, PlanRequest(days=("2026-11-17",)))


def test_another_directory(spark: Any, lake: Lake, instance: Instance) -> None:
    with pytest.raises(PlanError, match=r"belongs to another directory: no floor of net.toml trades its .*, .* S000"):
        execute(spark, lake, PlanRequest(symbols=frozenset({"VOD", "BP"}), network="net.toml"))
    some = names(instance) - {f"S{flow:03}" for flow in np.flatnonzero(instance.wanted)[:2]}
    with pytest.raises(PlanError, match=r"subscriptions are for symbols that no floor of net.toml trades: S\d+, S\d+"):
        execute(spark, lake, PlanRequest(symbols=some, network="net.toml", sessions=40, groups=5))
    made = execute(spark, lake, PlanRequest(symbols=some, skip_unknown=True, sessions=40, groups=5))
    assert made.skipped == int(instance.degrees[np.flatnonzero(instance.wanted)[:2]].sum())
    assert set(made.stored.flows.to_pylist()) == some


def test_a_day_loaded_twice_is_refused(spark: Any, tmp_path: Path, instance: Instance) -> None:
    lake = fill(spark, tmp_path / "lake", instance)
    rows = [(DAY, "XNYS", "S000", "trade", stripe, 10 + at) for stripe in (0, 1) for at in range(3)]
    whole = spark.createDataFrame(rows, TAPE).selectExpr("*", "ts_recv as sequence")
    lake.append("tape", whole.filter("stripe = 0"))
    check_overlap(spark, lake, [str(DAY)])
    lake.append("tape", whole.filter("stripe = 1"))
    with pytest.raises(LakeError, match="2026-11-16 is duplicated: S000 of XNYS is in stripes 0 and 1 at the"):
        execute(spark, lake, PlanRequest())
    check_overlap(spark, lake, ["2026-11-17"])
