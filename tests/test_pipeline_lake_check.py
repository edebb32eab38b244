"""`levelcast pipeline check` finds every planted fault of a lake, with Spark and without; a repair can be undone."""

from __future__ import annotations

import fcntl
import json
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from typer.testing import CliRunner

from levelcast.cli.main import app
from tests.spark_parts import spark
from tests.tape_parts import make_frames
from tests.test_pipeline_input_inputs import lean, take
from tests.test_pipeline_input_tapes import write

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("duckdb")

from levelcast.pipeline.input.load import read_pieces
from levelcast.pipeline.jobs import load as jobs_load
from levelcast.pipeline.jobs.load import load_pieces
from levelcast.pipeline.jobs.refresh import derivations, stale_days
from levelcast.pipeline.lake import check as job
from levelcast.pipeline.lake.check import check
from levelcast.pipeline.lake.defaults import LakeError
from levelcast.pipeline.lake.duplicates import DuckQueries, QueryEngine, SparkQueries
from levelcast.pipeline.lake.files import File, write_arrow
from levelcast.pipeline.lake.lake import Lake
from levelcast.pipeline.lake.log import CommitMark
from levelcast.pipeline.lake.repair import repair, undo
from levelcast.pipeline.lake.tables import TABLES

__all__ = ["spark"]

pytestmark = pytest.mark.timeout(600)
runner = CliRunner()
DAY = "2013-10-07"


@pytest.fixture(scope="module")
def made(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with a tape, two files and a bar."""
    place = tmp_path_factory.mktemp("made")
    write(place / "tape", make_frames(40, 4)).close()
    lake = Lake.create(place / "lake")
    load_pieces(spark, lake, read_pieces(spark, [place / "tape"]), "tape")
    (place / "ibm_trade.csv").write_text(lean(1_000, 60))
    (place / "ibm_quote.csv").write_text("".join(f"{1000 + i},{1800100 + i},300,0,0,P,1,0\n" for i in range(9)))
    take(spark, lake, place / "ibm_trade.csv", place / "ibm_quote.csv")
    bars = lake._ensure("bars")
    assert bars.version() == 0
    bar = {"symbol": "IBM", "venue": "XNYS", "interval": "1d", "start_ns": 0, "variant": "all"}
    root = lake.directory / "bars"
    row = pa.Table.from_pylist([bar], schema=TABLES["bars"].arrow_schema())
    file = write_arrow(TABLES["bars"], row, root / f"day={DAY}" / "bar.parquet", root)
    lake.exchange("bars", [], [file], {}, [CommitMark(f"day/{DAY}", 2**50)])
    return lake.directory


@pytest.fixture
def lake(made: Path, tmp_path: Path) -> Lake:
    return Lake(shutil.copytree(made, tmp_path / "lake"))


@pytest.fixture(params=["duckdb", "spark"])
def engine(request: pytest.FixtureRequest, spark: Any) -> QueryEngine:
    return DuckQueries() if request.param == "duckdb" else SparkQueries(spark)


def kinds(lake: Lake, engine: QueryEngine) -> list[tuple[str, str]]:
    return sorted((each.kind, each.table) for each in check(lake, engine).findings)


def force(spark: Any, lake: Lake, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Load a file without the comparison with the rows of the lake."""
    with monkeypatch.context() as patched:
        patched.setattr(jobs_load, "_without_overlaps", lambda *_: None)
        take(spark, lake, path)


def content(lake: Lake) -> dict[str, list[str]]:
    return {name: sorted(map(str, lake.arrow(name).to_pylist())) for name in TABLES if lake.has(name)}


def first_file(lake: Lake, name: str, kind: str | None = None) -> File:
    wanted = (file for file in lake.files(name) if kind is None or (file.day == DAY and file.meets("kind", kind, kind)))
    return next(wanted)


def copied(lake: Lake, name: str, change: Callable[[Any], Any], kind: str | None = None) -> File:
    """Write a changed copy of a file of a table into it, without a commit."""
    root = lake.directory / name
    old = first_file(lake, name, kind)
    rows = parquet.read_table(root / old.path, partitioning=None)
    return write_arrow(TABLES[name], change(rows), (root / old.path).with_name(f"{uuid.uuid4().hex}.parquet"), root)


def test_a_sound_lake_has_no_fault(lake: Lake, engine: QueryEngine) -> None:
    assert kinds(lake, engine) == []


def test_planted_faults_of_files_and_keys(lake: Lake, engine: QueryEngine) -> None:
    """A file that no commit knows, a hole, rows twice under one key, a bar twice, a missing file."""
    (lake.directory / "trades" / "_staging" / "killed").mkdir(parents=True)
    copied(lake, "tape", lambda rows: rows)
    shutil.copy(lake.directory / "bars" / lake.files("bars")[0].path, lake.directory / "trades" / "_staging" / "killed")
    assert kinds(lake, engine) == [("orphan", "tape"), ("orphan", "trades")]

    quotes = copied(lake, "quotes", lambda rows: rows.slice(2))
    lake.exchange("quotes", [lake.files("quotes")[0]], [quotes], {})
    old = first_file(lake, "tape", "trade")
    lake.exchange("tape", [old], [copied(lake, "tape", lambda rows: rows.slice(5), "trade")], {})
    lake.exchange("trades", [], [copied(lake, "trades", lambda rows: rows.slice(0, 3))], {})
    lake.exchange("bars", [], [copied(lake, "bars", lambda rows: rows.slice(0, 1))], {})
    found = check(lake, engine).findings
    by_kind: dict[tuple[str, str], list[str]] = {}
    for each in found:
        by_kind.setdefault((each.kind, each.table), []).append(each.says)
    assert by_kind.keys() >= {("hole", "tape"), ("hole", "quotes"), ("key", "trades"), ("key", "bars")}
    assert ("unfinished", "trades") in by_kind  # `tape` has lost rows that `trades` has
    assert ["ibm_trade.csv: 5 rows are missing (1 to 5)" in says for says in by_kind["hole", "tape"]] == [True]
    assert "lacks 2 rows that tape has" in by_kind["hole", "quotes"][0]
    assert "3 rows repeat a sequence" in by_kind["key", "trades"][0]

    of_tape = [file for file in lake.files("tape") if file.day != DAY]
    tape = max(of_tape, key=lambda file: int(file.stats["maxValues"]["sequence"]))
    first, last = (tape.stats[bound]["sequence"] for bound in ("minValues", "maxValues"))
    lake.exchange("tape", [tape], [], {})
    (lake.directory / "trades" / first_file(lake, "trades").path).unlink()
    found = check(lake, engine).findings
    assert ("damaged", "trades") in {(each.kind, each.table) for each in found}
    assert f"the tape of stripe 0: {tape.rows:,} records are missing ({first:,} to {last:,})" in {e.says for e in found}


def test_planted_duplicates_are_removed_and_come_back(
    spark: Any, lake: Lake, engine: QueryEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same rows under another name, an overlapping day, and rows with the same key."""
    sound = content(lake)
    for name, text in (
        ("copy", lean(1_000, 60).replace(",0,0\n", ",0,1\n")),
        ("part", lean(1_000, 25) + lean(9_000, 5)),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ibm_trade.csv").write_text(text)
        force(spark, lake, tmp_path / name / "ibm_trade.csv", monkeypatch)
    for name in ("tape", "trades"):
        lake.exchange(name, [], [copied(lake, name, lambda rows: rows.slice(0, 3))], {})
    planted = content(lake)
    checked = check(lake, engine)
    assert {(each.kind, each.table) for each in checked.findings} == {
        ("duplicate", "tape"), ("overlap", "tape"), ("key", "tape"), ("key", "trades"),
    }  # fmt: skip
    says = " ".join(each.says for each in checked.findings)
    assert "copy/ibm_trade.csv" in says or "all rows" in says
    assert "25 of 30 rows (2013-10-07) are also in" in says

    versions = {name: lake.handle(name).version() for name in ("tape", "trades", "inputs")}
    assert DAY not in _stale(lake)
    removed = repair(lake, engine, checked)
    assert removed == {"tape": 60 + 25 + 3, "trades": 60 + 25 + 3}
    assert {name: lake.handle(name).version() - before for name, before in versions.items()} == dict.fromkeys(
        versions, 1
    )
    assert check(lake, engine).findings == []
    assert sum(file.rows for file in lake.files("trades")) == len(sound["trades"]) + 5
    assert DAY in _stale(lake)
    assert take(spark, lake, tmp_path / "copy" / "ibm_trade.csv").skipped  # it stays known

    assert undo(lake) == {"tape": 88, "trades": 88}
    assert {name: rows for name, rows in content(lake).items() if name not in job.DERIVED} == {
        name: rows for name, rows in planted.items() if name not in job.DERIVED
    }
    with pytest.raises(Exception, match="has no repair to undo"):
        undo(lake)


def _stale(lake: Lake) -> set[str]:
    return set(stale_days(lake, derivations()[0]))


def test_the_command(lake: Lake, tmp_path: Path) -> None:
    directory = str(lake.directory)
    good = runner.invoke(app, ["pipeline", "check", "--lake", directory])
    rows = sum(file.rows for file in lake.files("tape"))
    assert (good.exit_code, good.stdout) == (0, f"{directory}: no fault in {rows:,} rows of tape\n")
    lake.exchange("tape", [], [copied(lake, "tape", lambda rows: rows.slice(0, 3))], {})
    found = runner.invoke(app, ["pipeline", "check", "--lake", directory, "--json"])
    assert found.exit_code == 1
    (finding,) = json.loads(found.stdout)["findings"]
    assert (finding["kind"], finding["table"], finding["rows"]) == ("key", "tape", 3)
    repaired = runner.invoke(app, ["pipeline", "check", "--lake", directory, "--repair"])
    assert repaired.exit_code == 0, repaired.output
    assert "tape: 3 rows removed" in repaired.stdout
    undone = runner.invoke(app, ["pipeline", "check", "--lake", directory, "--undo"])
    assert (undone.exit_code, undone.stdout) == (0, "tape: 3 rows restored\n")
    assert runner.invoke(app, ["pipeline", "check", "--lake", directory]).exit_code == 1


def refused(*arguments: str) -> str:
    result = runner.invoke(app, ["pipeline", "check", *arguments])
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    return line


def test_bad_lakes_are_one_sentence(lake: Lake, tmp_path: Path) -> None:
    directory = str(lake.directory)
    for lock in ("lake.lock", "compact.lock"):
        with (lake.directory / lock).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            assert "in use by another job; wait for it, or stop it" in refused("--lake", directory)
    assert "has no repair to undo" in refused("--lake", directory, "--undo")
    assert (
        "use either --repair or --undo"
        in runner.invoke(app, ["pipeline", "check", "--lake", directory, "--repair", "--undo"]).stderr
    )
    assert "not a lake" in refused("--lake", str(tmp_path / "none"))
    log = lake.directory / "tape" / "_delta_log"
    last = sorted(log.glob("*.json"))[-1]
    text = last.read_text()
    damages = [text[: len(text) // 2], "{}{", "", "[1]", "7", '{"add": "x"}', '{"txn": {"appId": null, "version": 1}}']
    for kind, name in (("add", "path"), ("add", "size"), ("add", "partitionValues"), ("txn", "version")):
        actions = [json.loads(line) for line in text.splitlines()]
        for action in actions:
            if kind in action:
                action[kind][name] = None
        damages.append("\n".join(map(json.dumps, actions)))
    for damage in damages:
        last.write_text(damage)
        assert f"{last}: this file of the table's log is damaged; restore it from a backup" in refused(
            "--lake", directory
        )
    last.write_bytes(b"\xff\xfe" + text.encode())
    assert f"{last}: this file of the table's log is damaged" in refused("--lake", directory)
    last.write_text(text)
    gone = sorted(log.glob("*.json"))[1]
    gone.unlink()
    assert f"{gone}: this file of the table's log is missing; restore it from a backup" in refused("--lake", directory)


def test_a_lake_that_another_process_writes_to_during_the_check(lake: Lake) -> None:
    """A program that does not know the locks of the lake, such as another Delta writer."""
    row = pa.Table.from_pylist([], schema=TABLES["inputs"].arrow_schema())

    def write(step: str) -> None:
        if step == "keys of trades":
            assert Lake(lake.directory).append_arrow("inputs", row) is not None

    with pytest.raises(LakeError, match=r"inputs: another process wrote to this table during the check; stop it, and"):
        check(lake, DuckQueries(), write)
    assert check(lake, DuckQueries()).findings == []


def test_a_file_that_goes_during_the_check_is_one_sentence(lake: Lake) -> None:
    file = lake.files("tape")[0]

    def remove(step: str) -> None:
        if step == "keys of tape":
            (lake.directory / "tape" / file.path).unlink()

    with pytest.raises(LakeError, match=r"tape: cannot be read \(.*\); restore the file from a backup"):
        check(lake, DuckQueries(), remove)


def test_files_that_the_log_describes_wrongly(lake: Lake) -> None:
    root = lake.directory / "quotes"
    file = lake.files("quotes")[0]
    (root / file.path).write_bytes(b"PAR1" * 9)
    (finding,) = [each for each in check(lake, DuckQueries()).findings if each.kind == "damaged"]
    assert "has 36 bytes, but the log has" in finding.says
