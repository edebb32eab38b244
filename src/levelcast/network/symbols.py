"""Which number a symbol has, and which floor a publisher is: the directory that every node reads from its network file.

- A symbol has one `instrument_id` on all floors, so that its trades of many venues are found under one number.
- `[instruments]` gives ids. Every other symbol gets the lowest free id from 1 on, in the order of first mention over
  the floors. Tapes name instruments by id, so a symbol keeps its id for life: append new symbols at the end of the last
  floor that lists any, or give them ids.
- A floor that lists no symbols trades one, which has the floor's name.
- A definition is on the tape before the first record that uses it: a floor sends the definitions of its own symbols in
  front of the first record that it sends after each start. A repeated definition says nothing new; a symbol that was
  added to the file between two starts is defined in time.

Deviation from DESIGN §2, where the directory is a source of its own: the order of one source alone keeps the promise
that the definition comes first (rule 3, and the ring keeps each source's order). Between two sources there is no order
until the ring has made one, so every floor would have to wait until it sees the directory's packet witnessed.
"""

from __future__ import annotations

from levelcast.network.model import Floor, Network
from levelcast.records import PRICE_DECIMALS, RecordArray, instruments

LARGEST_ID = 2**32 - 1
_ONE = 10**PRICE_DECIMALS


class SymbolDirectory:
    """The symbols and floors of a network.

    >>> from levelcast.network import five_cities, parse_network
    >>> directory = Directory(parse_network(five_cities()))
    >>> directory.id_of("VOD"), directory.symbol_of(6), directory.floor_of(2).name
    (6, 'VOD', 'XLON')
    """

    def __init__(self, network: Network) -> None:
        self._floors = {floor.name: floor for floor in network.floors}
        self._by_publisher = {floor.publisher: floor for floor in network.floors}
        self._ids = assign_ids(network)
        self._symbols = {number: symbol for symbol, number in self._ids.items()}

    @property
    def symbols(self) -> dict[str, int]:
        """Every symbol and its id."""
        return dict(self._ids)

    @property
    def floors(self) -> tuple[Floor, ...]:
        """Every floor, in the file's order."""
        return tuple(self._floors.values())

    def id_of(self, symbol: str) -> int:
        """The `instrument_id` of a symbol. Raises KeyError if no floor trades it."""
        return self._ids[symbol]

    def symbol_of(self, instrument_id: int) -> str:
        """The symbol of an id. Raises KeyError if there is none."""
        return self._symbols[instrument_id]

    def floor(self, name: str) -> Floor:
        """A floor by its market code. Raises KeyError if there is none."""
        return self._floors[name]

    def floor_of(self, publisher: int) -> Floor:
        """The floor of a `publisher_id`. Raises KeyError if there is none."""
        return self._by_publisher[publisher]

    def ids_of(self, floor: Floor) -> dict[str, int]:
        """The symbols of one floor and their ids, in its order."""
        return {symbol: self._ids[symbol] for symbol in symbols_of(floor)}

    def definitions(self, floor: Floor, now: int) -> RecordArray:
        """What a floor sends in front of its first record: one definition for each of its symbols.

        What the network file does not say (currency, class, tick) stays empty or undefined.
        """
        ids = self.ids_of(floor)
        batch = instruments(len(ids))
        batch["publisher_id"] = floor.publisher
        batch["instrument_id"] = batch["raw_instrument_id"] = list(ids.values())
        batch["raw_symbol"] = [symbol.encode("ascii") for symbol in ids]
        batch["exchange"] = floor.name.encode("ascii")
        batch["ts_event"] = now
        batch["display_factor"] = _ONE  # prices are shown as they are
        return batch


def symbols_of(floor: Floor) -> tuple[str, ...]:
    """What is traded on a floor."""
    return floor.symbols or (floor.name,)


def assign_ids(network: Network) -> dict[str, int]:
    """Symbol to id: those that the file gives, and for the others the lowest free ones."""
    ids: dict[str, int] = {}
    taken = set(network.instruments.values())
    free = 1
    for floor in network.floors:
        for symbol in symbols_of(floor):
            if symbol in ids:
                continue
            given = network.instruments.get(symbol)
            if given is None:
                while free in taken:
                    free += 1
                given, free = free, free + 1
            ids[symbol] = given
    return ids
