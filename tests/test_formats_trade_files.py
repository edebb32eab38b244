"""Files of trades: exact values, file order, and one sentence for whatever is wrong, before anything is published."""

from __future__ import annotations

import builtins
import csv
import gzip
import struct
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast.extras import ExtraMissing
from levelcast.formats import csv_parquet, dbn, lean
from levelcast.formats.columns import Rows, prices
from levelcast.formats.trade_files import TradeFileError, open_trades, survey
from levelcast.network import SymbolDirectory, parse_network
from levelcast.records import (
    FLAG_PUBLISHER_SPECIFIC,
    RecordArray,
    dbn_metadata,
    mappings,
    price_from_decimal,
    quotes,
    stamp,
    trades,
)
from tests.publish_parts import SYMBOLS, network_text

DIRECTORY = SymbolDirectory(parse_network(network_text()))
DAY = date(2013, 10, 7)
NOON = 1_381_161_600_000_000_000
HEADER = "ts_event,symbol,price,size,floor\n"
GOOD = f"{NOON},SPY,167.425,100,XNYS\n"


def read(*paths: Path, **options: Any) -> RecordArray:
    found = list(open_trades(paths, DIRECTORY, network="network.toml", **options))
    return np.concatenate(found) if found else trades(0)


def refusal(*paths: Path, **options: Any) -> str:
    with pytest.raises(TradeFileError) as caught:
        read(*paths, **options)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str, name: str = "trades.csv") -> Path:
        path = tmp_path / name
        content = text.encode()
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
        return path

    return write


# -- CSV --------------------------------------------------------------------------------------------------


def test_a_csv_with_all_columns(file: Callable[..., Path]) -> None:
    text = (
        "trade_id,floor,condition,size,price,symbol,ts_event,remark\n"
        f"71,XNYS,5,100,167.425,SPY,{NOON},x\n"
        f'72,ARCX,0x20,4294967295,-0.000000001,IBM,{NOON + 1},"a, b"\n'
        f"70,XNYS,,0,9223372036.854775806,SPY,{NOON},\n"
    )
    found = read(file(text))
    assert found["price"].tolist() == [167_425_000_000, -1, 2**63 - 2]
    assert found["size"].tolist() == [100, 2**32 - 1, 0]
    assert found["ts_event"].tolist() == [NOON, NOON + 1, NOON]
    assert found["condition"].tolist() == [5, 0x20, 0]
    assert found["trade_id"].tolist() == [71, 72, 70]
    assert found["venue_sequence"].tolist() == [1, 1, 2]
    assert [DIRECTORY.floor_of(each).name for each in found["publisher_id"].tolist()] == ["XNYS", "ARCX", "XNYS"]
    assert [DIRECTORY.symbol_of(each) for each in found["instrument_id"].tolist()] == ["SPY", "IBM", "SPY"]
    assert not found["sequence"].any()
    assert not found["ts_recv"].any()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2013-10-07T16:00:00Z", NOON),
        ("2013-10-07 16:00:00.000000001Z", NOON + 1),
        ("2013-10-07T12:00:00.25-04:00", NOON + 250_000_000),
        (str(NOON), NOON),
        ("0", 0),
    ],
)
def test_times_are_nanoseconds_or_iso_8601(file: Callable[..., Path], text: str, expected: int) -> None:
    assert read(file(f"{HEADER}{text},SPY,1,1,XNYS\n"))["ts_event"].tolist() == [expected]


def test_a_csv_may_be_compressed_have_windows_line_ends_a_mark_in_front_and_empty_lines(
    file: Callable[..., Path],
) -> None:
    text = "\ufeff" + (HEADER + GOOD + "\n" + GOOD + "\n").replace("\n", "\r\n")
    assert len(read(file(text))) == len(read(file(text, "trades.csv.gz"))) == 2


def test_an_empty_csv_has_no_trades(file: Callable[..., Path]) -> None:
    assert len(read(file(HEADER))) == 0


def test_a_named_floor_is_that_of_rows_that_do_not_say_and_chooses_among_those_that_do(
    file: Callable[..., Path],
) -> None:
    silent = file(f"ts_event,symbol,price,size\n{NOON},SPY,1,1\n{NOON},IBM,2,2\n", "silent.csv")
    assert set(read(silent, floor="ARCX")["publisher_id"]) == {DIRECTORY.floor("ARCX").publisher}
    telling = file(HEADER + f"{NOON},SPY,1,1,XNYS\n{NOON},SPY,2,2,ARCX\n{NOON},SPY,3,3,XNYS\n", "telling.csv")
    found = read(telling, floor="XNYS")
    assert (found["size"].tolist(), found["venue_sequence"].tolist()) == ([1, 3], [1, 2])


def test_files_follow_each_other_and_the_numbers_go_on(file: Callable[..., Path]) -> None:
    one, other = file(HEADER + GOOD * 3, "1.csv"), file(HEADER + GOOD * 2, "2.csv")
    assert read(other, one)["trade_id"].tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (f"{NOON},SPY,abc,1,XNYS", 'price "abc" is not a decimal number'),
        (f"{NOON},SPY,,1,XNYS", "price is empty"),
        (f"{NOON},SPY,1.0000000001,1,XNYS", "price 1.0000000001 has more than 9 decimals"),
        (f"{NOON},SPY,9223372036.854775807,1,XNYS", "does not fit into 64 bits of 1e-9"),
        (f"{NOON},SPY,1e30,1,XNYS", "does not fit into 64 bits of 1e-9"),
        (f"{NOON},SPY,nan,1,XNYS", "is not a finite number"),
        (f"{NOON},SPY,1_0,1,XNYS", 'price "1_0" is not a decimal number'),
        (f"{NOON},SPY,1,-5,XNYS", 'size "-5" is not an integer from 0 to 4,294,967,295'),
        (f"{NOON},SPY,1,4294967296,XNYS", 'size "4294967296" is not an integer'),
        (f"{NOON},SPY,1,99999999999999999999,XNYS", 'size "99999999999999999999" is not an integer'),
        (f"{NOON},SPY,1,1.5,XNYS", 'size "1.5" is not an integer'),
        (f"{NOON},SPY,1,,XNYS", "size is empty"),
        ("yesterday,SPY,1,1,XNYS", 'ts_event "yesterday" is not a time from 1970 to 2262'),
        ("2013-10-07T16:00:00,SPY,1,1,XNYS", "ISO 8601 with a zone"),
        ("1969-12-31T23:59:59Z,SPY,1,1,XNYS", "is not a time from 1970 to 2262"),
        ("-1,SPY,1,1,XNYS", "is not a time from 1970 to 2262"),
        (f"{NOON},AAPL,1,1,XNYS", "AAPL is not among the symbols of floor XNYS in network.toml; add it there"),
        (f"{NOON},SPY,1,1,XTKS", '"XTKS" is not a floor of network.toml; specify one of XBOS, '),
        (f"{NOON},SPY,1,1", "has 4 columns instead of 5"),
        (f"{NOON},SPY,1,1,XNYS,7", "has 6 columns instead of 5"),
    ],
)
def test_a_bad_row_is_named_by_row_and_line(file: Callable[..., Path], row: str, says: str) -> None:
    first = GOOD if not row.startswith(("2013", "1969")) else GOOD.replace(str(NOON), "2013-10-07T16:00:00Z")
    path = file(HEADER + first * 500 + "\n" + first * 4 + row + "\n" + first * 3)
    sentence = refusal(path)
    assert sentence.startswith(f"{path}: row 505 (line 507): ")
    assert says in sentence


def test_the_row_is_right_in_a_later_block_too(file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_parquet, "BLOCK_BYTES", 512)
    path = file(HEADER + GOOD * 1000 + f"{NOON},SPY,1,x,XNYS\n")
    assert refusal(path).startswith(f"{path}: row 1,001 (line 1,002): size")
    short = file(HEADER + GOOD * 1000 + f"{NOON},SPY\n", "short.csv")
    assert refusal(short).startswith(f"{short}: row 1,001 (line 1,002): has 2 columns")


def test_the_row_is_right_where_rows_of_other_floors_are_left_out(file: Callable[..., Path]) -> None:
    path = file(HEADER + f"{NOON},SPY,1,1,ARCX\n" * 9 + f"{NOON},TSLA,1,1,XNYS\n")
    assert refusal(path, floor="XNYS").startswith(f"{path}: row 10 (line 11): TSLA is not among the symbols")


def test_a_file_that_is_no_table_of_trades_is_refused(file: Callable[..., Path], tmp_path: Path) -> None:
    assert "column price not found (columns: ts_event, symbol, size)" in refusal(file("ts_event,symbol,size\n"))
    assert "column floor not found; add it, or specify the floor with --floor" in refusal(
        file(f"ts_event,symbol,price,size\n{NOON},SPY,1,1\n")
    )
    assert "for a file of LEAN pass --format lean" in refusal(file("1,2,3\n", "spy_trade.csv"))
    assert "file not found" in refusal(tmp_path / "nothing.csv")
    assert "is a directory" in refusal(tmp_path)
    assert "its name does not show the format" in refusal(file("", "trades.txt"))
    assert 'unknown format "xml"' in refusal(file(""), format="xml")
    assert '"XTKS" is not a floor of network.toml' in refusal(file(HEADER), floor="XTKS")


@pytest.mark.parametrize("damage", ["cut", "flip", "plain"])
def test_a_damaged_gzip_is_refused(file: Callable[..., Path], damage: str) -> None:
    path = file(HEADER + "".join(f"{NOON + i},SPY,{i}.5,{i},XNYS\n" for i in range(5000)), "trades.csv.gz")
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 0xFF
    path.write_bytes({"cut": bytes(content[:-400]), "flip": bytes(content), "plain": HEADER.encode()}[damage])
    assert str(path) in refusal(path)


def test_without_pyarrow_the_sentence_says_how_to_get_it(
    file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> ModuleType:
        raise ModuleNotFoundError(f"No module named {name!r}")

    path = file(HEADER)
    monkeypatch.setattr("levelcast.extras.import_module", missing)
    with pytest.raises(ExtraMissing, match=r"pyarrow is not installed.*: pip install 'levelcast\[files\]'"):
        read(path)


# -- prices, exactly --------------------------------------------------------------------------------------


@given(st.lists(st.integers(-(2**63), 2**63 - 2), min_size=1, max_size=50))
def test_every_price_survives_its_text(units: list[int]) -> None:
    texts = [str(Decimal(each).scaleb(-9)) for each in units]
    assert prices(pa.array(texts), Rows(Path("x"), 1)).tolist() == units
    assert [price_from_decimal(text) for text in texts] == units


@given(st.lists(st.integers(-(9 * 10**9), 9 * 10**9), min_size=1, max_size=50), st.integers(0, 4))
def test_a_float_is_the_decimal_that_everybody_prints(cents: list[int], places: int) -> None:
    decimals = [Decimal(each).scaleb(-places) for each in cents]
    found = prices(pa.array([float(each) for each in decimals]), Rows(Path("x"), 1))
    assert found.tolist() == [price_from_decimal(each) for each in decimals]


# -- Parquet ----------------------------------------------------------------------------------------------


def parquet_file(path: Path, **columns: Any) -> Path:
    parquet.write_table(pa.table(columns), path)
    return path


def test_parquet_in_its_own_types(tmp_path: Path) -> None:
    when = datetime(2013, 10, 7, 12, 0, 0, 250_000, timezone(timedelta(hours=-4)))
    found = read(
        parquet_file(
            tmp_path / "t.parquet",
            ts_event=pa.array([when, when], pa.timestamp("us", "America/New_York")),
            symbol=pa.array(["SPY", "IBM"]).dictionary_encode(),
            price=pa.array([Decimal("167.4250"), Decimal("-1.5")], pa.decimal128(12, 4)),
            size=pa.array([100, 200], pa.int32()),
            floor=["XNYS", "XNYS"],
            condition=pa.array([7, None], pa.uint32()),
            trade_id=pa.array([2**64 - 1, 5], pa.uint64()),
        )
    )
    assert found["ts_event"].tolist() == [NOON + 250_000_000] * 2
    assert found["price"].tolist() == [167_425_000_000, -1_500_000_000]
    assert found["trade_id"].tolist() == [2**64 - 1, 5]
    assert found["condition"].tolist() == [7, 0]


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("price", pa.array([None], pa.string()), "row 1: price is empty"),
        ("price", pa.array([16742500]), "price is of type int64, which has no known unit"),
        ("price", pa.array([0.1 + 0.2]), "has more than 9 decimals"),
        ("price", pa.array([float("inf")]), "is not a"),
        ("size", pa.array([-1]), 'size "-1" is not an integer'),
        ("size", pa.array([1.5]), "size is of type double; store it as integers"),
        ("ts_event", pa.array([-1]), 'ts_event "-1" is not an integer'),
        ("ts_event", pa.array([datetime(9999, 1, 1)], pa.timestamp("s")), "is not a time from 1970 to 2262"),
        ("symbol", pa.array(["AAPL"]), "row 1: AAPL is not among the symbols of floor XNYS"),
        ("symbol", pa.array([None], pa.string()), "row 1: symbol is empty"),
    ],
)
def test_what_a_parquet_file_must_not_have(tmp_path: Path, column: str, value: Any, says: str) -> None:
    columns = {"ts_event": pa.array([NOON]), "symbol": ["SPY"], "price": ["1.5"], "size": [1], "floor": ["XNYS"]}
    assert says in refusal(parquet_file(tmp_path / "t.parquet", **{**columns, column: value}))


def test_a_damaged_parquet_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    path.write_bytes(b"PAR1 nothing of the kind")
    assert "cannot be read" in refusal(path)


# -- DBN --------------------------------------------------------------------------------------------------


def some_trades(count: int) -> RecordArray:
    batch = trades(count)
    batch["publisher_id"] = DIRECTORY.floor("XNYS").publisher
    batch["instrument_id"] = 17077
    batch["ts_event"] = NOON + np.arange(count)
    batch["price"] = 10**9 * np.arange(1, count + 1)
    batch["size"] = 5
    batch["trade_id"] = 1000 + np.arange(count)
    batch["condition"] = 3
    batch["side"] = b"A"
    return batch


def bare(batch: RecordArray) -> bytes:
    """As other programs write them: 48 bytes, without our tail."""
    octets = batch.view(np.uint8).reshape(len(batch), -1)[:, :48].copy()
    octets[:, 0] = 12
    return octets.tobytes()


def defined(symbol: str) -> bytes:
    batch = DIRECTORY.definitions(DIRECTORY.floor("XNYS"), NOON)[:1]
    batch["raw_symbol"], batch["instrument_id"] = symbol.encode(), 17077
    return batch.tobytes()


def mapped(symbol: str, back: str) -> bytes:
    batch = mappings(1)
    batch["instrument_id"], batch["stype_in_symbol"], batch["stype_out_symbol"] = 17077, symbol.encode(), back.encode()
    return batch.tobytes()


@pytest.mark.parametrize("name", ["t.dbn", "t.dbn.zst"])
@pytest.mark.parametrize("told", ["definition", "mapping", "other mapping"])
def test_dbn_with_and_without_our_tail(tmp_path: Path, name: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dbn, "CHUNK_BYTES", 1000)  # so that records lie across its borders
    symbol = {"definition": defined("SPY"), "mapping": mapped("SPY", "17077"), "other mapping": mapped("S.x", "SPY")}
    batch = some_trades(200)
    stamped = stamp(batch[:100].tobytes(), 5, NOON)
    content = dbn_metadata() + symbol[told] + stamped + quotes(3).tobytes() + bare(batch[100:])
    with pa.output_stream(tmp_path / name, compression="zstd" if name.endswith("zst") else None) as stream:
        stream.write(content)
    found = read(tmp_path / name)
    assert found["price"].tolist() == batch["price"].tolist()
    assert found["ts_event"].tolist() == batch["ts_event"].tolist()
    assert set(found["instrument_id"]) == {DIRECTORY.id_of("SPY")}
    assert set(found["length"]) == {16}
    assert found["trade_id"].tolist() == [*range(1000, 1100), *range(101, 201)]
    assert found["condition"].tolist() == [3] * 100 + [0] * 100
    assert found["venue_sequence"].tolist() == list(range(1, 201))
    assert not found["sequence"].any()
    assert not found["ts_recv"].any()
    assert set(found["side"]) == {b"A"}


def header_v1(symbol: str, number: int, start: int, end: int) -> bytes:
    """The header of a DBN file of version 1, with one mapping."""
    body = struct.pack("<16sHQQQQBBB47xI", b"XNAS.ITCH", 0, 0, 0, 0, 0, 1, 0, 0, 0)
    body += struct.pack("<I22sII", 1, symbol.encode(), 0, 0)
    body += struct.pack("<I22sIII22s", 1, symbol.encode(), 1, start, end, str(number).encode())
    return b"DBN\x01" + struct.pack("<I", len(body)) + body


def test_the_header_s_mappings_give_symbols_day_by_day(tmp_path: Path) -> None:
    path = tmp_path / "t.dbn"
    path.write_bytes(header_v1("IBM", 17077, 20131007, 20131008) + bare(some_trades(3)))
    assert set(read(path, floor="ARCX")["instrument_id"]) == {DIRECTORY.id_of("IBM")}
    path.write_bytes(header_v1("IBM", 17077, 20131008, 20131009) + bare(some_trades(3)))
    assert "record 1: instrument 17077 has no symbol in this file" in refusal(path, floor="ARCX")


def test_a_file_of_another_program_reads_as_that_program_says(
    data_dir: Path, require_module: Callable[[str], ModuleType]
) -> None:
    """A real file of version 1: orders, which are stepped over, and a header that another reader understands too."""
    databento = require_module("databento_dbn")
    path = data_dir / "cme_es_mbo_20231225" / "esh4-glbx-mdp3-20231225.mbo.dbn.zst"
    with pa.input_stream(path, compression="zstd") as stream:
        header = dbn.read_header(path, stream)
    with pa.input_stream(path, compression="zstd") as stream:
        decoder = databento.DBNDecoder()
        decoder.write(stream.read(4096))
        metadata = decoder.decode()[0]
    assert header.dataset == metadata.dataset
    assert {number: [each.symbol for each in found] for number, found in header.ids.items()} == {17077: ["ESH4"]}
    assert len(read(path, floor="XNYS")) == 0


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not a DBN file"),
        (b"DBN\x09" + bytes(4), "DBN version 9 is not supported"),
        (dbn_metadata()[:50], "its DBN header is damaged"),
        (dbn_metadata() + defined("SPY") + some_trades(2).tobytes()[:-1], "ends in the middle of a record"),
        (dbn_metadata() + some_trades(1).tobytes(), "record 1: instrument 17077 has no symbol"),
        (dbn_metadata() + defined("SPY") + bytes(64), "ends in the middle of a record"),
        (dbn_metadata() + defined("AAPL") + some_trades(1).tobytes(), "record 2: AAPL is not among the symbols"),
        (dbn_metadata() + defined("SPY") + trades(1).tobytes(), "record 2: the trade has no price"),
    ],
)
def test_a_bad_dbn_file_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "t.dbn"
    path.write_bytes(content)
    assert says in refusal(path)


def test_a_publisher_that_is_no_floor_needs_a_named_one(tmp_path: Path) -> None:
    batch = some_trades(2)
    batch["publisher_id"] = [7, 900]
    path = tmp_path / "t.dbn"
    path.write_bytes(dbn_metadata() + defined("SPY") + batch.tobytes())
    assert "record 3: publisher 900 is not a floor of network.toml; specify it with --floor" in refusal(path)
    assert set(read(path, floor="BATS")["publisher_id"]) == {DIRECTORY.floor("BATS").publisher}


def test_a_tape_s_ids_are_the_directory_s(tmp_path: Path) -> None:
    batch = some_trades(2)
    batch["instrument_id"] = DIRECTORY.id_of("BAC")
    path = tmp_path / "t.dbn"
    path.write_bytes(dbn_metadata() + batch.tobytes())
    assert set(read(path)["instrument_id"]) == {DIRECTORY.id_of("BAC")}


# -- LEAN -------------------------------------------------------------------------------------------------


def test_lean_files_are_merged_by_time_and_keep_their_own_order(tmp_path: Path) -> None:
    (tmp_path / "spy_trade.csv").write_text(
        "34200000,1674100,100,P,20002000,0\n34200002,1674200,5,P,0,1\n34200001,1674300,6,P,1,0\n34200003,1,7,P,0,0\n"
    )
    (tmp_path / "ibm_trade.csv.gz").write_bytes(
        gzip.compress(b"34200000,1800000,1,N,0,0\n34200002,1800000,2,N,0,0\n34200003,1800000,3,P,0,0\n")
    )
    found = read(tmp_path / "spy_trade.csv", tmp_path / "ibm_trade.csv.gz", format="lean", day=DAY)
    order = [(DIRECTORY.symbol_of(each["instrument_id"]), int(each["size"])) for each in found]
    expected = [("SPY", 100), ("IBM", 1), ("SPY", 5), ("SPY", 6), ("IBM", 2), ("SPY", 7), ("IBM", 3)]
    assert order == expected
    assert found["price"][0] == price_from_decimal("167.41")
    assert found["ts_event"][0] == 1_381_152_600_000_000_000  # 9:30 in New York is 13:30 UTC
    assert found["condition"].tolist()[:4] == [0x20002000, 0, 0, 1]
    assert found["flags"].tolist()[:4] == [0, 0, FLAG_PUBLISHER_SPECIFIC, 0]
    assert survey([found]).backwards == 1
    same = read(tmp_path, format="lean", day=DAY)  # a directory: by name, so IBM is the first of equals
    assert [int(each) for each in same["size"]] == [1, 100, 2, 5, 6, 3, 7]


@pytest.mark.parametrize(("day", "hours"), [(date(2013, 10, 7), 4), (date(2013, 12, 2), 5), (date(2013, 11, 3), 5)])
def test_new_york_s_clocks_change(tmp_path: Path, day: date, hours: int) -> None:
    path = tmp_path / "spy_trade.csv"
    path.write_text("34200000,1,1,P,0,0\n")
    opened = datetime(day.year, day.month, day.day, 9, 30, tzinfo=timezone(-timedelta(hours=hours)))
    assert read(path, format="lean", day=day)["ts_event"].tolist() == [int(opened.timestamp()) * 10**9]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("34200000,1,1,E,0,0", "unknown venue 'E'"),
        ("86400000,1,1,P,0,0", 'time_ms "86400000" is not an integer from 0 to 86,399,999'),
        ("34200000,1,1,P,xyz,0", 'condition "xyz" is not hexadecimal'),
        ("34200000,1,1,P,100000000,0", "is not hexadecimal"),
        ("34200000,-1,1,P,0,0", 'price "-1" is not'),
        ("34200000,1,1,P,0,2", 'suspicious "2" is neither 0 nor 1'),
        ("34200000,1,1,P,0", "has 5 columns instead of 6"),
    ],
)
def test_a_bad_row_of_lean_is_named(tmp_path: Path, row: str, says: str) -> None:
    path = tmp_path / "spy_trade.csv"
    path.write_text("34200000,1,1,P,0,0\n" * 3 + row + "\n")
    sentence = refusal(path, format="lean", day=DAY)
    assert sentence.startswith(f"{path}: row 4 (line 4): ")
    assert says in sentence


def test_what_lean_needs_besides(tmp_path: Path, file: Callable[..., Path]) -> None:
    assert "specify it, such as --date" in refusal(tmp_path, format="lean")
    assert "no file <symbol>_trade.csv.gz" in refusal(tmp_path, format="lean", day=DAY)
    assert "its name does not contain the symbol" in refusal(file("", "spy.csv"), format="lean", day=DAY)
    unknown = file("34200000,1,1,P,0,0\n", "msft_trade.csv")
    assert "MSFT is not among the symbols of floor ARCX" in refusal(unknown, format="lean", day=DAY)


@given(
    st.lists(st.lists(st.integers(0, 20), max_size=12), min_size=1, max_size=4),
    st.integers(1, 5),
)
def test_merging_is_by_time_then_file_then_row(streams: list[list[int]], size: int) -> None:
    def batches(number: int, times: list[int]) -> Any:
        for first in range(0, len(times), size):
            batch = trades(len(times[first : first + size]))
            batch["ts_event"] = times[first : first + size]
            batch["publisher_id"] = number
            batch["trade_id"] = np.arange(first, first + len(batch))
            yield batch

    merged = list(lean.merge([batches(number, times) for number, times in enumerate(streams)]))
    found = [(int(each["publisher_id"]), int(each["trade_id"])) for batch in merged for each in batch]
    keys = [(max(times[: row + 1]), number, row) for number, times in enumerate(streams) for row in range(len(times))]
    assert found == [key[1:] for key in sorted(keys)]


# -- the real day -----------------------------------------------------------------------------------------


def independent(path: Path) -> list[tuple[int, Decimal, int, str, int]]:
    """Milliseconds, dollars, shares, venue and condition of each row, read with nothing of ours."""
    with gzip.open(path, "rt", newline="") as lines:
        return [
            (int(ms), Decimal(price) / 10_000, int(shares), venue, int(condition, 16))
            for ms, price, shares, venue, condition, _ in csv.reader(lines)
        ]


@pytest.mark.slow
def test_the_whole_of_7_october_2013(data_dir: Path) -> None:
    """388,417 trades: every one there, exact, and each venue's in the order of its files."""
    folder = data_dir / "us_equities_tick_20131007"
    found = read(folder, format="lean", day=DAY)
    assert len(found) == 388_417
    midnight_ms = int(datetime(2013, 10, 7, 4, tzinfo=UTC).timestamp()) * 1000  # 4:00 UTC is midnight there
    counts: Counter[str] = Counter()
    for symbol, rows in {"aig": 25_351, "bac": 88_172, "ibm": 24_293, "spy": 250_601}.items():
        expected = independent(folder / f"{symbol}_trade.csv.gz")
        mine = found[found["instrument_id"] == DIRECTORY.id_of(symbol.upper())]
        assert len(mine) == len(expected) == rows
        assert mine["ts_event"].tolist() == [(midnight_ms + row[0]) * 1_000_000 for row in expected]
        assert mine["price"].tolist() == [int(row[1].scaleb(9)) for row in expected]
        assert mine["size"].tolist() == [row[2] for row in expected]
        assert mine["condition"].tolist() == [row[4] for row in expected]
        floors = [DIRECTORY.floor_of(each).name for each in mine["publisher_id"].tolist()]
        assert floors == [lean.VENUES[row[3]] for row in expected]
        counts.update(row[3] for row in expected)
    assert len(counts) == 13
    for letter, count in counts.items():
        mine = found[found["publisher_id"] == DIRECTORY.floor(lean.VENUES[letter]).publisher]
        assert mine["venue_sequence"].tolist() == mine["trade_id"].tolist() == list(range(1, count + 1))
    assert np.all(np.diff(found["ts_event"].astype(np.int64)) >= 0)
    assert survey([found]).backwards == 0


def test_symbols_of_the_test_network_are_those_of_the_data() -> None:
    assert set(SYMBOLS) <= set(DIRECTORY.symbols)
    assert builtins.len(DIRECTORY.floors) == 13
