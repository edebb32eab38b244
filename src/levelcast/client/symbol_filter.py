"""Select a subscriber's records by symbols and ids, as defined in the network file and on the tape."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from levelcast import records
from levelcast.errors import NetError
from levelcast.network import Network, Stripe, SymbolDirectory
from levelcast.network.fields import did_you_mean
from levelcast.records import NO_INSTRUMENT, RecordArray, RecordType
from levelcast.wire.channel_plan import PLAN_TEXT
from levelcast.wire.watermark import WATERMARK_TEXT

__all__ = ["SymbolFilter"]


class SymbolFilter:
    """The requested symbols and ids, and their instruments once all are known."""

    def __init__(self, network: Network, asked: Iterable[str | int] | None) -> None:
        self._network = network
        self._directory = SymbolDirectory(network)
        self._asked = None if asked is None else list(asked)
        self.symbols = {number: symbol for symbol, number in self._directory.symbols.items()}
        """Instrument ids and their symbols, from the network file and from received definitions."""
        self.ids: npt.NDArray[np.uint32] | None = None
        """The instruments, in order, with `NO_INSTRUMENT`, which has records for all subscribers; None: all."""

    @property
    def unknown(self) -> list[str]:
        """Requested symbols that are not defined yet."""
        known = set(self.symbols.values())
        return [each for each in self._asked or () if isinstance(each, str) and each not in known]

    def settle(self) -> None:
        """Convert symbols to instruments; raise NetError for an unknown symbol."""
        if self._asked is None:
            return
        if unknown := self.unknown:
            hint = did_you_mean(unknown[0], self.symbols.values())
            raise NetError(f'no instrument of this network has the symbol "{unknown[0]}"{hint}')
        asked = set(self._asked)
        ids = {NO_INSTRUMENT} | {number for number, symbol in self.symbols.items() if symbol in asked}
        self.ids = np.array(sorted(ids | {each for each in asked if isinstance(each, int)}), np.uint32)

    def prices(self, stripe: Stripe) -> list[tuple[int, int]]:
        """Return the selected floors and instruments of a stripe; none if any of them is unknown."""
        if self.ids is None:
            return []
        wanted = set(self.ids.tolist()) - {NO_INSTRUMENT}
        pairs = [
            (floor, number)
            for floor in self._network.floors
            for number in self._directory.ids_of(floor).values()
            if number in wanted
        ]
        if wanted - {number for _, number in pairs}:
            return []
        return [(floor.publisher, number) for floor, number in pairs if floor.stripe == stripe.name]

    def note_definitions(self, payload: bytes) -> None:
        """Learn symbols from the definitions among any records."""
        for batch in records.split(payload) if payload else ():
            if batch.kind.rtype == records.RTYPE_INSTRUMENT:
                self.define(batch.records)

    def define(self, definitions: RecordArray) -> None:
        numbers, symbols = definitions["instrument_id"].tolist(), definitions["raw_symbol"].tolist()
        self.symbols |= {n: symbol.decode("ascii", "replace") for n, symbol in zip(numbers, symbols, strict=True)}

    def choose(self, kind: RecordType, found: RecordArray) -> npt.NDArray[np.bool_] | None:
        """Return a mask of the caller's records; None: all. Watermarks and plan marks are internal to the edge."""
        if kind.rtype == records.RTYPE_SYSTEM:
            texts = found["msg"]
            chosen: npt.NDArray[np.bool_] = ~(
                np.char.startswith(texts, WATERMARK_TEXT) | np.char.startswith(texts, PLAN_TEXT)
            )
            return chosen
        return None if self.ids is None else np.isin(found["instrument_id"], self.ids)
