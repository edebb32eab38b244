"""List the floors and symbols in a file of trades, to create a network file for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

from levelcast.formats import trade_files
from levelcast.formats.columns import Places, Rows
from levelcast.network import Floor, Network, SymbolDirectory
from levelcast.records import RecordArray


class Census(Places):
    """Accept every requested floor and symbol, and record them in the order of first use."""

    def __init__(self, network: Network, floor: str | None = None) -> None:
        self.found: dict[str, dict[str, None]] = {}
        super().__init__(SymbolDirectory(network), None)
        if floor is not None:
            self.only = self._floor(floor)

    def _floor(self, name: str) -> Floor:
        return Floor(name, 0, 0, "", "", ())

    def instrument(self, floor: Floor, symbol: str, rows: Rows, index: int) -> int:
        self.found.setdefault(floor.name, {})[symbol] = None
        return 0


def census(
    paths: Sequence[Path], network: Network, limit: int, *, floor: str | None = None, day: date | None = None
) -> dict[str, list[str]]:
    """Return the floors, and the symbols of each, of the first `limit` trades. Raise TradeFileError."""
    places = Census(network, floor)
    batches = trade_files.read_batches(paths, "lean" if day is not None else None, day, places)
    for _ in first_records((records for records, _ in batches), limit):
        pass
    return {name: list(symbols) for name, symbols in places.found.items()}


def first_records(batches: Iterator[RecordArray], limit: int) -> Iterator[RecordArray]:
    """Yield batches up to the one with the `limit`-th record, which is truncated there."""
    for batch in batches:
        yield batch[:limit]
        limit -= len(batch)
        if limit <= 0:
            return
