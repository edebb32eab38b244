"""Which floors and symbols a file of trades names."""

from __future__ import annotations

from pathlib import Path

import pytest

from levelcast.formats.symbols_of_files import census, first_records
from levelcast.formats.trade_files import TradeFileError
from levelcast.network import five_cities, parse_network
from levelcast.records import trades

CITIES = parse_network(five_cities())
ROWS = "ts_event,floor,symbol,price,size\n1,XNAS,AAPL,10.5,100\n2,ARCX,MSFT,20,100\n3,XNAS,MSFT,20.1,5\n"


def test_floors_and_symbols_come_in_the_order_of_first_mention(tmp_path: Path) -> None:
    file = tmp_path / "trades.csv"
    file.write_text(ROWS, encoding="utf-8")
    assert census([file], CITIES, 100) == {"XNAS": ["AAPL", "MSFT"], "ARCX": ["MSFT"]}
    assert census([file], CITIES, 100, floor="ARCX") == {"ARCX": ["MSFT"]}


def test_a_file_without_floors_needs_one(tmp_path: Path) -> None:
    file = tmp_path / "trades.csv"
    file.write_text("ts_event,symbol,price,size\n1,AAPL,10.5,100\n", encoding="utf-8")
    assert census([file], CITIES, 100, floor="XNAS") == {"XNAS": ["AAPL"]}
    with pytest.raises(TradeFileError, match="specify the floor with --floor"):
        census([file], CITIES, 100)


@pytest.mark.parametrize(("limit", "sizes"), [(2, [2]), (3, [3]), (4, [3, 1]), (9, [3, 3])])
def test_batches_are_cut_where_the_limit_is(limit: int, sizes: list[int]) -> None:
    assert [len(batch) for batch in first_records(iter([trades(3), trades(3)]), limit)] == sizes
