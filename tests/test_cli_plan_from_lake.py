"""`levelcast plan from-lake`: a plan that the network takes, and one sentence for what cannot be."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from levelcast.cli.main import app
from levelcast.network import NetworkError, load_network
from levelcast.node.operate.channel_plans import PlanRefused, make_channel_plan, require_lines
from levelcast.pipeline.lake.lake import Lake
from levelcast.pipeline.lake.tables import TABLES
from levelcast.planner.files import StoredPlan, read_plan, read_rates, write_plan
from levelcast.planner.model import Plan
from tests.net_edge_parts import network_text
from tests.spark_parts import spark

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

__all__ = ["spark"]

runner = CliRunner()
DAY = date(2026, 11, 16)
COUNTS = {"IBM": 900, "GE": 300, "VOD": 30}
WANTS = [("ann", "IBM"), ("bob", "IBM"), ("bob", "GE"), ("cat", "VOD")]


def put(lake: Lake, name: str, rows: list[dict[str, Any]]) -> None:
    import deltalake

    lake._ensure(name)
    table = pa.Table.from_pylist(rows, schema=TABLES[name].arrow_schema())
    deltalake.write_deltalake(str(lake.directory / name), table, mode="append")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake.create(tmp_path / "lake")
    rates = [
        {"symbol": symbol, "start_s": 0, "seconds": 300, "messages": count, "rate": count / 300, "day": DAY}
        for symbol, count in COUNTS.items()
    ]
    put(lake, "rates", rates)
    put(lake, "subscriptions", [{"user": user, "flow": flow} for user, flow in WANTS])
    return lake


@pytest.fixture
def network_file(tmp_path: Path) -> Path:
    """Its floors trade IBM, GE and KO, and VOD."""
    path = tmp_path / "network.toml"
    for _ in range(100):
        text = network_text().replace('region = "west"\n\n', 'region = "west"\ncount = 3\n\n').rstrip()
        path.write_text(f"{text}\ncount = 3\n", encoding="utf-8")
        with suppress(NetworkError):  # two blocks that overlap
            load_network(path)
            return path
    raise AssertionError("no room for the groups")


def invoke(*arguments: object) -> Any:
    return runner.invoke(app, ["plan", "from-lake", *map(str, arguments)])


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("spark")
def test_from_the_lake_to_a_plan_that_the_network_takes(lake: Lake, network_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "plan"
    options = ("--lake", lake.directory, "--network", network_file, "--out", out, "--master", "local[1]")
    done = invoke(*options)
    assert done.exit_code == 0, done.output
    assert "instead of" in done.output
    assert f"levelcast plan apply --network {network_file} {out}" in done.output
    stored, network = read_plan(out), load_network(network_file)
    assert set(stored.flows.to_pylist()) == {"IBM", "GE", "KO", "VOD"}  # KO too: nobody wants it, and it is sent
    assert stored.report["groups"] <= 3
    make_channel_plan(network, network.stripes[0], stored, 1, read_rates(out / "rates.parquet"))
    (row,) = lake.arrow("plans").to_pylist()
    assert row["cost"] < row["cost_before"]
    other = tmp_path / "other.toml"
    other.write_text(network_file.read_text(encoding="utf-8").replace('"KO"', '"KOX"'), encoding="utf-8")
    with pytest.raises(PlanRefused, match="is for another symbol directory; no floor of the network trades KO"):
        make_channel_plan(load_network(other), load_network(other).stripes[0], stored, 1)

    who = tmp_path / "who.csv"
    who.write_text("user,flow\nann,KO\nbob,XYZ\n", encoding="utf-8")
    refused = invoke(*options, "--subscriptions", who)
    assert refused.exit_code == 2
    assert "1 subscriptions are for symbols that no floor of" in refused.stderr
    assert "XYZ; correct them, or ignore them with --skip-unknown" in refused.stderr
    again = invoke(*options, "--skip-unknown", "--current", out, "--rates", "busiest", "--json")
    assert again.exit_code == 0, again.output
    told = json.loads(again.output)
    assert (told["users"], told["pairs"], told["before"]) == (1, 1, row["plan"])
    assert told["received_before"] > told["received"] == told["asked"] == 0  # nobody traded KO


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("spark")
def test_a_plan_for_lines_of_56_kbit_is_applied_as_it_is(lake: Lake, network_file: Path, tmp_path: Path) -> None:
    """Three symbols of 30 records/s do not fit into one group."""
    head, group, tail = network_file.read_text(encoding="utf-8").partition("[[edge.group]]")
    text = (group + tail).replace("count = 3", 'count = 3\nline = "a"\nrate = "56kbit"')
    network_file.write_text(f'{head}[edge]\nwatermark = "1s"\n\n{text}', encoding="utf-8")
    rates = [
        {"symbol": symbol, "start_s": 0, "seconds": 300, "messages": 9_000, "rate": 30.0, "day": date(2026, 11, 17)}
        for symbol in COUNTS
    ]
    put(lake, "rates", rates)
    out = tmp_path / "plan"
    options = ("--lake", lake.directory, "--network", network_file, "--out", out, "--master", "local[1]")
    done = invoke(*options)
    assert done.exit_code == 0, done.output
    stored, network = read_plan(out), load_network(network_file)
    assert stored.report["groups"] > 1
    require_lines(network, stored, read_rates(out / "rates.parquet"))
    refused = invoke(*options, "--groups", 1)
    assert refused.exit_code == 2
    assert "the rate of their lines, do not carry them; allow more groups" in refused.stderr


def test_what_cannot_be_is_one_sentence(lake: Lake, network_file: Path, tmp_path: Path) -> None:
    """All of it before Spark is started."""
    base = ("--out", tmp_path / "plan", "--lake")
    empty = Lake.create(tmp_path / "empty")
    foreign = StoredPlan(
        Plan(np.zeros(1, np.int32), np.zeros(1, np.int32)), pa.array(["XYZ"]), np.zeros(1, np.int32),
        np.zeros(1, np.int32), {},
    )  # fmt: skip
    write_plan(tmp_path / "foreign", foreign)
    cases = [
        ((tmp_path,), "not a lake"),
        ((empty.directory,), "has no rates to plan from"),
        ((lake.directory, "--day", "2026-11-17"), "no rates for 2026-11-17; available: 2026-11-16"),
        ((lake.directory, "--day", "soon"), '"soon" is not a day such as 2013-10-07'),
        ((lake.directory, "--subscriptions", tmp_path / "none.csv"), "none.csv: file not found"),
        ((lake.directory, "--network", network_file, "--groups", 4), "4 groups exceed the 3 of the smallest"),
        ((lake.directory, "--sessions", 3), "50 groups are more than 3 sessions"),
        ((lake.directory, "--current", "running"), "--current running needs --network"),
        (
            (lake.directory, "--network", network_file, "--current", tmp_path / "foreign"),
            f"foreign: the plan is for other symbols; no floor of {network_file} trades XYZ",
        ),
        ((lake.directory, "--alpha", "much"), '"much" is neither a number nor'),
    ]
    for arguments, says in cases:
        result = invoke(*base, *arguments)
        assert result.exit_code == 2, (says, result.output)
        assert says in result.stderr
        assert result.stderr.count("\n") == 1
    assert not (tmp_path / "plan").exists()
