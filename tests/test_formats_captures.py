"""Captures and files as events: what the data's own description counts, and what becomes of rows that are wrong."""

from __future__ import annotations

import csv
import gzip
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from levelcast.formats import iex, itch, pcap
from levelcast.formats.captures import FILE_STEP, CaptureBatch, TradeFileError, read_task, tasks_of
from levelcast.formats.trade_files import open_trades
from levelcast.network import SymbolDirectory, parse_network
from levelcast.pipeline.input.files import quarantined, rows_of
from levelcast.records import FLAG_LAST, FLAG_MBP, dbn_metadata, orders, trades
from tests.publish_parts import network_text

DAY = date(2013, 10, 7)
MIDNIGHT = 1_381_118_400_000_000_000  # in New York


def read(paths: Path | Iterable[Path], format: str, **options: Any) -> tuple[list[dict[str, Any]], list[Any]]:
    """The rows by sequence, and what was refused."""
    chosen = [paths] if isinstance(paths, Path) else list(paths)
    rows: list[dict[str, Any]] = []
    refused: list[Any] = []
    for batch in batches(chosen, format, **options):
        for table in rows_of(batch.placed):
            rows += table.to_pylist()
        refused += [(Path(batch.path).name, *each) for each in batch.refused]
    return sorted(rows, key=lambda row: row["sequence"]), refused


def batches(paths: list[Path], format: str, **options: Any) -> Iterator[CaptureBatch]:
    for task in tasks_of(paths, format, **options):
        yield from read_task(task)


def kinds(rows: Iterable[dict[str, Any]]) -> Counter[tuple[str, str | None]]:
    return Counter((row["kind"], row["action"]) for row in rows)


# -- tables -----------------------------------------------------------------------------------------------


def test_rows_of_a_csv_that_are_wrong_are_refused_one_by_one(tmp_path: Path) -> None:
    lines = [f"2013-10-07T13:30:00.{i:03}Z,SPY,{100 + i}.25,{i},XNYS" for i in range(1, 200)]
    lines[4] = lines[4].replace("SPY,", "SPY,x")
    lines[9] = "only,three,columns"
    lines[99] = lines[99].replace(",100,", ",-1,")
    lines[150] = lines[150].replace("2013-10", "2013-13")
    path = tmp_path / "trades.csv"
    path.write_text("ts_event,symbol,price,size,floor\n" + "\n".join(lines) + "\n")
    rows, refused = read(path, "csv")
    assert [each[1] for each in sorted(refused, key=lambda each: each[1])] == [5, 10, 100, 151]
    reasons = {each[1]: each[2] for each in refused}
    assert "is not a decimal number" in reasons[5]
    assert "has 3 columns instead of 5" in reasons[10]
    assert 'size "-1" is not an integer' in reasons[100]
    assert "is not a time from 1970 to 2262" in reasons[151]
    assert {each[3] for each in refused if each[1] == 5} == {lines[4]}
    assert [row["sequence"] for row in rows] == [i for i in range(1, 200) if i not in (5, 10, 100, 151)]
    assert all(row["price"] == (100 + row["sequence"]) * 10**9 + 25 * 10**7 for row in rows)
    assert {(row["symbol"], row["venue"], row["publisher_id"]) for row in rows} == {("SPY", "XNYS", None)}


def test_a_file_of_nothing_but_bad_rows(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("ts_event,symbol,price,size,floor\n" + "x,SPY,1,1,XNYS\n" * 300)
    rows, refused = read(path, "csv")
    assert not rows
    assert [each[1] for each in refused] == list(range(1, 301))
    path.write_text("ts_event,symbol,price,size\n1,SPY,1,1\n")
    with pytest.raises(TradeFileError, match="column floor not found"):
        read(path, "csv")
    ((row,), _) = read(path, "csv", venue="XLON")
    assert row["venue"] == "XLON"


def test_parquet_and_several_files_in_order(tmp_path: Path) -> None:
    table = pa.table(
        {
            "ts_event": [MIDNIGHT, MIDNIGHT + 1, MIDNIGHT + 2],
            "symbol": ["A", None, "B"],
            "price": pa.array([Decimal("1.5"), Decimal(2), Decimal(3)], pa.decimal128(12, 4)),
            "size": [1, 2, 3],
            "floor": ["XNYS"] * 3,
            "trade_id": pa.array([2**64 - 1, 1, 2], pa.uint64()),
        }
    )
    for name in ("b.parquet", "a.parquet"):
        parquet.write_table(table, tmp_path / name)
    rows, refused = read([tmp_path], "parquet")
    assert [(row["sequence"], row["symbol"]) for row in rows] == [
        (1, "A"), (3, "B"), (FILE_STEP + 1, "A"), (FILE_STEP + 3, "B"),
    ]  # fmt: skip
    assert rows[0]["trade_id"] == -1
    assert [each[:2] for each in refused] == [("a.parquet", 2), ("b.parquet", 2)]


def test_the_quarantine_has_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("ts_event,symbol,price,size,floor\nx,SPY,1,1,XNYS\n")
    (batch,) = batches([path], "csv")
    found = quarantined(batch)
    assert found.schema.names == ["source", "position", "reason", "raw"]
    assert found.column("source").to_pylist() == [str(path)]
    assert found.column("raw").to_pylist() == ["x,SPY,1,1,XNYS"]


# -- LEAN -------------------------------------------------------------------------------------------------


def test_quotes_of_lean_tell_one_side_and_each_file_has_its_own_numbers(tmp_path: Path) -> None:
    (tmp_path / "ibm_quote.csv").write_text(
        "1000,1800100,300,0,0,P,1,0\n2000,0,0,1818000,3000,Q,800,1\n3000,0,0,1,2,?,1,0\n3000,0,0,1,2,Q,1\n"
    )
    (tmp_path / "ibm_trade.csv").write_text("1000,1810000,100,N,0,0\n999,1820000,100,D,40,0\n")
    rows, refused = read(tmp_path, "lean", day=DAY)
    assert [(row["sequence"], row["kind"], row["ts_event"] - MIDNIGHT) for row in rows] == [
        (1, "quote", 10**9), (2, "quote", 2 * 10**9),
        (FILE_STEP + 1, "trade", 10**9), (FILE_STEP + 2, "trade", 999 * 10**6),
    ]  # fmt: skip
    bid, ask, first, second = rows
    assert (bid["side"], bid["bid_px"], bid["bid_sz"], bid["ask_px"]) == ("B", 180_010_000_000, 300, None)
    assert (ask["side"], ask["ask_px"], ask["price"], ask["size"]) == ("A", 181_800_000_000, 181_800_000_000, 3000)
    assert (ask["condition"], ask["flags"], ask["venue"], bid["venue"]) == (0x800, 2, "XNAS", "ARCX")
    assert (first["price"], second["venue"], second["condition"]) == (181_000_000_000, "FINR", 0x40)
    assert {row["symbol"] for row in rows} == {"IBM"}
    assert sorted(each[:2] for each in refused) == [("ibm_quote.csv", 3), ("ibm_quote.csv", 4)]
    with pytest.raises(TradeFileError, match="do not contain their date"):
        tasks_of([tmp_path], "lean")


@pytest.mark.parametrize(("day", "count"), [(7, 388_417), (8, 654_140)])
def test_the_days_of_us_trades(data_dir: Path, day: int, count: int) -> None:
    folder = data_dir / f"us_equities_tick_201310{day:02}"
    when = date(2013, 10, day)
    found, prices, volume = {"trade": [], "quote": []}, {"trade": [], "quote": []}, 0  # type: ignore[var-annotated]
    for batch in batches([folder], "lean", day=when):
        assert not batch.refused
        for events, sequence in batch.placed:
            kind = "quote" if "bid_px_00" in (events.records.dtype.names or ()) else "trade"
            found[kind].append(sequence)
            prices[kind].append(events.records["price"])
            volume += int(events.records["size"].astype(np.int64).sum()) if kind == "trade" else 0
    sequence = np.concatenate(found["trade"])
    assert len(sequence) == count
    assert sum(map(len, found["quote"])) == (585_922 if day == 7 else 0)
    whole = np.sort(np.concatenate(found["trade"] + found["quote"]))
    files = np.unique(whole // FILE_STEP, return_counts=True)[1].tolist()
    assert (whole % FILE_STEP).tolist() == [place for rows in files for place in range(1, rows + 1)]
    directory = SymbolDirectory(parse_network(network_text()))
    published = np.concatenate(list(open_trades([folder], directory, format="lean", day=when)))
    assert volume == int(published["size"].astype(np.int64).sum())
    assert np.sort(np.concatenate(prices["trade"])).tolist() == np.sort(published["price"]).tolist()


# -- ITCH -------------------------------------------------------------------------------------------------


def message(kind: str, ns: int, locate: int, *fields: Any, form: str = "") -> bytes:
    body = struct.pack(">cHHHI" + form, kind.encode(), locate, 0, ns >> 32, ns & 0xFFFFFFFF, *fields)
    return struct.pack(">H", len(body)) + body


def added(ns: int, ref: int, side: bytes, shares: int, price: int, stock: bytes = b"ACME    ") -> bytes:
    return message("A", ns, 7, ref, side, shares, stock, price, form="QcI8sI")


@pytest.mark.parametrize("chunk_bytes", [50, 1 << 20])
def test_executions_have_the_price_and_side_of_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
) -> None:
    monkeypatch.setattr(itch, "CHUNK_BYTES", chunk_bytes)
    content = [
        added(1, 100, b"S", 500, 10_000),
        message("U", 2, 7, 100, 101, 400, 10_100, form="QQII"),
        message("U", 3, 7, 101, 102, 300, 10_200, form="QQII"),
        message("E", 4, 7, 102, 100, 9001, form="QIQ"),
        message("C", 5, 7, 102, 50, 9002, b"N", 10_300, form="QIQcI"),
        message("X", 6, 7, 102, 25, form="QI"),
        message("E", 7, 7, 999, 10, 9003, form="QIQ"),
        message("D", 8, 7, 102, form="Q"),
        message("B", 9, 7, 9001, form="Q"),
        message("Q", 10, 7, 600, b"ACME    ", 10_400, 9004, b"O", form="Q8sIQc"),
        message("H", 11, 7, b"ACME    ", b"H", b" ", b"IPO1", form="8scc4s"),
        message("R", 12, 8, b"OTHER   ", b"x" * 20, form="8s20s"),
        message("?", 13, 7, form=""),
        message("I", 14, 7, 1, 2, b"N", b"ACME    ", b"x" * 14, form="QQc8s14s"),
    ]
    path = tmp_path / "day.itch"
    path.write_bytes(b"".join(content) + b"\0\x24only a part")
    rows, refused = read(path, "itch", day=DAY)
    assert [row["sequence"] for row in rows] == [*range(1, 13), 14]
    by = {row["sequence"]: row for row in rows}
    assert [by[i]["side"] for i in (1, 2, 3)] == ["A", "A", "A"]
    assert (by[3]["action"], by[3]["order_id"], by[3]["original_client_order_id"]) == ("M", 102, 101)
    assert (by[4]["kind"], by[4]["price"], by[4]["size"], by[4]["side"]) == ("trade", 1_020_000_000, 100, "B")
    assert (by[4]["trade_id"], by[4]["order_id"], by[4]["condition"]) == (9001, 102, 0)
    assert (by[5]["price"], by[5]["condition"]) == (1_030_000_000, ord("N"))
    assert (by[6]["action"], by[6]["size"], by[6]["price"]) == ("C", 25, 1_020_000_000)
    assert (by[7]["price"], by[7]["side"]) == (None, "N")
    assert (by[8]["action"], by[8]["size"]) == ("C", 300 - 100 - 50 - 25)
    assert (by[9]["kind"], by[9]["action"], by[9]["trade_id"]) == ("trade", "C", 9001)
    assert (by[10]["price"], by[10]["condition"], by[10]["side"]) == (1_040_000_000, ord("O"), "N")
    assert (by[11]["status_action"], by[11]["is_trading"]) == (8, "N")
    assert (by[12]["kind"], by[12]["symbol"], by[12]["instrument_id"]) == ("instrument", "OTHER", 8)
    assert by[14]["text"].startswith("ITCH I 0000000000000001")
    assert {row["symbol"] for row in rows} == {"ACME", "OTHER"}
    assert {row["venue"] for row in rows} == {"XNAS"}
    assert all(row["ts_event"] == MIDNIGHT + row["sequence"] == row["ts_recv"] for row in rows)
    assert [(each[1], each[2].replace(";", ":").split(":")[0]) for each in refused] == [
        (13, "b'?' with 11 bytes is not a message of ITCH 5.0"),
        (15, "the file ends in the middle of a message"),
    ]


def test_the_sample_of_itch(data_dir: Path) -> None:
    path = data_dir / "nasdaq_itch50_20191230" / "12302019_SNIPPET.NASDAQ_ITCH50"
    rows, refused = read(path, "itch", day=date(2019, 12, 30))
    assert not refused
    content, at, types, shares, symbols, empty = path.read_bytes(), 0, Counter(), 0, set(), 0  # type: ignore[var-annotated]
    while at < len(content):
        (size,) = struct.unpack_from(">H", content, at)
        kind = chr(content[at + 2])
        types[kind] += 1
        if kind in "AF":
            (more,) = struct.unpack_from(">I", content, at + 2 + 20)
            shares += more
            symbols.add(content[at + 2 + 24 : at + 2 + 32].strip().decode())
        empty += kind == "Q" and not any(content[at + 2 + 11 : at + 2 + 19])
        at += 2 + size
    assert types == Counter(
        {"A": 367, "U": 225, "F": 193, "D": 167, "E": 28, "X": 6, "I": 4, "P": 4, "Q": 4, "S": 1, "C": 1}
    )
    assert len(symbols) == 185
    assert [row["sequence"] for row in rows] == list(range(1, 1001))
    assert kinds(rows) == Counter(
        {
            ("order", "A"): 560, ("order", "M"): 225, ("order", "C"): 173, ("trade", "T"): 37 - empty,
            ("system", None): 4, ("status", None): 1 + empty,
        }
    )  # fmt: skip
    adds = [row for row in rows if row["action"] == "A"]
    assert sum(row["size"] for row in adds) == shares
    assert {row["symbol"] for row in adds} == symbols
    first, last = rows[0]["ts_event"], rows[-1]["ts_event"]
    assert (first % 10**9, last % 10**9) == (230, 2_364_611)
    assert first // 10**9 == 1_577_716_200  # 09:30 in New York, in winter


# -- IEX --------------------------------------------------------------------------------------------------


def frame(payload: bytes, *, tagged: bool = False, protocol: int = 17) -> bytes:
    udp = struct.pack(">HHHH", 1, 2, 8 + len(payload), 0) + payload
    ip = struct.pack(">BBHHHBBHII", 0x45, 0, 20 + len(udp), 0, 0, 1, protocol, 0, 1, 2)
    return b"\1" * 12 + (b"\x81\0\0\5" if tagged else b"") + b"\x08\0" + ip + udp


def segment(*messages: bytes, sequence: int = 1, protocol: int = 0x8004, count: int | None = None) -> bytes:
    body = b"".join(struct.pack("<H", len(each)) + each for each in messages)
    number = len(messages) if count is None else count
    return struct.pack("<BBHIIHHQQQ", 1, 0, protocol, 1, 9, len(body), number, 0, sequence, 0) + body


def capture(path: Path, frames: Iterable[bytes], *, order: str = "<", nanoseconds: bool = False) -> Path:
    magic = 0xA1B23C4D if nanoseconds else 0xA1B2C3D4
    content = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 65535, 1)
    for i, each in enumerate(frames):
        content += struct.pack(order + "IIII", 1000, i, len(each), len(each)) + each
    path.write_bytes(content)
    return path


LEVEL = struct.pack("<cBq8sIq", b"8", 1, 77, b"ACME    ", 100, 12_345)
TRADE = struct.pack("<cBq8sIqq", b"T", 0x40, 78, b"ACME    ", 5, 12_345, 2**62)


@pytest.mark.parametrize(("order", "nanoseconds"), [("<", False), (">", True)])
def test_a_capture_of_iex(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str, nanoseconds: bool) -> None:
    monkeypatch.setattr(pcap, "CHUNK_BYTES", 300)
    frames = [
        frame(segment(LEVEL, TRADE, sequence=41)),
        frame(segment(sequence=43)),
        frame(segment(LEVEL[:18] + b"\0\0\0\0" + LEVEL[22:], b"8short", sequence=43), tagged=True),
        frame(segment(TRADE), protocol=6),
        frame(segment(TRADE, protocol=0x8003)),
        frame(segment(TRADE, count=2)),
        frame(struct.pack("<20s", b"")),
    ]
    path = capture(tmp_path / "x.pcap", frames, order=order, nanoseconds=nanoseconds)
    with path.open("ab") as file:
        file.write(struct.pack(order + "IIII", 1000, 9, 500, 500) + b"cut")
    rows, refused = read(path, "iex")
    unit = 1 if nanoseconds else 1000
    assert [(row["kind"], row["action"], row["venue_sequence"], row["ts_recv"] - 10**12) for row in rows] == [
        ("order", "M", 41, 0), ("trade", "T", 42, 0), ("order", "C", 43, 2 * unit), ("trade", "T", 1, 5 * unit),
    ]  # fmt: skip
    level, trade = rows[:2]
    assert (level["price"], level["size"], level["side"], level["flags"]) == (
        1_234_500_000,
        100,
        "B",
        FLAG_MBP | FLAG_LAST,
    )
    assert (trade["price"], trade["trade_id"], trade["condition"], trade["ts_event"]) == (
        1_234_500_000,
        2**62,
        0x40,
        78,
    )
    assert {(row["symbol"], row["venue"]) for row in rows} == {("ACME", "IEXG")}
    assert sorted((each[1], each[2]) for each in refused) == [
        (3, "packet 3: b'8' with 6 bytes is not a message of DEEP 1.0"),
        (4, "packet 4: is not a UDP packet"),
        (5, "packet 5: is IEX-TP version 1, protocol 0x8003, not DEEP 1.0"),
        (6, "packet 6: has 1 complete messages, but its header states 2"),
        (7, "packet 7: is shorter than an IEX-TP header"),
        (8, "packet 8: the capture ends in the middle of this packet; fetch it again"),
    ]


def blocks(order: str, frames: Iterable[bytes], *, link: int = 1) -> Iterator[bytes]:
    """A pcapng with times of 1/1024 second."""

    def block(kind: int, body: bytes) -> bytes:
        body += bytes(-len(body) % 4)
        return struct.pack(order + "II", kind, 12 + len(body)) + body + struct.pack(order + "I", 12 + len(body))

    yield block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))
    yield block(1, struct.pack(order + "HHIHHIHHB3xHH", link, 0, 0, 2, 4, 7, 9, 1, 0x80 | 10, 0, 0))
    yield block(5, b"statistics..")
    for i, each in enumerate(frames):
        yield block(6, struct.pack(order + "IIIII", 0, 0, 1024 * 1000 + i, len(each), len(each)) + each)
    yield block(6, struct.pack(order + "IIIII", 3, 0, 0, 4, 4) + b"none")


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_capture_in_pcapng(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str) -> None:
    monkeypatch.setattr(pcap, "CHUNK_BYTES", 100)
    path = tmp_path / "x.pcapng"
    frames = [frame(segment(LEVEL, TRADE, sequence=41)), frame(segment(TRADE))]
    path.write_bytes(b"".join(blocks(order, frames))[:-1])
    rows, refused = read(path, "iex")
    assert [(row["kind"], row["ts_recv"] - 10**12) for row in rows] == [
        ("order", 0), ("trade", 0), ("trade", 10**9 // 1024),
    ]  # fmt: skip
    assert [each[1:3] for each in refused] == [
        (3, "packet 3: the capture ends in the middle of this packet; fetch it again")
    ]
    path.write_bytes(b"".join(blocks(order, frames)))
    assert read(path, "iex")[1][0][2] == "packet 3: the sizes in its block are inconsistent"


def test_what_is_no_capture_is_said_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    for content, sentence in (
        (b"hello", "not a capture"),
        (b"\x0a\x0d\x0d\x0a" + b"\0" * 30, "a block has 0 bytes before packet 1"),
        (b"".join(blocks("<", [], link=113)), "link type 113 is not supported"),
        (struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 113), "link type 113 is not supported"),
    ):
        path.write_bytes(content)
        with pytest.raises(TradeFileError, match=sentence):
            read(path, "iex")
    with pytest.raises(TradeFileError, match='unknown format "fix"; the formats are dbn, csv'):
        tasks_of([path], "fix")
    with pytest.raises(TradeFileError, match="file or directory not found"):
        tasks_of([tmp_path / "none"], "iex")
    with pytest.raises(TradeFileError, match=r"no file of format dbn \(.dbn, .dbn.zst\) found in it"):
        tasks_of([tmp_path], "dbn")


def test_the_sample_of_iex(data_dir: Path) -> None:
    path = data_dir / "iex_deep10_sample_20170425" / "DEEP10.pcap.gz"
    counts: Counter[str] = Counter()
    symbols: set[str] = set()
    sequences, refused = [], []
    for batch in batches([path], "iex"):
        refused += batch.refused
        for events, sequence in batch.placed:
            sequences.append(sequence)
            names = events.records.dtype.names or ()
            for kind, field in (("order", "order_id"), ("trade", "trade_id"), ("status", "trading_event")):
                if field in names:
                    for action, count in zip(*np.unique(events.records["action"], return_counts=True), strict=True):
                        counts[f"{kind} {action.decode() if kind != 'status' else ''}".strip()] += int(count)
            symbols |= set(events.symbols.names) if events.symbols else set()
    statuses = 93_638 + 93_638 + 93_636 + 59 + 44
    levels = counts.pop("order M") + counts.pop("order C")
    assert levels == 14_627 + 12_941
    assert counts == Counter({"status": statuses, "trade T": 83_343, "trade C": 73})
    assert counts.total() + levels == 391_999
    assert np.sort(np.concatenate(sequences)).tolist() == list(range(1, 391_999 + 1))
    assert len(symbols) == 7_802
    assert [(each.position, each.reason.partition(": ")[2]) for each in refused] == [
        (121_315, "the capture ends in the middle of this packet; fetch it again")
    ]
    assert set(iex._DTYPES) >= {bytes([octet]) for octet in b"HOPT58BES"}


# -- LOBSTER ----------------------------------------------------------------------------------------------


def test_messages_of_lobster_and_their_book(tmp_path: Path) -> None:
    messages, book = tmp_path / "AB_2013-10-07_0_1_message_2.csv", tmp_path / "AB_2013-10-07_0_1_orderbook_2.csv"
    messages.write_text(
        "34200.5,1,11,100,2238100,1\n34200.6,4,11,40,2238100,1\n34200.7,5,0,10,2238200,-1\n"
        "34200.8,2,11,5,2238100,1\nnow,3,11,55,2238100,1\n34200.88877845600400,7,0,0,-1,-1\n34200.9,9,1,1,1,1\n"
    )
    book.write_text("2239500,100,2238100,100,9999999999,0,-9999999999,0\n" * 5 + "9999999999,0,2238100,1,1,1,1,1\n")
    rows, refused = read(tmp_path, "lobster")
    assert [(row["sequence"], row["kind"], row["action"]) for row in rows if row["kind"] != "quote"] == [
        (1, "order", "A"), (3, "trade", "T"), (5, "trade", "T"), (7, "order", "C"), (11, "status", None),
    ]  # fmt: skip
    by = {row["sequence"]: row for row in rows}
    assert (by[3]["side"], by[3]["order_id"], by[3]["price"], by[3]["size"]) == ("A", 11, 223_810_000_000, 40)
    assert (by[5]["side"], by[5]["order_id"]) == ("B", None)
    assert by[11]["ts_event"] == MIDNIGHT + 34_200_888_778_456
    assert [row["sequence"] for row in rows if row["kind"] == "quote"] == [2, 4, 6, 8, 12]
    assert (by[2]["bid_px"], by[2]["ask_px"], by[2]["bid_sz"]) == (223_810_000_000, 223_950_000_000, 100)
    assert (by[12]["ask_px"], by[12]["ts_event"]) == (None, by[11]["ts_event"])
    assert {(row["symbol"], row["venue"]) for row in rows} == {("AB", "XNAS")}
    assert sorted((each[1], each[2].replace(";", ":").split(":")[0]) for each in refused) == [
        (5, "orderbook"), (5, "seconds 'now' is not a time of day"), (7, 'type "9" is not 1 to 7'),
    ]  # fmt: skip
    with pytest.raises(TradeFileError, match="file of messages not found for this orderbook"):
        tasks_of([book.rename(tmp_path / "CD_2013-10-07_0_1_orderbook_2.csv")], "lobster")
    with pytest.raises(TradeFileError, match="not a LOBSTER file name"):
        tasks_of([Path(__file__)], "lobster")


def test_the_samples_of_lobster(data_dir: Path) -> None:
    found = {}
    for task in tasks_of([data_dir / "lobster_amzn_20120621", data_dir / "lobster_aapl_20120621"], "lobster"):
        counts: Counter[int] = Counter()
        for batch in read_task(task):
            assert not batch.refused
            counts.update({int(e.records["rtype"][0]): len(e.records) for e, _ in batch.placed})
        found[Path(task.paths[0]).name.partition("_2012-06-21_")[::2]] = dict(counts)
    assert found == {
        ("AMZN", "34200000_57600000_message_1.csv.gz"): {0xA0: 46_096, 0: 11_419, 1: 57_515},
        ("AAPL", "34200000_37800000_message_50.csv.gz"): {0xA0: 85_729, 0: 6_268},
        ("AAPL", "first999_message_10.csv.gz"): {0xA0: 840, 0: 159, 1: 999},
    }


# -- DBN --------------------------------------------------------------------------------------------------


def test_records_of_dbn_that_a_tape_does_not_have_are_refused(tmp_path: Path) -> None:
    directory = SymbolDirectory(parse_network(network_text()))
    floor = directory.floors[0]
    made = trades(3)
    made["publisher_id"], made["instrument_id"] = floor.publisher, next(iter(directory.ids_of(floor).values()))
    made["ts_event"], made["price"], made["venue_sequence"], made["sequence"] = MIDNIGHT, 5, 9, 1
    bare = bytearray(made[:1].tobytes()[:48])
    bare[0] = 12
    bars = bytearray(56)
    bars[0:2] = 14, 0x21
    order = orders(2)
    order["action"], order["sequence"], order["order_id"] = [b"A", b"T"], 77, [2**64 - 1, 0]
    content = (
        directory.definitions(floor, MIDNIGHT).tobytes(),
        made.tobytes(),
        bytes(bars),
        bytes(bare),
        order.tobytes(),
    )
    path = tmp_path / "x.dbn"
    path.write_bytes(dbn_metadata() + b"".join(content))
    rows, refused = read(path, "dbn")
    count = len(directory.ids_of(floor))
    assert [each[1:3] for each in refused] == [
        (count + 4, "record type 0x21 does not exist on a tape; remove the record")
    ]
    assert [row["sequence"] for row in rows] == [i for i in range(1, count + 8) if i != count + 4]
    assert kinds(rows) == Counter({("instrument", None): count, ("trade", "T"): 5, ("order", "A"): 1})
    assert {row["venue"] for row in rows[: count + 4]} == {floor.name}
    assert {row["symbol"] for row in rows[count : count + 4]} == {next(iter(directory.ids_of(floor)))}
    assert [row["venue_sequence"] for row in rows[count:]] == [9, 9, 9, 1, None, 77]
    assert (rows[-2]["order_id"], rows[-1]["order_id"]) == (-1, None)


def test_the_orders_of_cme(data_dir: Path) -> None:
    folder = data_dir / "cme_es_mbo_20231225"
    rows, refused = read(folder / "esh4-glbx-mdp3-20231225.mbo.dbn.zst", "dbn")
    assert not refused
    assert kinds(rows) == Counter(
        {
            ("order", "A"): 29_216,
            ("order", "M"): 12_233,
            ("order", "C"): 17_999,
            ("order", "F"): 6_371,
            ("trade", "T"): 2_973,
        }
    )
    assert {(row["symbol"], row["venue"]) for row in rows} == {("ESH4", "GLBX")}
    with gzip.open(folder / "esh4-glbx-mdp3-20231225.mbo.csv.gz", "rt") as file:
        for row, right in zip(rows, csv.DictReader(file), strict=True):
            assert (row["action"], row["side"], row["size"]) == (right["action"], right["side"], int(right["size"]))
            assert row["price"] == int(Decimal(right["price"]) * 10**9)
            assert (row["ts_recv"], row["venue_sequence"]) == (int(right["ts_recv"]), int(right["sequence"]))
