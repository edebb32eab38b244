"""A lake that an earlier version wrote is read, and the same tapes are not loaded into it again."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.spark_parts import spark
from tests.test_baseline import FILES

__all__ = ["spark"]
pytest.importorskip("deltalake")

from levelcast.pipeline.input.load import load
from levelcast.pipeline.jobs.refresh import refresh
from levelcast.pipeline.lake.lake import Lake

ROWS = {
    "tape": 145,
    "trades": 104,
    "quotes": 8,
    "releases": 1,
    "instruments": 5,
    "venues": 13,
    "quarantine": 16,
    "bars": 324,
    "bbo": 8,
    "trade_throughs": 0,
    "last_prices": 54,
    "venue_share": 62,
    "rates": 5,
    "rate_fit": 1,
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("old")
    with zipfile.ZipFile(FILES) as archive:
        archive.extractall(folder)
    return folder


def test_every_table_of_an_old_lake_is_read(spark: Any, files: Path) -> None:
    lake = Lake(files / "lake")
    assert {name: lake.arrow(name).num_rows for name in ROWS} == ROWS
    for name in ("tape", "bars", "releases"):
        assert lake.read(spark, name).count() == ROWS[name]
    assert sorted(lake.arrow("tape").column("sequence").to_pylist()) == list(range(1, 146))
    assert lake.all_marks("tape") == {"tape/0": 145}


def test_old_tapes_are_not_loaded_again_and_derived_tables_stay(spark: Any, files: Path) -> None:
    lake = Lake(files / "lake")
    before = {name: lake.handle(name).version() for name in ("tape", "trades", "bars")}
    load(spark, lake, [files / "tokyo"], "tape", None, None, lambda _: None, None)
    refresh(spark, lake)
    assert {name: lake.handle(name).version() for name in before} == before
    assert lake.arrow("tape").num_rows == ROWS["tape"]
