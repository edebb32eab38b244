"""The plan on Spark: its steps on small tables without Spark, and the whole of it where pyspark and Java are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from levelcast.cli.main import app
from levelcast.pipeline.channels.spark_plan import insert, instance_of, joined, scaled, split_group
from levelcast.planner.costs import costs, fault, received_by_user
from levelcast.planner.files import for_problem, read_plan, read_problem, write_problem
from levelcast.planner.generator import generate
from levelcast.planner.make import make_plan
from levelcast.planner.model import Instance, Plan
from tests.plan_parts import SMALL
from tests.spark_parts import spark

__all__ = ["spark"]


def as_table(instance: Instance) -> Any:
    users = np.split(instance.users, instance.start[1:-1])
    columns = {"flow": np.arange(instance.n_flows), "users": [list(each) for each in users], "rate": instance.rates}
    return pa.table(
        columns, schema=pa.schema({"flow": pa.int64(), "users": pa.list_(pa.int32()), "rate": pa.float64()})
    )


@pytest.fixture(scope="module")
def wanted() -> Instance:
    instance = generate(SMALL, 1)
    return instance.subset(np.flatnonzero(instance.wanted))


def test_rows_become_an_instance(wanted: Instance) -> None:
    found = instance_of(as_table(wanted), wanted.n_users)
    assert found.start.tolist() == wanted.start.tolist()
    assert found.users.tolist() == wanted.users.tolist()
    both = joined(found, wanted)
    assert both.n_flows == 2 * wanted.n_flows
    assert both.matrix()[:, wanted.n_flows :].tolist() == wanted.matrix().tolist()
    assert scaled(wanted, 7.0).rates.sum() == pytest.approx(7)


def test_every_flow_gets_a_group_beside_the_sample(wanted: Instance) -> None:
    chosen = np.arange(0, wanted.n_flows, 3)
    sample = scaled(wanted.subset(chosen), float(wanted.rates.sum()))
    plan = make_plan(sample, 20, 4)
    (batch,) = as_table(wanted).to_batches()
    found = pa.Table.from_batches(list(insert(iter([batch]), sample, plan.flow_group(), plan.n_groups, 0)))
    group = found["group"].to_numpy()
    assert len(group) == wanted.n_flows
    assert set(group.tolist()) <= set(range(plan.n_groups))
    by_sample = costs(wanted, Plan(group.astype(np.int32), np.arange(4, dtype=np.int32))).relative
    at_random = np.random.default_rng(0).integers(4, size=wanted.n_flows).astype(np.int32)
    assert by_sample < costs(wanted, Plan(at_random, np.arange(4, dtype=np.int32))).relative


def test_a_group_is_split_into_sessions_and_reports_what_its_users_get(wanted: Instance) -> None:
    found = split_group(as_table(wanted), 3, wanted.n_users, 10, 0)
    assert set(found["group"].to_pylist()) == {3}
    session = found["session"].to_numpy().astype(np.int32)
    plan = Plan(session, np.zeros(session.max() + 1, np.int32))
    assert fault(wanted, plan) is None
    exact = costs(wanted, plan)
    by_user = {name: found[name].drop_null().to_pylist() for name in ("asked", "accepted", "received")}
    for name, expected in zip(by_user, received_by_user(wanted, plan), strict=True):
        assert by_user[name] == [pytest.approx(expected)]
    assert sum(by_user["received"][0]) == pytest.approx(exact.c_1)
    assert sum(by_user["accepted"][0]) == pytest.approx(exact.c_2)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("spark")
def test_spark_makes_a_legal_plan_with_exact_costs(tmp_path: Path) -> None:
    write_problem(tmp_path / "in", generate(SMALL, 1))
    files = ["--interest", str(tmp_path / "in/interest.parquet"), "--rates", str(tmp_path / "in/rates.parquet")]
    command = ["plan", "make", *files, "--groups", "4", "--sessions", "30", "--engine", "spark", "--json"]
    result = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "plan")])
    assert result.exit_code == 0, result.output
    told = json.loads((tmp_path / "plan" / "report.json").read_text(encoding="utf-8"))
    problem = read_problem(tmp_path / "in/interest.parquet", tmp_path / "in/rates.parquet")
    plan = for_problem(read_plan(tmp_path / "plan"), problem)
    assert fault(problem.instance, plan) is None
    assert told["relative_cost"] == pytest.approx(costs(problem.instance, plan).relative)
    broken = tmp_path / "rates.csv"
    broken.write_text("flow,rate\n0,1.0\n", encoding="utf-8")
    command[5] = str(broken)
    refused = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "none")])
    assert refused.exit_code == 2
    assert "has no rate" in refused.stderr
    assert not (tmp_path / "none").exists()
