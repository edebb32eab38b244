"""`levelcast tape export`: files that databento's own client and databento-dbn read to the rows of the tape."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import databento
import databento_dbn
import numpy as np
import pandas as pd
import pytest
from databento.common.publishers import Publisher

from levelcast.formats.dbn_events import dbn_events
from levelcast.formats.trade_files import open_trades
from levelcast.records import PRIVATE_PUBLISHERS, VENUE_PUBLISHERS, dbn_metadata
from levelcast.storage.tape.reader import TapeReader
from levelcast.storage.tape.writer import TapeWriter
from tests.export_parts import DIRECTORY, ROW, evening, expected, normal, publisher_of, some_trades, write_tape
from tests.publish_parts import network_text
from tests.tape_parts import FIRST
from tests.test_cli_tape_tape import run


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return evening(tmp_path_factory.mktemp("export") / "tokyo-1")


def exported(node: Path, output: Path, *options: object) -> Any:
    result = run("export", node, "-o", output, *options)
    assert result.exit_code == 0, result.output
    return databento.DBNStore.from_file(output)


def same(found: pd.DataFrame, wanted: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(found, wanted)
    assert len(wanted)


@pytest.mark.parametrize("name", ["day.dbn", "day.dbn.zst"])
def test_databento_s_client_reads_the_rows_of_the_tape(node: Path, tmp_path: Path, name: str) -> None:
    store = exported(node, tmp_path / name)
    wanted = expected(node)
    # With the schema named, as the client demands where the header has none: there, records with a tail are garbage.
    array = store.to_ndarray(schema="trades")
    same(normal(array, ROW), wanted.drop(columns="symbol"))
    assert set(array["length"].tolist()) == {12}
    same(normal(store.to_df(price_type="fixed", pretty_ts=False).reset_index()), wanted)
    frame = store.to_df()
    times = pd.to_datetime(wanted["ts_recv"], utc=True)
    assert frame.index.tolist() == times.tolist()
    assert frame["symbol"].tolist() == wanted["symbol"].tolist()
    assert len(set(frame.index.date)) == 2
    prices = np.where(wanted["price"] == 2**63 - 1, np.nan, wanted["price"] / 1e9)
    assert np.array_equal(frame["price"].to_numpy(), prices, equal_nan=True)
    store.to_parquet(tmp_path / "client.parquet", price_type="fixed", pretty_ts=False)
    same(normal(pd.read_parquet(tmp_path / "client.parquet").reset_index()), wanted)


def test_databento_dbn_reads_the_same_rows(node: Path, tmp_path: Path) -> None:
    store = exported(node, tmp_path / "day.dbn")
    dbn: Any = databento_dbn
    decoder = dbn.DBNDecoder()
    decoder.write((tmp_path / "day.dbn").read_bytes())
    metadata, *records = decoder.decode()
    assert {type(record) for record in records} == {dbn.TradeMsg}
    rows = [{name: getattr(record, name) for name in ROW} for record in records]
    letters = {"action": str, "side": str, "rtype": int, "flags": int}
    rows = [row | {name: as_type(row[name]) for name, as_type in letters.items()} for row in rows]
    same(normal(rows, ROW), expected(node).drop(columns="symbol"))
    assert metadata.schema == dbn.Schema.TRADES
    assert (metadata.version, metadata.dataset, store.dataset) == (3, "LVLCAST.TRADES", "LVLCAST.TRADES")
    assert metadata.symbols == sorted(DIRECTORY.symbols)
    assert (metadata.stype_in, metadata.stype_out) == (dbn.SType.RAW_SYMBOL, dbn.SType.INSTRUMENT_ID)
    assert metadata.start <= records[0].ts_recv
    assert records[-1].ts_recv < metadata.end


def test_the_client_s_own_csv_and_json_map_symbols(node: Path, tmp_path: Path) -> None:
    """The client transcodes these in databento-dbn, which uses the mappings by itself."""
    store = exported(node, tmp_path / "day.dbn")
    store.to_csv(tmp_path / "client.csv", pretty_px=False, pretty_ts=False)
    same(normal(pd.read_csv(tmp_path / "client.csv")), expected(node))


def test_a_selection_has_the_selected_trades(node: Path, tmp_path: Path) -> None:
    store = exported(node, tmp_path / "day.dbn", "--symbol", 2, "--symbol", 3, "--from", 1234)
    wanted = expected(node, (2, 3), 1234)
    same(normal(store.to_df(price_type="fixed", pretty_ts=False).reset_index()), wanted)
    assert store.symbols == sorted(set(wanted["symbol"]))
    first = next(frame.line for frame in TapeReader(node / "tape").frames(from_sequence=1234))
    assert store.metadata.start == first.timestamp_ns <= wanted["ts_recv"].iloc[0]


def test_the_command_counts_what_is_left_out(node: Path, tmp_path: Path) -> None:
    result = run("export", node, "-o", tmp_path / "day.dbn")
    count = len(expected(node))
    assert result.stdout == f"Wrote {count:,} records to {tmp_path / 'day.dbn'}\n"
    assert result.stderr == (
        "Left out records that are not trades (cancel 30, correction 30, instrument 52, quote 75); "
        "--native writes all records\n"
    )


def test_native_records_are_those_of_the_tape(node: Path, tmp_path: Path) -> None:
    result = run("export", node, "-o", tmp_path / "tape.dbn", "--native")
    frames = list(TapeReader(node / "tape").frames())
    whole = b"".join(bytes(frame.data()) for frame in frames)
    assert (tmp_path / "tape.dbn").read_bytes() == dbn_metadata() + whole
    assert result.output == f"Wrote {frames[-1].line.next_sequence - 1:,} records to {tmp_path / 'tape.dbn'}\n"
    assert run("export", node, "-o", tmp_path / "tape.dbn.zst", "--native").exit_code == 0
    dbn: Any = databento_dbn
    decoder = dbn.DBNDecoder(compression=dbn.Compression.ZSTD)
    decoder.write((tmp_path / "tape.dbn.zst").read_bytes())
    assert len(decoder.decode()) == frames[-1].line.next_sequence


def test_readers_by_record_length_read_native_files(node: Path, tmp_path: Path) -> None:
    """As the table of readers in docs/tape.md has it."""
    run("export", node, "-o", tmp_path / "tape.dbn", "--native")
    store: Any = databento.DBNStore.from_file(tmp_path / "tape.dbn")
    wanted = expected(node)
    traded = [record for record in store if isinstance(record, databento_dbn.TradeMsg) and str(record.action) == "T"]
    assert [record.price for record in traded] == wanted["price"].tolist()
    assert [record.sequence for record in traded] == wanted["sequence"].tolist()
    store.to_csv(tmp_path / "client.csv", pretty_px=False, pretty_ts=False, schema="trades")
    table = pd.read_csv(tmp_path / "client.csv")
    assert table[table["action"] == "T"]["price"].tolist() == wanted["price"].tolist()


@pytest.mark.parametrize("name", ["tape.csv", "tape.parquet"])
@pytest.mark.parametrize("option", ["--native", "--network"])
def test_options_of_dbn_are_refused_for_tables(node: Path, tmp_path: Path, name: str, option: str) -> None:
    value = [tmp_path / "network.toml"] if option == "--network" else []
    result = run("export", node, "-o", tmp_path / name, option, *value)
    assert result.exit_code == 2
    assert f"{option} applies to .dbn and .dbn.zst files only; omit it" in " ".join(result.output.split())
    assert list(tmp_path.iterdir()) == []


def test_a_tape_without_definitions_takes_names_from_the_network_file(tmp_path: Path) -> None:
    """As one whose beginning retention has removed."""
    node = evening(tmp_path / "tokyo-1", 300, definitions=False)
    result = run("export", node, "-o", tmp_path / "day.dbn")
    assert result.exit_code == 0
    assert (
        "No symbol for instrument 1, 2, 3, 4: the tape has no definition; pass --network FILE"
        in result.stderr.splitlines()
    )
    frame = databento.DBNStore.from_file(tmp_path / "day.dbn").to_df()
    assert frame["symbol"].isna().all()
    assert (frame["publisher_id"] > PRIVATE_PUBLISHERS).all()
    network = tmp_path / "network.toml"
    network.write_text(network_text())
    store = exported(node, tmp_path / "named.dbn", "--network", network)
    same(normal(store.to_df(price_type="fixed", pretty_ts=False).reset_index()), expected(node))


def test_a_missing_network_file_is_one_sentence(node: Path, tmp_path: Path) -> None:
    options = [str(node), "-o", str(tmp_path / "day.dbn"), "--network", str(tmp_path / "none.toml")]
    command = [sys.executable, "-m", "levelcast", "tape", "export", *options]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 2
    file = tmp_path / "none.toml"
    assert result.stderr == f"levelcast: {file}: network file not found; write one with `levelcast init --out {file}`\n"
    assert list(tmp_path.iterdir()) == []


def test_floors_that_would_share_a_private_publisher_are_refused(tmp_path: Path) -> None:
    batch = some_trades(2)
    batch["publisher_id"] = [901, 32768 + 901]
    node = write_tape(tmp_path / "tokyo-1", [(2, [batch[:1].tobytes(), batch[1:].tobytes()])], start_ns=10**18)
    result = run("export", node, "-o", tmp_path / "day.dbn")
    assert result.exit_code == 2
    assert "publishers 901 and 33669 would both be exported as publisher 33669; use --native" in result.output
    assert not (tmp_path / "day.dbn").exists()


def test_an_export_without_trades_is_read_as_an_empty_table(node: Path, tmp_path: Path) -> None:
    store = exported(node, tmp_path / "day.dbn", "--symbol", 4_000_000_000)
    assert len(store.to_ndarray()) == len(store.to_df()) == 0
    empty = tmp_path / "empty"
    TapeWriter.open(empty / "tape", FIRST).close()
    assert len(exported(empty, tmp_path / "empty.dbn").to_df()) == 0


def test_an_exported_file_can_be_published_again(node: Path, tmp_path: Path) -> None:
    """Floors are found by the venue of the publisher; ids of the private range are floors of the network."""
    exported(node, tmp_path / "day.dbn")
    wanted = expected(node)
    priced = wanted[wanted["price"] != 2**63 - 1]
    content = (tmp_path / "day.dbn").read_bytes()
    head = len(content) - 48 * len(wanted)
    rows = np.frombuffer(content, np.uint8, offset=head).reshape(-1, 48)[priced.index]
    (tmp_path / "priced.dbn").write_bytes(content[:head] + rows.tobytes())
    found = np.concatenate(list(open_trades([tmp_path / "priced.dbn"], DIRECTORY)))
    assert [publisher_of(floor) for floor in found["publisher_id"].tolist()] == priced["publisher_id"].tolist()
    assert found["instrument_id"].tolist() == priced["instrument_id"].tolist()
    assert found["price"].tolist() == priced["price"].tolist()


def test_an_exported_file_names_its_venues_for_the_pipeline(node: Path, tmp_path: Path) -> None:
    exported(node, tmp_path / "day.dbn")
    (events,) = (event for chunk in dbn_events(tmp_path / "day.dbn") for event in chunk.events)
    assert events.venues is not None
    found = {events.venues.names[code] for code in set(events.venues.codes.tolist()) if code >= 0}
    assert found - {""} == {floor.name for floor in DIRECTORY.floors} & VENUE_PUBLISHERS.keys()


def test_publishers_are_those_of_databento_s_table() -> None:
    """A venue has the publisher of the dataset that is named after it, or else the lowest."""
    table: dict[str, tuple[bool, int]] = {}
    for publisher in Publisher:
        dataset, _, venue = publisher.value.rpartition(".")
        rank = (not dataset.startswith(f"{venue}."), publisher.to_int())
        table[venue] = min(rank, table.get(venue, rank))
    assert {venue: table[venue][1] for venue in VENUE_PUBLISHERS} == VENUE_PUBLISHERS
    assert max(number for _, number in table.values()) < PRIVATE_PUBLISHERS
