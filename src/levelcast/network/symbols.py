"""Map symbols to instrument ids, and publishers to floors: the directory that every node reads from its network file.

- A symbol has one `instrument_id` on all floors, so that its trades of many venues have the same id.
- `[instruments]` sets ids. Every other symbol gets the lowest free id from 1 on, in the order of first mention over
  the floors. Tapes identify instruments by id, so the id of a symbol must never change: append new symbols at the end
  of the last floor that lists any, or set their ids.
- A floor without symbols in the file trades one symbol, which has the floor's name.
- A definition is on the tape before the first record that uses it: after each start a floor sends the definitions of
  its own symbols before its first record. A repeated definition has no effect; a symbol that was added to the file
  between two starts is defined in time.

Deviation from DESIGN §2, where the directory is a separate source: only the order within one source guarantees that
the definition is first (rule 3, and the ring keeps each source's order). Packets of two sources are unordered until the
ring orders them, so every floor would have to wait until the directory's packet is witnessed.
"""

from __future__ import annotations

from levelcast.network.model import Floor, Network
from levelcast.records import PRICE_DECIMALS, RecordArray, instruments

LARGEST_ID = 2**32 - 1
_ONE = 10**PRICE_DECIMALS


class SymbolDirectory:
    """The symbols and floors of a network.

    >>> from levelcast.network import SymbolDirectory, five_cities, parse_network
    >>> directory = SymbolDirectory(parse_network(five_cities()))
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
        """All symbols and their ids."""
        return dict(self._ids)

    @property
    def floors(self) -> tuple[Floor, ...]:
        """All floors, in the file's order."""
        return tuple(self._floors.values())

    def id_of(self, symbol: str) -> int:
        """Return the `instrument_id` of a symbol. Raise KeyError if no floor trades it."""
        return self._ids[symbol]

    def symbol_of(self, instrument_id: int) -> str:
        """Return the symbol of an id. Raise KeyError if it is unknown."""
        return self._symbols[instrument_id]

    def floor(self, name: str) -> Floor:
        """Return a floor by its market code. Raise KeyError if it is unknown."""
        return self._floors[name]

    def floor_of(self, publisher: int) -> Floor:
        """Return the floor of a `publisher_id`. Raise KeyError if it is unknown."""
        return self._by_publisher[publisher]

    def ids_of(self, floor: Floor) -> dict[str, int]:
        """Return the symbols of one floor and their ids, in its order."""
        return {symbol: self._ids[symbol] for symbol in symbols_of(floor)}

    def definitions(self, floor: Floor, now: int) -> RecordArray:
        """Return the records that a floor sends before its first record: a definition for each of its symbols.

        Fields that are not in the network file (currency, class, tick) stay empty or undefined.
        """
        ids = self.ids_of(floor)
        batch = instruments(len(ids))
        batch["publisher_id"] = floor.publisher
        batch["instrument_id"] = batch["raw_instrument_id"] = list(ids.values())
        batch["raw_symbol"] = [symbol.encode("ascii") for symbol in ids]
        batch["exchange"] = floor.name.encode("ascii")
        batch["ts_event"] = now
        batch["display_factor"] = _ONE  # prices are displayed unscaled
        return batch


def symbols_of(floor: Floor) -> tuple[str, ...]:
    """Return the symbols traded on a floor."""
    return floor.symbols or (floor.name,)


def assign_ids(network: Network) -> dict[str, int]:
    """Return the ids of symbols: those set in the file, and the lowest free ones for the others."""
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
