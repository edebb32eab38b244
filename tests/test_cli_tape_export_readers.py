"""One exported day, read by databento's client, databento-dbn, DuckDB, pandas and Spark: the same rows, row by row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import databento
import databento_dbn
import pandas as pd
import pytest

from tests.export_parts import DIRECTORY, ROW, evening, expected, normal, publisher_of, recorded_day
from tests.spark_parts import spark
from tests.test_cli_tape_tape import run

__all__ = ["spark"]

OWN = ("ts_recv", "ts_event", "publisher_id", "instrument_id", "action", "side", "price", "size", "sequence")
"""Columns that DBN has in common with our own tables."""
FILES = ("day.dbn", "tape.csv", "tape.parquet")
TRADES = "type = 'trade' and action = 'T'"
CHUNK = 1 << 20


def read_by_databento_dbn(path: Path) -> pd.DataFrame:
    decoder: Any = databento_dbn.DBNDecoder()
    rows: list[tuple[Any, ...]] = []
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            decoder.write(chunk)
            rows += [
                tuple(getattr(record, name) for name in ROW)
                for record in decoder.decode()
                if isinstance(record, databento_dbn.TradeMsg)
            ]
    assert not decoder.buffer()
    return normal(pd.DataFrame(rows, columns=ROW), ROW)


def trades_of(table: pd.DataFrame) -> pd.DataFrame:
    """The trades of our own table: floors as publishers, prices in 1e-9, the sequence in 32 bits as DBN has it."""
    found = table[(table["type"] == "trade") & (table["action"] == "T")].copy()
    publishers = {floor.publisher: publisher_of(floor.publisher) for floor in DIRECTORY.floors}
    found["publisher_id"] = [publishers[int(each)] for each in found["floor"].tolist()]
    found["sequence"] = [int(each) % 2**32 for each in found["seq"].tolist()]
    found["price"] = [_units(each) for each in found["price"].tolist()]
    return normal(found, OWN)


def _units(price: Any) -> int:
    if pd.isna(price) or price == "":
        return 2**63 - 1
    return int(str(price).replace(".", "")) if isinstance(price, str) else int(price)


def check(node: Path, place: Path, spark: Any, duckdb: ModuleType) -> int:
    """Export a tape to all files, and compare every reader with the tape; return the number of rows."""
    for name in FILES:
        assert run("export", node, "-o", place / name).exit_code == 0
    store = databento.DBNStore.from_file(place / "day.dbn")
    store.to_parquet(place / "client.parquet", price_type="fixed", pretty_ts=False)
    client, table, text = (str(place / name) for name in ("client.parquet", "tape.parquet", "tape.csv"))
    exact = {"inferSchema": "false", "header": "true"}
    dbn_readers: dict[str, Callable[[], pd.DataFrame]] = {
        "to_ndarray": lambda: normal(store.to_ndarray(schema="trades"), ROW),
        "to_df": lambda: normal(store.to_df(price_type="fixed", pretty_ts=False).reset_index()),
        "databento-dbn": lambda: read_by_databento_dbn(place / "day.dbn"),
        "to_parquet, DuckDB": lambda: normal(duckdb.sql(f"select * from '{client}'").df()),
        "to_parquet, pandas": lambda: normal(pd.read_parquet(client).reset_index()),
        "to_parquet, Spark": lambda: normal(spark.read.parquet(client).toPandas()),
    }
    own_readers: dict[str, Callable[[], pd.DataFrame]] = {
        "Parquet, DuckDB": lambda: duckdb.sql(f"select * from '{table}' where {TRADES}").df(),
        "Parquet, pandas": lambda: pd.read_parquet(table, dtype_backend="pyarrow"),
        "Parquet, Spark": lambda: spark.read.parquet(table).where(TRADES).toPandas(),
        "CSV, DuckDB": lambda: duckdb.sql(f"select * from read_csv('{text}', all_varchar=true)").df(),
        "CSV, pandas": lambda: pd.read_csv(text, dtype=str),
        "CSV, Spark": lambda: spark.read.options(**exact).csv(text).toPandas(),
    }
    wanted = expected(node)
    for name, read in dbn_readers.items():
        found = read()
        pd.testing.assert_frame_equal(found, wanted[list(found.columns)], obj=name)
    own = wanted[list(OWN)].reset_index(drop=True)
    for name, read in own_readers.items():
        pd.testing.assert_frame_equal(trades_of(read()), own, obj=name)
    return len(wanted)


def test_every_reader_finds_the_same_rows(
    tmp_path: Path, spark: Any, require_module: Callable[[str], ModuleType]
) -> None:
    assert check(evening(tmp_path / "tokyo-1"), tmp_path, spark, require_module("duckdb")) > 2_000


@pytest.mark.slow
def test_every_reader_finds_the_same_rows_of_7_october_2013(
    data_dir: Path, tmp_path: Path, spark: Any, require_module: Callable[[str], ModuleType]
) -> None:
    node = recorded_day(tmp_path / "tokyo-1", data_dir)
    assert check(node, tmp_path, spark, require_module("duckdb")) == 388_417
