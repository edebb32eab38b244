"""One number a symbol, on all floors and for life."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from levelcast.market.synthetic import Trades
from levelcast.network import NetworkError, SymbolDirectory, five_cities, parse_network
from levelcast.records import UNDEF_PRICE, dbn_metadata

FLOORS = """
[[floor]]
name = "XNYS"
publisher = 1
site = "new-york"
symbols = ["IBM", "SPY"]

[[floor]]
name = "XNAS"
publisher = 2
site = "new-york"
symbols = ["SPY", "MSFT", "IBM"]

[[floor]]
name = "XLON"
publisher = 3
site = "london"
"""
BEFORE, _, AFTER = five_cities().partition('[[floor]]\nname = "XNYS"')
AFTER = "\n[core]\naddress" + AFTER.partition("[core]\naddress")[2]


def directory(instruments: str = "", floors: str = FLOORS) -> SymbolDirectory:
    return SymbolDirectory(parse_network(BEFORE + floors + instruments + AFTER))


def test_a_symbol_has_one_id_on_all_floors_in_the_order_of_first_mention() -> None:
    found = directory()
    assert found.symbols == {"IBM": 1, "SPY": 2, "MSFT": 3, "XLON": 4}
    assert found.ids_of(found.floor("XNAS")) == {"SPY": 2, "MSFT": 3, "IBM": 1}
    assert found.symbol_of(3) == "MSFT"
    assert [found.floor_of(publisher).name for publisher in (1, 2, 3)] == ["XNYS", "XNAS", "XLON"]


def test_a_floor_without_symbols_trades_one_that_has_its_name() -> None:
    found = directory()
    assert found.ids_of(found.floor("XLON")) == {"XLON": 4}


def test_given_ids_stay_and_the_others_take_the_lowest_free_ones() -> None:
    assert directory("[instruments]\nSPY = 1\nXLON = 3\n").symbols == {"IBM": 2, "SPY": 1, "MSFT": 4, "XLON": 3}
    assert directory("[instruments]\nMSFT = 4294967295\n").id_of("MSFT") == 2**32 - 1


def test_a_symbol_that_is_appended_at_the_end_changes_no_other() -> None:
    before, after = directory().symbols, directory(floors=FLOORS + 'symbols = ["XLON", "VOD"]\n').symbols
    assert before.items() <= after.items()
    assert after["VOD"] == 5


@pytest.mark.parametrize(
    ("instruments", "line", "says"),
    [
        ("AAPL = 7", 0, 'has an id for "AAPL", which no floor trades'),
        ("IMB = 7", 0, 'did you mean "IBM"?'),
        ("IBM = 7\nSPY = 7", 1, '[instruments] has the id 7 for "SPY", which "IBM" already has'),
        ("IBM = 0", 0, "it must be an integer from 1 to 4294967295"),
        ("IBM = 4294967296", 0, "it must be an integer from 1 to 4294967295"),
        ('IBM = "7"', 0, "it must be an integer from 1 to 4294967295"),
    ],
)
def test_what_is_wrong_with_instruments_is_told_with_its_line(instruments: str, line: int, says: str) -> None:
    text = BEFORE + FLOORS + "[instruments]\n" + instruments + "\n" + AFTER
    expected = (BEFORE + FLOORS).count("\n") + 2 + line
    with pytest.raises(NetworkError) as caught:
        parse_network(text)
    assert [(problem.line, says in problem.message) for problem in caught.value.problems] == [(expected, True)]


def test_instruments_must_be_a_table() -> None:
    with pytest.raises(NetworkError, match=r"instruments is 3; it must be a table, written \[instruments\]"):
        parse_network("instruments = 3\n" + BEFORE + FLOORS + AFTER)


def test_what_is_not_there_is_a_key_error() -> None:
    found = directory()
    for look in (
        lambda: found.id_of("X"),
        lambda: found.symbol_of(9),
        lambda: found.floor("X"),
        lambda: found.floor_of(9),
    ):
        with pytest.raises(KeyError):
            look()


def test_definitions_name_every_symbol_of_the_floor(require_module: Callable[[str], ModuleType]) -> None:
    dbn = require_module("databento_dbn")
    found = directory()
    batch = found.definitions(found.floor("XNAS"), 1_700_000_000_000_000_000)
    decoder = dbn.DBNDecoder()
    decoder.write(dbn_metadata() + batch.tobytes())
    read = [record for record in decoder.decode() if isinstance(record, dbn.InstrumentDefMsg)]
    assert [(each.raw_symbol, each.instrument_id, each.publisher_id, each.exchange) for each in read] == [
        ("SPY", 2, 2, "XNAS"),
        ("MSFT", 3, 2, "XNAS"),
        ("IBM", 1, 2, "XNAS"),
    ]
    assert {each.currency for each in read} == {""}
    assert {each.min_price_increment for each in read} == {UNDEF_PRICE}
    assert {each.ts_event for each in read} == {1_700_000_000_000_000_000}


def test_made_up_trades_have_the_directory_s_ids() -> None:
    found = directory()
    made = Trades(found.floor("XNAS"), 1, directory=found)
    assert {symbol.name: symbol.instrument_id for symbol in made.symbols} == found.ids_of(found.floor("XNAS"))
    alone = Trades(found.floor("XNAS"), 1)
    assert {symbol.instrument_id for symbol in alone.symbols} == {2001, 2002, 2003}
