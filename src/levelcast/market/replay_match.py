"""Prediction of fills: which resting orders a trade should have filled, by price and then place (M4).

For executions that name the resting order (LOBSTER, ITCH), the prediction is the first order of the best queue. For
trades that name the aggressor, with the fills by resting order (DBN), it is the complete list of fills. Records of DBN
belong to one event up to the flag *last*. In an event:

- an order that is cancelled without a fill is skipped: self-match prevention is seen only as the cancel;
- an order that is filled and then shows more than was left was refilled from a hidden size, and goes to the end.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from levelcast.market.replay import INSTRUMENT, OTHER_SIDE, ReplayBook
from levelcast.native.book import BookKernel
from levelcast.native.book_codes import COMMAND, EVENT, BookPhase, EventKind, InstrumentSetting
from levelcast.records import RecordArray


@dataclass
class AuctionMatch:
    """An auction of the venue beside M10 on the visible book, with the venue's price as its reference."""

    price: int
    size: int
    volume: int
    """Largest volume of the visible book."""
    cleared: int
    """The price that the rule finds."""
    orders: int
    """Orders that the rule fills."""
    exact: int
    """Those of them that the venue filled in the same amount."""
    never_shown: int
    """Orders that the venue filled, and that are not in the visible book."""
    others: int
    """Orders of the visible book that only the venue filled."""


@dataclass
class MatchCounts:
    """Trades by whether the prediction was exact."""

    trades: int = 0
    exact: int = 0
    fills: int = 0
    exact_fills: int = 0
    hidden: int = 0
    """Others that involve an order whose shown size was refilled, or that was never shown."""
    unexplained: int = 0
    unknown: int = 0
    """Executions of orders from before the first event."""
    without_side: int = 0
    """Trades of an auction, which have no aggressor."""
    auctions: list[AuctionMatch] = field(default_factory=list)
    different: list[tuple[int, str]] = field(default_factory=list)
    """Place in the file and reason of each trade that was predicted otherwise."""


Fills = list[tuple[int, int]]


def predicted(book: ReplayBook, side: bytes, size: int, skip: set[int], taken: dict[int, int]) -> Fills:
    """Return (order, size) of the fills of an aggressor; `taken` is what the same event has taken before."""
    fills: Fills = []
    for order, _, left in book.ranked(OTHER_SIDE[side]):
        left -= taken.get(order, 0)
        if left <= 0 or order in skip:
            continue
        fills.append((order, min(left, size)))
        size -= fills[-1][1]
        if not size:
            break
    return fills


def matched_auction(book: ReplayBook, price: int, size: int, told: Fills) -> AuctionMatch:
    """Run the call auction on a copy of the book and compare its fills."""
    copy = BookKernel.restore(book.kernel.snapshot())
    which, none = InstrumentSetting.REFERENCE, ord("N")
    setting = COMMAND.pack(0, INSTRUMENT, 0, which, price, 0, none, none, 0, 0, 0, 0, 0, 0, 0, ord("P"), 0, 0)
    copy.run(setting)
    filled: dict[int, int] = defaultdict(int)
    cleared, volume = 0, 0
    for event in EVENT.iter_unpack(copy.status(INSTRUMENT, int(BookPhase.CROSS))):
        if event[0] == EventKind.CROSSED:
            cleared, volume = event[10], event[8]
        elif event[0] in (EventKind.TRADE, EventKind.FILL):
            filled[event[7]] += event[11]
    real: dict[int, int] = defaultdict(int)
    for name, amount in told:
        real[name] += amount
    unshown = sum(name not in book.known for name in real)
    exact = sum(real.get(name) == amount for name, amount in filled.items())
    others = sum(name in book.known and name not in filled for name in real)
    return AuctionMatch(price, size, volume, cleared, len(filled), exact, unshown, others)


class TradeMatch:
    """Applies the events of a symbol in the DBN's way and predicts each trade."""

    def __init__(self, book: ReplayBook) -> None:
        self.book, self.counts = book, MatchCounts()
        self._refilled: set[int] = set()
        self._open: list[tuple[int, set[int], bool]] = []

    def event(self, records: RecordArray) -> None:
        """Predict the trades of one event, then apply it."""
        actions = records["action"].tolist()
        if b"T" in actions:
            self._predict(records, actions)
        filled: dict[int, int] = defaultdict(int)
        for record, action in zip(records, actions, strict=True):
            name = int(record["order"])
            if action == b"F":
                filled[name] += int(record["size"])
            known = self.book.known.get(name)
            if (
                action == b"M"
                and known is not None
                and filled[name]
                and int(record["size"]) > known.left - filled[name]
            ):
                self.book.modify(name, int(record["price"]), int(record["size"]), loses_place=True)
                self.book.counts.events += 1
                self._refilled.add(name)
            elif action not in (b"T", b"F"):
                self.book.apply(record)

    def _predict(self, records: RecordArray, actions: list[bytes]) -> None:
        names = records["order"].tolist()
        filled = {name for name, action in zip(names, actions, strict=True) if action == b"F"}
        skip = {name for name, action in zip(names, actions, strict=True) if action == b"C"} - filled
        taken: dict[int, int] = defaultdict(int)
        at = 0
        while at < len(records):
            if actions[at] != b"T":
                at += 1
                continue
            trade, at = records[at], at + 1
            told: Fills = []
            while at < len(records) and actions[at] == b"F":
                told.append((names[at], int(records[at]["size"])))
                at += 1
            self._judge(trade, told, skip, taken)
            for name, size in told:
                taken[name] += size

    def _judge(self, trade: RecordArray, told: Fills, skip: set[int], taken: dict[int, int]) -> None:
        counts, side = self.counts, bytes(trade["side"])
        if side not in OTHER_SIDE:
            counts.without_side += 1
            counts.auctions.append(matched_auction(self.book, int(trade["price"]), int(trade["size"]), told))
            return
        told = [each for each in told if each[0] != int(trade["order"])]
        wanted = predicted(self.book, side, int(trade["size"]), skip, taken)
        counts.trades += 1
        counts.fills += len(told)
        counts.exact_fills += len(set(told) & set(wanted))
        if told == wanted:
            counts.exact += 1
            return
        names = {name for name, _ in told}
        unshown = any(
            name not in self.book.known or taken[name] + size > self.book.known[name].left for name, size in told
        )
        self._open.append((int(trade["place"]), names, unshown))

    def result(self) -> MatchCounts:
        """Say of each other trade whether an order with hidden size takes part: one that was refilled at any time."""
        for place, names, unshown in self._open:
            hidden = unshown or bool(names & self._refilled)
            self.counts.hidden += hidden
            self.counts.unexplained += not hidden
            self.counts.different.append((place, "hidden size" if hidden else "unexplained"))
        self._open.clear()
        return self.counts


class ExecutionMatch:
    """Applies events that name the executed order, and predicts that it is the first of the best queue."""

    def __init__(self, book: ReplayBook) -> None:
        self.book, self.counts = book, MatchCounts()
        self.at_best_price = 0

    def event(self, record: RecordArray) -> None:
        if record["action"] == b"E":
            self._judge(record)
        if record["action"] != b"T":
            self.book.apply(record)

    def _judge(self, record: RecordArray) -> None:
        order = self.book.known.get(int(record["order"]))
        if order is None:
            self.counts.unknown += 1
            return
        first, price, _ = next(self.book.ranked(order.side))
        self.counts.trades += 1
        self.at_best_price += price == order.price
        if first == int(record["order"]):
            self.counts.exact += 1
        else:
            self.counts.unexplained += 1
            self.counts.different.append((int(record["place"]), "unexplained"))
