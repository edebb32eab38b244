"""Replays of order flow: the queues of the engine, the view rule, predictions, and real venues' files as oracles."""

from __future__ import annotations

import gzip
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from levelcast.cli.book.flows import read_flow, read_levels
from levelcast.cli.main import app
from levelcast.errors import UserError
from levelcast.formats.columns import TradeFileError
from levelcast.market.replay import FLOW, TOP, ReplayBook
from levelcast.market.replay_check import ViewCheck
from levelcast.market.replay_entry import EntryReplay
from levelcast.market.replay_match import ExecutionMatch, TradeMatch
from levelcast.market.replay_run import SymbolReplay, SymbolRun
from levelcast.native.book_codes import UNDEFINED
from levelcast.records import RecordArray


def flow(*rows: tuple[bytes, int, bytes, int, int], last: bool = True) -> RecordArray:
    """Return events from (action, order, side, price, size)."""
    made = np.zeros(len(rows), FLOW)
    for place, (action, order, side, price, size) in enumerate(rows):
        made[place] = (place + 1, place, order, 0, price, size, action, side, 0, last)
    return made


def levels(*rows: tuple[int, int, int, int]) -> RecordArray:
    return np.array(list(rows), TOP)


def test_book_keeps_price_then_place() -> None:
    book = ReplayBook()
    for event in flow(
        (b"A", 1, b"B", 100, 5), (b"A", 2, b"B", 100, 3), (b"A", 3, b"B", 101, 1), (b"C", 1, b"B", 100, 2),
        (b"M", 2, b"B", 100, 9), (b"A", 4, b"A", 105, 2), (b"E", 4, b"A", 105, 1),
    ):  # fmt: skip
        assert book.apply(event)
    assert list(book.ranked(b"B", chunk=1)) == [(3, 101, 1), (1, 100, 3), (2, 100, 9)]
    assert book.top(2).tolist() == [(105, 1, 101, 1), (UNDEFINED, 0, 100, 12)]


def test_events_of_unknown_orders_are_counted_and_change_nothing() -> None:
    book = ReplayBook()
    for event in flow((b"C", 9, b"B", 100, 5), (b"M", 9, b"B", 100, 5), (b"E", 9, b"B", 100, 5), (b"U", 9, b"B", 1, 1)):
        assert not book.apply(event)
    assert (book.counts.unknown, book.kernel.live) == (4, 0)


def test_clear_empties_the_book() -> None:
    book = ReplayBook()
    for event in flow((b"A", 1, b"B", 100, 5), (b"A", 2, b"A", 99, 3), (b"R", 0, b"N", 0, 0)):
        book.apply(event)
    assert book.kernel.live == 0


def test_view_rule_compares_what_stays_and_takes_what_comes_into_view() -> None:
    check = ViewCheck(ReplayBook(), 1)
    events = flow((b"A", 1, b"A", 105, 2), (b"A", 2, b"B", 100, 3), (b"C", 2, b"B", 100, 3), (b"E", 7, b"A", 105, 1))
    published = [levels((105, 2, 99, 7)), levels((105, 2, 100, 3)), levels((105, 2, 98, 4)), levels((105, 1, 98, 4))]
    for event, row in zip(events, published, strict=True):
        check.step(event, row)
    counts = check.counts
    assert (counts.rows, counts.equal_rows) == (3, 3)
    assert (counts.levels, counts.equal_levels, counts.came_into_view) == (5, 5, 1)


def test_view_rule_finds_a_difference() -> None:
    check = ViewCheck(ReplayBook(), 1)
    events = flow((b"A", 1, b"A", 105, 2), (b"A", 2, b"B", 99, 3), (b"T", 0, b"N", 100, 1))
    for event, row in zip(
        events, [levels((105, 2, 99, 7)), levels((105, 2, 99, 11)), levels((105, 2, 99, 11))], strict=True
    ):
        check.step(event, row)
    assert (check.counts.equal_rows, check.counts.first_different, check.counts.hidden) == (0, 2, 1)


def test_execution_of_the_first_order_is_predicted() -> None:
    match = ExecutionMatch(ReplayBook())
    for event in flow(
        (b"A", 1, b"B", 100, 5), (b"A", 2, b"B", 100, 3), (b"E", 1, b"B", 100, 5), (b"A", 3, b"B", 100, 1),
        (b"E", 3, b"B", 100, 1), (b"E", 8, b"B", 100, 1),
    ):  # fmt: skip
        match.event(event)
    counts = match.counts
    assert (counts.trades, counts.exact, counts.unexplained, counts.unknown) == (2, 1, 1, 1)


def test_trade_is_predicted_with_its_skipped_and_refilled_orders() -> None:
    match = TradeMatch(ReplayBook())
    match.event(flow((b"A", 1, b"A", 100, 2), (b"A", 2, b"A", 100, 2), (b"A", 3, b"A", 101, 5)))
    match.event(flow((b"T", 9, b"B", 101, 4), (b"F", 2, b"A", 100, 2), (b"F", 3, b"A", 101, 2), (b"C", 1, b"A", 100, 2),
                     (b"C", 2, b"A", 100, 2), (b"M", 3, b"A", 101, 3)))  # fmt: skip
    assert (match.counts.trades, match.counts.exact) == (1, 1)
    match.event(flow((b"A", 4, b"A", 101, 1)))
    match.event(flow((b"T", 9, b"B", 101, 3), (b"F", 3, b"A", 101, 3), (b"M", 3, b"A", 101, 3)))
    assert list(match.book.ranked(b"A")) == [(4, 101, 1), (3, 101, 3)]
    match.event(flow((b"T", 9, b"B", 101, 1), (b"F", 3, b"A", 101, 1), (b"M", 3, b"A", 101, 2)))
    counts = match.result()
    assert (counts.trades, counts.exact, counts.hidden) == (3, 2, 1)


def test_entered_orders_are_matched_by_the_engine() -> None:
    entry = EntryReplay(price_unit=10)
    for event in flow(
        (b"A", 1, b"B", 100, 2**33), (b"A", 2, b"A", 90, 5), (b"E", 1, b"B", 100, 5), (b"E", 2, b"A", 90, 4)
    ):
        entry.event(event)
    counts = entry.result()
    assert (counts.with_fills, counts.exact, counts.trades) == (2, 1, 1)
    assert np.frombuffer(entry.top(1), TOP).tolist() == [(UNDEFINED, 0, 100, 2**33 - 5)]


# Real venues


def replayed(path: Path, form: str, book: Path | None = None) -> SymbolReplay:
    events = read_flow(path, form, None)
    run = SymbolRun(events.symbols[0], form, events.events, 1, None if book is None else read_levels(book))
    for _ in run.steps():
        pass
    return run.result()


def test_cme_book_and_trades(data_dir: Path) -> None:
    found = replayed(data_dir / "cme_es_mbo_20231225" / "esh4-glbx-mdp3-20231225.mbo.dbn.zst", "dbn")
    assert (len(found.times), found.crossed, found.crossed_since_auction) == (47_022, 891, 0)
    assert found.rows(1)[-1].tolist() == [(4_810_250_000_000, 28, 4_810_000_000_000, 22)]
    assert (found.live, found.refused, found.unknown) == (11_217, 0, 0)
    assert found.matched is not None
    assert (found.matched.trades, found.matched.exact) == (2_972, 2_914)
    assert (found.matched.hidden, found.matched.unexplained) == (38, 20)
    (auction,) = found.matched.auctions
    assert (auction.size, auction.volume, auction.orders, auction.exact) == (44, 31, 26, 26)
    assert (auction.never_shown, auction.others) == (7, 2)


@pytest.mark.parametrize(
    ("folder", "name", "depth", "rows", "compared", "came"),
    [
        ("lobster_aapl_20120621", "AAPL_2012-06-21_first999_{}_10.csv.gz", 10, 998, 19_642, 318),
        ("lobster_amzn_20120621", "AMZN_2012-06-21_34200000_57600000_{}_1.csv.gz", 1, 57_514, 101_075, 13_953),
    ],
)
def test_lobster_books(data_dir: Path, folder: str, name: str, depth: int, rows: int, compared: int, came: int) -> None:
    paths = [data_dir / folder / name.format(kind) for kind in ("message", "orderbook")]
    check = replayed(paths[0], "lobster", paths[1]).check
    assert check is not None
    assert (check.rows, check.equal_rows) == (rows, rows)
    assert (check.levels, check.equal_levels, check.came_into_view) == (compared, compared, came)


def test_lobster_queues(data_dir: Path) -> None:
    path = data_dir / "lobster_aapl_20120621" / "AAPL_2012-06-21_34200000_37800000_message_50.csv.gz"
    found = replayed(path, "lobster")
    assert found.matched is not None
    assert (found.matched.trades, found.matched.exact, found.unknown) == (4_055, 4_031, 84)


def test_bitstamp_orders(data_dir: Path) -> None:
    found = replayed(data_dir / "bitstamp_btcusd_orders_20150501" / "orders.csv.gz", "bitstamp")
    assert found.entered is not None
    assert (found.entered.with_fills, found.entered.exact, found.entered.out_of_order) == (736, 658, 8)


# The command


LOBSTER = """34200.1,1,1,100,1000000,1
34200.2,1,2,50,1010000,-1
34200.3,4,1,40,1000000,1
"""
NAME = "ABC_2012-06-21_34200000_57600000_{}_1.csv"


def test_command_writes_rows_and_a_summary(tmp_path: Path) -> None:
    import pyarrow.parquet

    path = tmp_path / NAME.format("message")
    path.write_text(LOBSTER)
    out = tmp_path / "book.parquet"
    command = ["book", "replay", str(path), "--format", "lobster", "--levels", "2", "--out", str(out), "--match"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == "Replayed: 3 events of 1 symbol, 1 of 1 trades predicted exactly."
    rows = pyarrow.parquet.read_table(out).to_pylist()
    assert len(rows) == 3
    assert rows[2] | {"ts_event": 0} == {
        "symbol": "ABC", "ts_event": 0, "ask_px_0": 101_000_000_000, "ask_sz_0": 50, "bid_px_0": 100_000_000_000,
        "bid_sz_0": 60, "ask_px_1": None, "ask_sz_1": 0, "bid_px_1": None, "bid_sz_1": 0,
    }  # fmt: skip
    assert "already exists" in CliRunner().invoke(app, command).stderr


def test_command_fails_when_the_published_book_differs(tmp_path: Path) -> None:
    path, book = tmp_path / NAME.format("message"), tmp_path / NAME.format("orderbook")
    path.write_text(LOBSTER)
    book.write_text("9999999999,0,1000000,100\n1010000,50,1000000,100\n1010000,50,1000000,61\n")
    command = ["book", "replay", str(path), "--format", "lobster", "--check", str(book)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert "1 of 2 rows equal to the published book" in result.stdout
    book.write_text("9999999999,0,1000000,100\n1010000,50,1000000,100\n1010000,50,1000000,60\n")
    assert CliRunner().invoke(app, command).exit_code == 0


@pytest.mark.parametrize(
    ("name", "content", "form", "says"),
    [
        ("a.dbn", b"no DBN at all, but some text", "dbn", "a.dbn"),
        (NAME.format("message"), b"34200.1,1,1,100\n", "lobster", "columns"),
        ("other.csv", b"34200.1,1,1,100,1000000,1\n", "lobster", "not a LOBSTER file name"),
        ("b.csv", b"a,b,c,d,e,f,g\n1,2,3,4,5,6,7\n", "bitstamp", "the header is not"),
        ("b.csv", b"(\xb5/\xfd\x00\n\x80\xff", "bitstamp", "the header is not"),
        ("c.csv", b"", "bitstamp", "no order events found"),
        ("d.dbn.zst", b"(\xb5/\xfd$\x00cut", "dbn", "cannot be read"),
        (
            NAME.format("message") + ".gz",
            gzip.compress(b"34200.1,1,1,100,1000000,1\n" * 99, mtime=0)[:-12],
            "lobster",
            "cannot be read",
        ),
        ("e.itch", b"\x00\x0cS", "itch", "the file ends in the middle of a message"),
        ("f.itch", b"\x00\x03no messages at all", "itch", "is not a message of ITCH 5.0"),
    ],
)
def test_foreign_and_truncated_files_are_one_sentence(
    tmp_path: Path, name: str, content: bytes, form: str, says: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises((UserError, TradeFileError)) as raised:
        read_flow(path, form, date(2019, 12, 30))
    assert says in str(raised.value)
    result = CliRunner().invoke(app, ["book", "replay", str(path), "--format", form, "--date", "2019-12-30"])
    assert (result.exit_code, len(result.stderr.strip().splitlines())) == (2, 1)


def test_watch_prints_the_last_book_of_generated_orders() -> None:
    result = CliRunner().invoke(app, ["book", "watch", "--count", "500", "--levels", "2"])
    assert result.exit_code == 0
    assert "generated 1 after 500 events" in result.stdout
    assert "Every asset is conserved" in result.stdout.replace("\n", " ").replace("  ", " ")
