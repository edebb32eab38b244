"""A file lands once in a lake: in any list, order, name, compression and format, and after a crash."""

from __future__ import annotations

import gzip
import shutil
from datetime import date
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from levelcast.formats.captures import Task
from tests.spark_parts import spark

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from levelcast.pipeline.input import inputs
from levelcast.pipeline.input.inputs import InputFile, block_of
from levelcast.pipeline.input.load import load
from levelcast.pipeline.jobs.load import Loaded
from levelcast.pipeline.lake.defaults import LakeError
from levelcast.pipeline.lake.duplicates import origin_of
from levelcast.pipeline.lake.lake import Lake

__all__ = ["spark"]

pytestmark = pytest.mark.timeout(600)

DAY = date(2013, 10, 7)
NOTHING_LOADED = "nothing was loaded"
TABLES = ("tape", "trades", "quotes", "orders", "quarantine")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.create(tmp_path / "lake")


@pytest.fixture
def ticks(tmp_path: Path) -> Path:
    """Two symbols, quotes of one of them, and a bad row."""
    folder = tmp_path / "ticks"
    folder.mkdir()
    (folder / "ibm_trade.csv").write_text(lean(1_000, 40) + "oops\n")
    (folder / "aig_trade.csv").write_text(lean(1_000, 30))
    (folder / "ibm_quote.csv").write_text("".join(f"{1000 + i},{1800100 + i},300,0,0,P,1,0\n" for i in range(20)))
    return folder


def lean(start_ms: int, rows: int) -> str:
    return "".join(f"{start_ms + i * 7},{1810000 + i},{100 + i},N,0,0\n" for i in range(rows))


def take(spark: Any, lake: Lake, *paths: Path, format: str = "lean", stripe: int | None = None) -> Loaded:
    day = DAY if format == "lean" else None
    return load(spark, lake, paths, format, day, stripe, lambda _: None, "XNYS" if format != "lean" else None)


def rows_of(lake: Lake, name: str) -> list[str]:
    return sorted(map(str, lake.arrow(name).to_pylist())) if lake.has(name) else []


def content(lake: Lake) -> dict[str, list[str]]:
    return {name: rows_of(lake, name) for name in TABLES}


def test_a_file_is_known_in_every_list_and_order(spark: Any, lake: Lake, ticks: Path) -> None:
    """Before, the list was the identity: the other order, and one file again, were loaded as new rows."""
    ibm, aig = ticks / "ibm_trade.csv", ticks / "aig_trade.csv"
    assert take(spark, lake, ibm, aig).rows("trades") == 70
    for paths in ([aig, ibm], [aig], [ibm, aig, ibm], [aig, aig]):
        again = take(spark, lake, *paths)
        assert again.commits == {}
        assert len(again.skipped) == len(paths)
    assert len(rows_of(lake, "trades")) == 70
    more = take(spark, lake, ticks)
    assert more.commits.keys() == {"tape", "quotes"}
    assert more.skipped == [f"{path}: skipped, already loaded" for path in (aig, ibm)]


def test_another_name_and_another_compression_are_the_same_file(spark: Any, lake: Lake, ticks: Path) -> None:
    take(spark, lake, ticks / "ibm_trade.csv")
    other = ticks.parent / "other"
    other.mkdir()
    packed = other / "ibm_trade.csv.gz"
    packed.write_bytes(gzip.compress((ticks / "ibm_trade.csv").read_bytes()))
    assert take(spark, lake, packed).skipped == [f"{packed}: skipped, same content as {ticks / 'ibm_trade.csv'}"]
    renamed = Path(shutil.copy(ticks / "ibm_trade.csv", other / "ibm2_trade.csv"))
    with pytest.raises(LakeError, match=r"ibm2_trade.csv: has the same content as .*/ibm_trade.csv.*symbol IBM2"):
        take(spark, lake, renamed)
    with pytest.raises(LakeError, match=r"which is read as stripe 0.*this one would be stripe 1"):
        take(spark, lake, ticks / "ibm_trade.csv", stripe=1)
    with pytest.raises(LakeError, match="date 2013-10-08"):
        load(spark, lake, [packed], "lean", date(2013, 10, 8), None, lambda _: None)
    assert len(rows_of(lake, "trades")) == 40


def table(first: int, count: int) -> pa.Table:
    place = range(first, first + count)
    return pa.table(
        {
            "ts_event": [1_381_161_600_000_000_000 + i * 1_000 for i in place],
            "symbol": ["SPY" if i % 3 else "BAC" for i in place],
            "price": [f"{100 + i}.25" for i in place],
            "size": [i % 50 + 1 for i in place],
        }
    )


def test_the_same_rows_in_another_format_are_skipped_and_some_of_them_refused(
    spark: Any, lake: Lake, tmp_path: Path
) -> None:
    one, two, part = tmp_path / "a.csv", tmp_path / "b.parquet", tmp_path / "part.csv"
    pyarrow.csv.write_csv(table(0, 60), one)
    pyarrow.parquet.write_table(table(0, 60), two)
    assert take(spark, lake, one, format="csv").rows("tape") == 60
    before = content(lake)
    again = take(spark, lake, two, format="parquet")
    assert again.skipped == [f"{two}: skipped, same rows as {one}"]
    pyarrow.csv.write_csv(table(50, 60), part)
    with pytest.raises(LakeError, match=r"part.csv: 10 of its rows of 2013-10-07 are also in .*/a.csv") as refused:
        take(spark, lake, part, format="csv")
    assert NOTHING_LOADED in str(refused.value)
    assert content(lake) == before
    following = tmp_path / "following.csv"
    pyarrow.csv.write_csv(table(60, 40), following)
    assert take(spark, lake, following, format="csv").rows("tape") == 40
    pyarrow.csv.write_csv(table(200, 40), tmp_path / "late.csv")
    pyarrow.csv.write_csv(table(190, 60), tmp_path / "whole.csv")
    with pytest.raises(LakeError, match=r"(whole.csv: .* also in .*/late.csv)|(late.csv: .* also in .*/whole.csv)"):
        take(spark, lake, tmp_path / "late.csv", tmp_path / "whole.csv", format="csv")


def test_two_files_may_share_the_time_at_which_they_were_split(spark: Any, lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "am").mkdir()
    (tmp_path / "pm").mkdir()
    (tmp_path / "am" / "ibm_trade.csv").write_text(lean(0, 20) + "500,1,1,N,0,0\n")
    (tmp_path / "pm" / "ibm_trade.csv").write_text("500,1,1,N,0,0\n" + lean(600, 20))
    take(spark, lake, tmp_path / "am")
    assert take(spark, lake, tmp_path / "pm").rows("trades") == 21


def test_two_files_with_the_same_sequences_are_refused(
    spark: Any, lake: Lake, ticks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "block_of", lambda *_, **__: block_of("0" * 32, 20))
    take(spark, lake, ticks / "ibm_trade.csv")
    with pytest.raises(LakeError, match=r"aig_trade.csv: gets the same sequences as .*ibm_trade.csv in stripe 0; load"):
        take(spark, lake, ticks / "aig_trade.csv")
    assert take(spark, lake, ticks / "aig_trade.csv", stripe=1).rows("trades") == 30


def test_a_file_without_a_readable_row_is_refused_in_any_list(spark: Any, lake: Lake, ticks: Path) -> None:
    (ticks / "bad_trade.csv").write_text("x,1,1,N,0,0\n")
    (ticks / "empty_trade.csv").write_text("")
    with pytest.raises(LakeError, match=r"bad_trade.csv: no row is readable \(.*\); check the format"):
        take(spark, lake, ticks)
    (ticks / "bad_trade.csv").unlink()
    assert take(spark, lake, ticks).rows("trades") == 70


@pytest.mark.parametrize("dies_at", ["trades", "tape"])
def test_after_a_crash_another_list_adds_what_each_table_lacks(
    spark: Any, tmp_path: Path, ticks: Path, dies_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, sound = Lake.create(tmp_path / "lake"), Lake.create(tmp_path / "sound")
    commit = Lake._commit

    def dies(self: Lake, handle: Any, *arguments: Any, **more: Any) -> bool:
        if handle.metadata().name == dies_at:
            raise KeyboardInterrupt
        return commit(self, handle, *arguments, **more)

    with monkeypatch.context() as patched:
        patched.setattr(Lake, "_commit", dies)
        with pytest.raises(KeyboardInterrupt):
            take(spark, lake, ticks / "ibm_trade.csv", ticks / "ibm_quote.csv")
    assert rows_of(lake, "tape") == []
    take(spark, lake, ticks / "aig_trade.csv", ticks / "ibm_quote.csv")
    take(spark, lake, ticks / "ibm_trade.csv")
    take(spark, sound, ticks)
    assert content(lake) == content(sound)
    assert len(rows_of(lake, "quarantine")) == 1


def many_orders(spark: Any, place: Path, files: list[Path], seeds: range) -> None:
    wanted: dict[str, list[str]] | None = None
    for seed in seeds:
        rng = Random(seed)
        listed = files + rng.choices(files, k=rng.randrange(len(files)))
        rng.shuffle(listed)
        lake = Lake.create(place / f"lake-{seed}")
        while listed:
            count = rng.randint(1, len(listed))
            take(spark, lake, *listed[:count])
            listed = listed[count:]
        found = content(lake)
        wanted = wanted or found
        assert found == wanted, seed
        shutil.rmtree(lake.directory)


def test_the_order_of_loading_does_not_matter(spark: Any, tmp_path: Path, ticks: Path) -> None:
    many_orders(spark, tmp_path, sorted(ticks.iterdir()), range(2))


@pytest.mark.campaign
@pytest.mark.data
@pytest.mark.timeout(3600)
def test_twenty_orders_of_recorded_files(spark: Any, tmp_path: Path, data_dir: Path) -> None:
    folder = data_dir / "us_equities_tick_20131007"
    names = ("ibm_trade", "aig_trade", "ibm_quote", "bac_trade")
    many_orders(spark, tmp_path, [folder / f"{name}.csv.gz" for name in names], range(20))


@pytest.mark.data
def test_the_reported_case(spark: Any, lake: Lake, data_dir: Path) -> None:
    """Two files, then in the other order, then one of them again."""
    ibm, aig = (data_dir / "us_equities_tick_20131008" / f"{name}_trade.csv.gz" for name in ("ibm", "aig"))
    for paths in ([ibm, aig], [aig, ibm], [ibm]):
        load(spark, lake, paths, "lean", date(2013, 10, 8), None, lambda _: None)
    assert sum(file.rows for file in lake.files("trades")) == 33_381 + 43_342 == 76_723


@pytest.mark.parametrize("size", [1, 7, 31])
@pytest.mark.parametrize("later", [False, True])
def test_a_row_shows_the_block_of_its_file(size: int, later: bool) -> None:
    for rows_hash in ("0" * 32, "f" * 32, "0123456789abcdef" * 2):
        first = block_of(rows_hash, size, later=later)
        assert 0 < first < 2**63
        for position in (0, 1, 2**size - 1):
            assert origin_of(3, first + position).block == first
    assert origin_of(0, 12_345).block == 0
    assert InputFile(Task("csv", ("x",)), "", "", last=2**size - 1, rows_hash="f" * 32).first_sequence == block_of(
        "f" * 32, size
    )
    quotes, trades = (InputFile(Task("lean", (f"a_{kind}.csv",)), "", "", last=9, rows_hash="f" * 32)
                      for kind in ("quote", "trade"))  # fmt: skip
    assert quotes.first_sequence < trades.first_sequence
