"""Text of replays: what was compared, what was equal, and what cannot be known."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rich.table import Table

from levelcast.cli.output import table
from levelcast.market.engine import MatchingEngine
from levelcast.market.replay import TOP
from levelcast.market.replay_check import CheckCounts
from levelcast.market.replay_entry import EntryCounts
from levelcast.market.replay_match import MatchCounts
from levelcast.market.replay_run import SymbolReplay
from levelcast.native.book_codes import UNDEFINED
from levelcast.records import RecordArray

_LISTED = 60


def price_of(price: int) -> str:
    return "–" if price == UNDEFINED else f"{price / 1e9:,.2f}"


def book_table(title: str, top: RecordArray) -> Table:
    """Return a book with bids on the left and asks on the right."""
    rows = [
        (f"{int(level['bid_sz']):,}", price_of(int(level["bid_px"])), price_of(int(level["ask_px"])),
         f"{int(level['ask_sz']):,}")
        for level in top
        if level["bid_sz"] or level["ask_sz"]
    ]  # fmt: skip
    return table((">bid size", ">bid", ">ask", ">ask size"), rows, title=title)


def state_line(engine: MatchingEngine) -> str:
    """Return the last line of a state that was rebuilt from a tape."""
    at = np.datetime_as_string(np.datetime64(engine.timestamp_ns, "ns"), unit="ms").replace("T", " ")
    kernel = engine.kernel
    return (
        f"Sequence {engine.sequence:,}, {at} UTC: {kernel.trade_count:,} trades, {kernel.live:,} live orders, "
        f"state {engine.state_hash().hex()[:16]}."
    )


def report_lines(found: list[SymbolReplay], *, match: bool) -> Iterator[str]:
    for each in found:
        best = np.frombuffer(each.tops[-1], TOP)[0]
        bid, ask = price_of(int(best["bid_px"])), price_of(int(best["ask_px"]))
        yield f"{each.symbol}: {len(each.times):,} events, {each.live:,} live orders, {bid} / {ask} at the end"
        if each.crossed:
            yield f"  crossed after {each.crossed:,} events, {each.crossed_since_auction:,} of them after the auction"
        if each.unknown:
            yield f"  not known: {each.unknown:,} events of orders from before the file"
        if each.refused:
            yield f"  refused by the engine: {each.refused:,} events"
        if each.check is not None:
            yield from _checked(each.check)
        if match and each.matched is not None:
            yield from _matched(each.matched)
        if match and each.entered is not None:
            yield from _entered(each.entered)


def _checked(check: CheckCounts) -> Iterator[str]:
    yield f"  rows: {check.equal_rows:,} of {check.rows:,} equal to the published book"
    yield f"  levels: {check.equal_levels:,} of {check.levels:,} equal; {check.came_into_view:,} came into view"
    yield f"  not known: changes outside the view; {check.hidden:,} executions of hidden orders change nothing"
    if check.first_different:
        yield f"  first difference: row {check.first_different:,}"


def _matched(matched: MatchCounts) -> Iterator[str]:
    yield f"  trades: {matched.exact:,} of {matched.trades:,} predicted exactly"
    if matched.fills:
        yield f"  fills: {matched.exact_fills:,} of {matched.fills:,} predicted with their size"
    if matched.different:
        yield f"  others: {matched.hidden:,} with a hidden size, {matched.unexplained:,} unexplained"
        shown = [f"{place:,} ({why})" for place, why in matched.different[:_LISTED]]
        more = len(matched.different) - len(shown)
        yield f"  at record {', '.join(shown)}" + (f" and {more:,} more" if more else "")
    if matched.unknown:
        yield f"  not known: {matched.unknown:,} executions of orders from before the file"
    for each in matched.auctions:
        yield (
            f"  auction: {each.size:,} at {price_of(each.price)}; the visible book gives {each.volume:,} at "
            f"{price_of(each.cleared)}: {each.exact:,} of {each.orders:,} orders in the same amount; the rest are "
            f"{each.never_shown:,} orders that were never shown and {each.others:,} others"
        )


def _entered(entered: EntryCounts) -> Iterator[str]:
    yield f"  orders: {entered.exact:,} of {entered.with_fills:,} with fills have exactly the venue's volume"
    yield (
        f"  not known: {entered.unknown:,} events of orders from before the file; {entered.out_of_order:,} numbers out "
        f"of order; only the engine fills {entered.only_engine:,} orders"
    )


def summary(found: list[SymbolReplay], *, match: bool) -> str:
    """Return the last line of a replay."""
    symbols = "1 symbol" if len(found) == 1 else f"{len(found):,} symbols"
    parts = [f"{sum(len(each.times) for each in found):,} events of {symbols}"]
    checks = [each.check for each in found if each.check is not None]
    if checks:
        equal, rows = sum(each.equal_rows for each in checks), sum(each.rows for each in checks)
        parts.append(f"{equal:,} of {rows:,} rows equal to the published book")
    matched = [each.matched for each in found if each.matched is not None]
    if match and matched:
        exact, trades = sum(each.exact for each in matched), sum(each.trades for each in matched)
        parts.append(f"{exact:,} of {trades:,} trades predicted exactly")
    entered = [each.entered for each in found if each.entered is not None]
    if match and entered:
        exact, orders = sum(each.exact for each in entered), sum(each.with_fills for each in entered)
        parts.append(f"{exact:,} of {orders:,} orders with exactly the venue's volume")
    return "Replayed: " + ", ".join(parts) + "."
