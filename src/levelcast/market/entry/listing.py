"""Instruments of a floor by symbol, as the definitions and statuses of its tape have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from levelcast.native.book_codes import BookPhase
from levelcast.native.pure_book_ledger import CURRENCY
from levelcast.records import (
    RTYPE_INSTRUMENT,
    UNDEF_PRICE,
    Payload,
    price_to_decimal,
    split,
)


class Listed(NamedTuple):
    id: int
    symbol: bytes
    currency: bytes
    tick: int
    lot: int
    largest: int
    """0: no limit."""
    security_type: bytes


@dataclass(slots=True)
class InstrumentPhase:
    phase: int = BookPhase.UNAVAILABLE
    last: int = 0
    """Price of the last trade."""


class InstrumentList:
    def __init__(self) -> None:
        self.by_id: dict[int, Listed] = {}
        self.by_symbol: dict[bytes, Listed] = {}
        self.phases: dict[int, InstrumentPhase] = {}
        self.assets: list[int] = []
        """Keys of the assets of the engine's ledger, in the order in which it numbers them."""

    def read(self, payload: Payload) -> list[Listed]:
        """Add the definitions of a frame; return them."""
        if RTYPE_INSTRUMENT not in payload:
            return []
        found = []
        for batch in split(payload):
            if batch.kind.rtype != RTYPE_INSTRUMENT:
                continue
            for record in batch.records:
                limit = int(record["max_trade_vol"])
                listed = Listed(
                    int(record["instrument_id"]),
                    bytes(record["raw_symbol"]),
                    bytes(record["currency"]),
                    1 if record["min_price_increment"] == UNDEF_PRICE else int(record["min_price_increment"]),
                    1 if record["min_lot_size_round_lot"] == 2**31 - 1 else int(record["min_lot_size_round_lot"]),
                    0 if limit == 2**32 - 1 else limit,
                    bytes(record["security_type"]) or b"CS",
                )
                self.note_asset(listed.id)
                self.note_asset(CURRENCY | int.from_bytes(listed.currency.ljust(4, b"\0"), "little"))
                self.by_id[listed.id] = self.by_symbol[listed.symbol] = listed
                self.phases.setdefault(listed.id, InstrumentPhase())
                found.append(listed)
        return found

    def note_asset(self, key: int) -> None:
        """Note an asset that the engine has numbered, if it is a new one."""
        if key not in self.assets:
            self.assets.append(key)


def tick_text(listed: Listed) -> str:
    return f"{price_to_decimal(listed.tick).normalize():f}"
