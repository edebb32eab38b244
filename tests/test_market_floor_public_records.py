"""The public feeds of a floor: a book builder rebuilds the engine's book from them, and no owner is in them."""

from __future__ import annotations

from collections import Counter
from struct import Struct

import pytest

from levelcast.market.engine import BookFrame, MatchingEngine
from levelcast.market.floor.machine import OPERATOR
from levelcast.market.floor.public_records import F_LAST, PublicRecorder
from levelcast.native.book_codes import UNDEFINED
from levelcast.records import RTYPE_ORDER, RTYPE_TRADE, count_records, split
from tests.entry_link import EntryHistory

_LEVEL = Struct("<qQqQ")


class BookBuilder:
    """The book by the rules of DBN: A adds, M changes, C takes away; T and F change nothing."""

    def __init__(self) -> None:
        self.orders: dict[int, list[int]] = {}
        """Price and size by order id, negative prices for asks."""

    def apply(self, records: object) -> None:
        for record in records:  # type: ignore[attr-defined]
            number, action = int(record["order_id"]), bytes(record["action"])
            sign = 1 if record["side"] == b"B" else -1
            if action == b"A" or action == b"M":
                self.orders[number] = [sign * int(record["price"]), int(record["size"])]
            elif action == b"C":
                self.orders[number][1] -= int(record["size"])
                if not self.orders[number][1]:
                    del self.orders[number]

    def levels(self) -> dict[int, int]:
        found: Counter[int] = Counter()
        for price, size in self.orders.values():
            found[price] += size
        return dict(found)


def engine_levels(engine: MatchingEngine) -> dict[int, int]:
    found = {}
    for ask, ask_size, bid, bid_size in _LEVEL.iter_unpack(engine.kernel.top(7, 100)):
        if ask != UNDEFINED:
            found[-ask] = ask_size
        if bid != UNDEFINED:
            found[bid] = bid_size
    return found


@pytest.mark.parametrize("seed", range(5))
def test_a_book_builder_rebuilds_the_book(seed: int) -> None:
    history = EntryHistory(seed, actions=150, kills=False)
    history.run()
    engine, recorder, builder = MatchingEngine(treasury=OPERATOR), PublicRecorder(9), BookBuilder()
    trades = 0
    for frame in history.disk.tape:
        last = frame.first_sequence + frame.records - 1
        events = engine.frame(BookFrame(last, frame.timestamp_ns, frame.content))
        public = recorder.take(frame.content, frame.timestamp_ns, events)
        for payload in public:
            assert not payload or count_records(payload)
        for batch in split(public.orders) if public.orders else ():
            if batch.kind.rtype == RTYPE_ORDER:
                builder.apply(batch.records)
                assert batch.records["flags"][-1] & F_LAST
                assert not batch.records["account"].any()
                assert not batch.records["client_order_id"].any()
        for batch in split(public.trades) if public.trades else ():
            trades += len(batch.records) if batch.kind.rtype == RTYPE_TRADE else 0
        assert builder.levels() == engine_levels(engine)
    assert trades == engine.kernel.trade_count
    assert trades > 5
