"""A complete replay: the flow of a file, symbol by symbol, with the rows of the book, a check and predictions.

How events reach the engine depends on the format. `lobster` and `itch` name the executed order, `dbn` tells the
aggressor and the fills of one event, and orders of `bitstamp` are entered and matched by the engine itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from levelcast.market.replay import TOP, ReplayBook
from levelcast.market.replay_check import CheckCounts, ViewCheck
from levelcast.market.replay_entry import EntryCounts, EntryReplay
from levelcast.market.replay_match import ExecutionMatch, MatchCounts, TradeMatch
from levelcast.native.book_codes import UNDEFINED
from levelcast.records import RecordArray


@dataclass
class SymbolReplay:
    """Result of a replay for a symbol."""

    symbol: str
    times: list[int] = field(default_factory=list)
    tops: list[bytes] = field(default_factory=list)
    crossed: int = 0
    """Events after which the book was crossed."""
    crossed_since_auction: int = 0
    """Those of them after the first trade of an auction; all of them, if there is none."""
    live: int = 0
    unknown: int = 0
    refused: int = 0
    check: CheckCounts | None = None
    matched: MatchCounts | None = None
    entered: EntryCounts | None = None

    def rows(self, levels: int) -> RecordArray:
        """Return the levels after each event, shape (events, levels)."""
        return np.frombuffer(b"".join(self.tops), TOP).reshape(len(self.tops), levels)


def events_of_venue(flow: RecordArray) -> Iterator[RecordArray]:
    """Yield the records of each event of a venue."""
    start = 0
    for end in (np.flatnonzero(flow["last"]) + 1).tolist():
        yield flow[start:end]
        start = end
    if start < len(flow):
        yield flow[start:]


class SymbolRun:
    """Replays the events of one symbol."""

    def __init__(self, symbol: str, form: str, flow: RecordArray, levels: int, published: RecordArray | None) -> None:
        prices = flow["price"][(flow["price"] > 0) & (flow["price"] != UNDEFINED)]
        unit = int(np.gcd.reduce(prices)) if len(prices) else 1
        self.found = SymbolReplay(symbol)
        self.levels, self._flow, self._published = levels, flow, published
        self.book = ReplayBook(unit)
        self.trades = TradeMatch(self.book) if form == "dbn" else None
        self.executions = ExecutionMatch(self.book) if form in ("lobster", "itch") else None
        self.entry = EntryReplay(unit) if form == "bitstamp" else None
        self.check = ViewCheck(self.book, published.shape[1]) if published is not None else None

    def steps(self) -> Iterator[RecordArray]:
        """Apply the events one by one; yield the best levels after each."""
        for number, event in enumerate(events_of_venue(self._flow)):
            self._apply(number, event)
            top = self.entry.top(self.levels) if self.entry else self.book.kernel.top(1, self.levels)
            self.found.times.append(int(event["ts_event"][-1]))
            self.found.tops.append(top)
            levels = np.frombuffer(top, TOP)
            self._count(levels[0])
            yield levels

    def _apply(self, number: int, event: RecordArray) -> None:
        if self.check is not None and self._published is not None:
            self.check.step(event[0], self._published[number])
        elif self.trades is not None:
            self.trades.event(event)
        else:
            for record in event:
                if self.entry is not None:
                    self.entry.event(record)
                elif self.executions is not None:
                    self.executions.event(record)

    def _count(self, best: RecordArray) -> None:
        if best["ask_px"] <= best["bid_px"] and best["bid_px"] != UNDEFINED:
            self.found.crossed += 1
            self.found.crossed_since_auction += 1
        if self.trades is not None and self.trades.counts.without_side and not self._opened:
            self._opened = True
            self.found.crossed_since_auction = 0

    _opened = False

    def result(self) -> SymbolReplay:
        found = self.found
        kernel = self.entry.kernel if self.entry else self.book.kernel
        found.live, found.unknown, found.refused = kernel.live, self.book.counts.unknown, self.book.counts.refused
        found.check = self.check.counts if self.check else None
        if self.trades is not None:
            found.matched = self.trades.result()
        elif self.executions is not None and self.check is None:
            found.matched = self.executions.counts
        found.entered = self.entry.result() if self.entry else None
        return found
