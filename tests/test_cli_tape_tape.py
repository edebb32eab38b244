"""`levelcast tape`: what a person sees, and the exit codes that a script sees."""

from __future__ import annotations

import csv
import importlib.util
import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import databento_dbn
import pytest
from typer.testing import CliRunner

from levelcast.cli.main import app
from levelcast.cli.tape.table import price_text
from levelcast.records import price_from_decimal
from levelcast.storage.tape.reader import TapeReader
from levelcast.storage.tape.writer import TapeWriter
from tests.tape_parts import FIRST, make_frames, tip_after
from tests.test_storage_tape_compare import other_price, rechained, record

FRAMES = make_frames(24)
RECORDS = tip_after(FRAMES).next_sequence - 1


def run(*args: object) -> Any:
    return CliRunner().invoke(app, ["tape", *map(str, args)], env={"COLUMNS": "200"})


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    return record(tmp_path / "tokyo-1" / "tape", FRAMES).parent


def test_info_shows_segments_and_the_head_of_the_chain(tape: Path) -> None:
    result = run("info", tape)
    assert result.exit_code == 0
    assert FRAMES[-1].chain.hex() in result.output
    assert f"{RECORDS:,} records" in result.output
    (report,) = json.loads(run("info", tape, "--json").output)
    assert report["records"] == RECORDS
    assert report["slot"] == FRAMES[-1].slot
    assert report["segments"][0]["first_sequence"] == 1
    assert report["segments"][-1]["name"].endswith(".active")
    assert report["bytes"] == sum(path.stat().st_size for path in (tape / "tape").iterdir())


def rows(result: Any) -> list[dict[str, str]]:
    assert result.exit_code == 0
    return list(csv.DictReader(StringIO(result.output)))


def test_cat_prints_every_record_once(tape: Path) -> None:
    printed = rows(run("cat", tape))
    assert [int(row["seq"]) for row in printed] == list(range(1, RECORDS + 1))
    trade = next(row for row in printed if row["type"] == "trade" and row["price"])
    batch = next(iter(TapeReader(tape / "tape").frames(from_sequence=int(trade["seq"])))).batches()
    assert int(trade["ts_recv"]) in [int(each.records["ts_recv"][0]) for each in batch if each.kind.name == "trade"]
    assert "." in trade["price"]


def test_cat_takes_a_range_and_an_instrument(tape: Path) -> None:
    assert [int(row["seq"]) for row in rows(run("cat", tape, "--from", 50, "--count", 7))] == list(range(50, 57))
    everything = rows(run("cat", tape))
    chosen = rows(run("cat", tape, "--symbol", 2, "--symbol", 3))
    assert chosen == [row for row in everything if row["instrument_id"] in ("2", "3")]
    assert chosen


def test_cat_as_json_has_all_fields(tape: Path) -> None:
    lines = [json.loads(line) for line in run("cat", tape, "--json", "--count", 20).output.splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, 21))
    assert {"trade_id", "venue_sequence", "publisher_id", "ts_event"} <= set(lines[0])


def test_verify_of_one(tape: Path) -> None:
    result = run("verify", tape)
    assert result.exit_code == 0
    assert "valid, 24 frames" in result.output
    assert "read by databento-dbn" in result.output


def test_verify_of_several_that_are_the_same(tape: Path, tmp_path: Path) -> None:
    shorter = record(tmp_path / "shorter", FRAMES[:20])
    result = run("verify", tape, shorter)
    assert result.exit_code == 0
    assert f"{shorter} is identical to {tape} in 20 frames ({shorter} ends at sequence" in result.output


def test_verify_names_the_first_frame_that_differs(tape: Path, tmp_path: Path) -> None:
    at = next(n for n, frame in enumerate(FRAMES) if n > 3 and frame.packets[0].payload[1] == 0)
    other = record(tmp_path / "other", rechained(FRAMES, at, other_price))
    result = run("verify", tape, tape, other)
    assert result.exit_code == 1
    assert f"{other} differs from {tape} at slot {FRAMES[at].slot}, sequence" in result.output
    assert "price of record" in result.output
    report = json.loads(run("verify", tape, other, "--json").output)
    assert report["identical"] is False
    assert report["differences"][0]["slot"] == FRAMES[at].slot


def test_verify_of_a_damaged_tape_is_exit_code_1(tape: Path) -> None:
    path = TapeReader(tape / "tape").segments[1].data_path
    content = bytearray(path.read_bytes())
    content[300] ^= 1
    path.write_bytes(content)
    result = run("verify", tape)
    assert result.exit_code == 1
    assert "NOT VALID" in result.output
    assert path.name in result.output


@pytest.mark.parametrize("order", [0, 1])
def test_a_damaged_tape_is_neither_identical_nor_different(tape: Path, tmp_path: Path, order: int) -> None:
    good = record(tmp_path / "good", FRAMES)
    flip(TapeReader(tape / "tape").segments[1].data_path, 300)
    pair = (tape, good) if order else (good, tape)
    result = run("verify", *pair)
    assert result.exit_code == 1
    assert "identical" not in result.output
    assert f"{pair[1]} was not compared with {pair[0]}: {tape} is not valid" in result.output
    report = json.loads(run("verify", *pair, "--json").output)
    assert report["identical"] is False
    assert report["differences"][0]["not_compared"] == f"{tape} is not valid"
    both = run("verify", tape, tape)
    assert f"{tape} and {tape} are not valid" in both.output


@pytest.mark.parametrize("suffix", [".idx", ".dbn"])
@pytest.mark.parametrize("segment", [0, 1])
def test_a_tape_without_one_of_its_files_is_not_valid(tape: Path, tmp_path: Path, suffix: str, segment: int) -> None:
    good = record(tmp_path / "good", FRAMES)
    sorted((tape / "tape").glob(f"*{suffix}"))[segment].unlink()
    result = run("verify", good, tape)
    assert result.exit_code == 1
    assert f"{tape}: NOT VALID: " in result.output
    assert "of this segment" in result.output
    assert f"{tape} was not compared with {good}" in result.output


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("file", ["data", "index", "last data", "last index"])
def test_cat_and_export_refuse_what_is_not_valid(tape: Path, tmp_path: Path, file: str) -> None:
    segments = TapeReader(tape / "tape").segments
    chosen = segments[-1] if file.startswith("last") else segments[2]
    assert len(chosen.lines) > 1
    path = chosen.index_path if file.endswith("index") else chosen.data_path
    flip(path, chosen.lines[0].packets_at - 10 if file.endswith("index") else chosen.lines[0].at + 20)
    printed = run("cat", tape)
    assert printed.exit_code == 2
    assert f"{path}: damaged at byte" in printed.output
    assert "--unsound" in printed.output
    sequences = [int(line.split(",")[0]) for line in printed.stdout.splitlines()[1:]]
    assert sequences == list(range(1, chosen.first_sequence)), "nothing of the damaged segment"
    assert rows(run("cat", tape, "--count", chosen.first_sequence - 1))
    for suffix in (".csv", ".dbn", ".parquet"):
        output = tmp_path / f"tape{suffix}"
        result = run("export", tape, "-o", output)
        assert result.exit_code == 2
        assert list(tmp_path.glob("tape.*")) == [], "no part of a file is left"
        assert len(result.output.strip().splitlines()) == 1
    if file.endswith("data"):
        assert len(rows(run("cat", tape, "--unsound"))) == RECORDS
        assert run("export", tape, "-o", tmp_path / "tape.dbn", "--unsound").exit_code == 0


def test_cat_refuses_a_gap(tape: Path) -> None:
    segments = TapeReader(tape / "tape").segments
    segments[1].data_path.unlink()
    segments[1].index_path.unlink()
    result = run("cat", tape)
    assert result.exit_code == 2
    assert f"{segments[2].index_path}: does not follow the previous segment" in result.output


def test_an_empty_file_is_one_sentence(tape: Path) -> None:
    TapeReader(tape / "tape").segments[0].data_path.write_bytes(b"")
    for options in ((), ("--unsound",)):
        result = run("cat", tape, *options)
        assert result.exit_code == 2
        assert len(result.stderr.strip().splitlines()) == 1


def test_cat_as_csv_and_as_json_have_the_same_values(tape: Path) -> None:
    """JSON is made record by record, the table many records at a time."""
    lines = [json.loads(line) for line in run("cat", tape, "--json").output.splitlines()]
    assert {line["type"] for line in lines} >= {"trade", "quote", "status", "instrument", "system"}
    for row, line in zip(rows(run("cat", tape)), lines, strict=True):
        line["floor"] = line["publisher_id"]
        assert row == {name: "" if line.get(name) is None else str(line[name]) for name in row}


@pytest.mark.parametrize("price", [0, 1, -1, -1_500_000_000, 2**63 - 2, -(2**63)])
def test_a_price_is_printed_with_all_decimals(price: int) -> None:
    text = price_text(price)
    assert price_from_decimal(text) == price
    assert re.fullmatch(r"-?\d+\.\d{9}", text)


def test_a_native_export_to_dbn_is_one_file_that_dbn_tools_read(tape: Path, tmp_path: Path) -> None:
    dbn: Any = databento_dbn
    chosen = ("--symbol", 2, "--symbol", 0, "--from", 20)
    for options, count in ((), RECORDS), (chosen, len(rows(run("cat", tape, *chosen)))):
        output = tmp_path / f"{count}.dbn"
        result = run("export", tape, "-o", output, "--native", *options)
        assert result.output.startswith(f"Wrote {count} records to")
        decoder = dbn.DBNDecoder()
        decoder.write(output.read_bytes())
        assert len(decoder.decode()) == count + 1


def test_export_to_csv_is_what_cat_prints(tape: Path, tmp_path: Path) -> None:
    output = tmp_path / "tape.csv"
    assert run("export", tape, "-o", output).exit_code == 0
    assert output.read_text() == run("cat", tape).output


def test_export_does_not_replace_a_file_unasked(tape: Path, tmp_path: Path) -> None:
    output = tmp_path / "tape.csv"
    output.write_text("mine")
    result = run("export", tape, "-o", output)
    assert result.exit_code == 2
    assert "--force" in result.output
    assert output.read_text() == "mine"
    assert run("export", tape, "-o", output, "--force").exit_code == 0


def test_export_to_something_else_is_refused(tape: Path, tmp_path: Path) -> None:
    assert run("export", tape, "-o", tmp_path / "tape.xls").exit_code == 2


def test_parquet_needs_pyarrow(tape: Path, tmp_path: Path) -> None:
    output = tmp_path / "tape.parquet"
    result = run("export", tape, "-o", output)
    if importlib.util.find_spec("pyarrow") is None:
        assert result.exit_code == 2
        assert "Parquet needs pyarrow, which is not installed" in result.output
        assert list(tmp_path.glob("tape.parquet*")) == []
    else:
        assert result.exit_code == 0
        table = importlib.import_module("pyarrow.parquet").read_table(output)
        listed = run("cat", tape).output.splitlines()
        assert table.num_rows == len(listed) - 1
        rows = [line.split(",") for line in listed[1:]]
        assert [str(value) for value in table["seq"].to_pylist()] == [row[0] for row in rows]
        assert [value or "" for value in table["action"].to_pylist()] == [row[8] for row in rows]


@pytest.mark.parametrize("command", ["info", "cat", "verify"])
def test_what_is_no_tape_is_one_sentence(command: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    for folder, says in ((tmp_path, "not a tape directory"), (tmp_path / "none", "directory not found")):
        result = run(command, folder)
        assert result.exit_code == 2
        assert says in result.output
        assert len(result.output.strip().splitlines()) == 1


def test_a_tape_from_the_future_is_one_sentence(tape: Path) -> None:
    path = TapeReader(tape / "tape").segments[0].index_path
    content = bytearray(path.read_bytes())
    content[8] = 7
    path.write_bytes(content)
    result = run("cat", tape)
    assert result.exit_code == 2
    assert "version 7, but this Levelcast reads version 2; use a newer Levelcast" in result.output


def test_a_growing_tape_can_be_looked_at(tape: Path) -> None:
    writer = TapeWriter.open(tape / "tape", FIRST)
    assert run("info", tape).exit_code == 0
    assert run("verify", tape).exit_code == 0
    writer.close()
