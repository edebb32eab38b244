"""Continuous trading (M4 to M7): price, then place; self-trade policies; fill or kill; stops; the price band.

`place` is where each accepted, replaced or triggered order goes. Every function is one clause.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelcast.native import pure_book_auction as auction
from levelcast.native import pure_book_ledger as ledgers
from levelcast.native.book_codes import (
    AT_CLOSE,
    BUY,
    CALL_PHASES,
    FILL_OR_KILL,
    IMMEDIATE,
    MARKET,
    STOP,
    STOP_LIMIT,
    BookPhase,
    BookReason,
    EventKind,
    InstrumentSetting,
    MatchRule,
    PriceRule,
)
from levelcast.native.pure_book_state import BookOrder, Listing

if TYPE_CHECKING:
    from levelcast.native.pure_book import BookKernel

ALLOW, NEWEST, OLDEST, BOTH, DECREMENT = b"ANOBD"


def is_continuous(listing: Listing) -> bool:
    return listing.phase == BookPhase.TRADING and listing.settings[InstrumentSetting.MATCH_RULE] == MatchRule.CONTINUOUS


def gathers(listing: Listing) -> bool:
    """Return whether orders wait for an auction."""
    rule = listing.settings[InstrumentSetting.MATCH_RULE]
    return listing.phase in CALL_PHASES or (listing.phase == BookPhase.TRADING and rule == MatchRule.BATCH)


def reaches(order: BookOrder, price: int) -> bool:
    """Return whether the order may trade at the price."""
    return order.bound >= price if order.side == BUY else order.bound <= price


def may_rest(order: BookOrder) -> bool:
    return order.type not in (MARKET, STOP) and order.tif not in (IMMEDIATE, FILL_OR_KILL)


def trade_price(listing: Listing, taker: BookOrder, maker: BookOrder) -> int:
    """Return the price of a trade (M4). A market order has no price of its own."""
    rule = listing.settings[InstrumentSetting.PRICE_RULE]
    if rule == PriceRule.RESTING or taker.type in (MARKET, STOP):
        return maker.bound
    if rule != PriceRule.MIDPOINT:
        return taker.bound if (taker.side == BUY) == (rule == PriceRule.BUYER) else maker.bound
    total, double = taker.bound + maker.bound, 2 * listing.tick
    if maker.side == BUY:
        return min(-(-total // double) * listing.tick, maker.bound)
    return max(total // double * listing.tick, maker.bound)


def outside_band(listing: Listing, price: int) -> bool:
    band = listing.settings[InstrumentSetting.BAND]
    return band > 0 and listing.band_reference > 0 and abs(price - listing.band_reference) > band


def pause(book: BookKernel, listing: Listing) -> None:
    """Stop trading at the price band; `advance` reopens by auction."""
    book.set_phase(listing, BookPhase.PRE_CROSS)
    listing.wake_ns = book.now_ns + listing.settings[InstrumentSetting.PAUSE]


def own_amounts(newer: BookOrder, older: BookOrder, newer_left: int, older_left: int) -> list[tuple[BookOrder, int]]:
    """Return what the policy of the newer of two orders of one owner cancels of each (M7)."""
    if newer.policy == DECREMENT:
        overlap = min(newer_left, older_left)
        return [(older, overlap), (newer, overlap)]
    amounts = [(older, older_left)] if newer.policy in (OLDEST, BOTH) else []
    return amounts + [(newer, newer_left)] * (newer.policy in (NEWEST, BOTH))


def own_orders_meet(book: BookKernel, newer: BookOrder, older: BookOrder) -> None:
    """Apply the policy of the newer of two orders of one owner."""
    for order, amount in own_amounts(newer, older, newer.left, older.left):
        book.reduce(order, amount, BookReason.SELF_TRADE)


def are_kept_apart(newer: BookOrder, older: BookOrder) -> bool:
    return newer.owner == older.owner and newer.policy != ALLOW


def trade(book: BookKernel, taker: BookOrder, maker: BookOrder, price: int, size: int, auctioned: bool = False) -> None:
    """Trade two orders; in an auction the buyer is named first, and no side is the taker."""
    listing = taker.listing
    book.trade_count += 1
    buy, sell = (taker, maker) if taker.side == BUY else (maker, taker)
    ledgers.settle(book.ledger, book.trade_count, price, size, buy, sell, 0 if auctioned else taker.side)
    flags = 2 if auctioned else 0
    for order, kind in ((taker, EventKind.TRADE), (maker, EventKind.FILL)):
        order.left -= size
        order.filled += size
        book.tell(kind, order, price=price, size=size, flags=flags, trade=book.trade_count)
    listing.last = price
    if not listing.band_reference:
        listing.band_reference = price
    for order in (taker, maker):
        if not order.left:
            book.drop(order)


def match(book: BookKernel, taker: BookOrder) -> BookReason:
    """Trade an order with the other side by price, then place; return why it has to stop, if not for lack of orders."""
    listing = taker.listing
    other = listing.other(taker.side)
    while taker.left:
        maker = other.first()
        if maker is None or not reaches(taker, maker.bound):
            break
        if are_kept_apart(taker, maker):
            own_orders_meet(book, taker, maker)
            continue
        price = trade_price(listing, taker, maker)
        if outside_band(listing, price):
            pause(book, listing)
            return BookReason.PRICE_BAND
        trade(book, taker, maker, price, min(taker.left, maker.left))
    return BookReason.NONE


def can_fill(taker: BookOrder) -> bool:
    """Return whether all of an order can trade at once (fill or kill). Own orders and the band limit it."""
    wanted = taker.left
    for maker in taker.listing.other(taker.side).ranked():
        if not reaches(taker, maker.bound):
            return False
        if are_kept_apart(taker, maker):
            if taker.policy == OLDEST:
                continue
            return False
        if outside_band(taker.listing, trade_price(taker.listing, taker, maker)):
            return False
        wanted -= maker.left
        if wanted <= 0:
            return True
    return False


def would_trade(listing: Listing, side: int, bound: int) -> bool:
    best = listing.other(side).best()
    return best is not None and (bound >= best if side == BUY else bound <= best)


def place(book: BookKernel, order: BookOrder) -> None:
    """Let an order wait, trade or rest, as its instrument's phase and rule require."""
    listing = order.listing
    if order.waits:
        book.add_waiting(order)
    elif is_continuous(listing):
        finish(book, order, match(book, order))
    elif listing.phase == BookPhase.TRADING and auction.is_dutch(listing) and order.side == BUY:
        auction.accept_clock(book, order)
        if order.left:
            book.reduce(order, order.left, BookReason.IMMEDIATE)
    else:
        book.add(order)


def finish(book: BookKernel, order: BookOrder, reason: BookReason) -> None:
    """Rest what is left of an order, or cancel it."""
    if not order.left:
        return
    if may_rest(order):
        book.add(order)
    else:
        book.reduce(order, order.left, reason or BookReason.IMMEDIATE)


def is_triggered(listing: Listing, order: BookOrder) -> bool:
    if order.type not in (STOP, STOP_LIMIT) or not listing.last:
        return False
    return listing.last >= order.stop if order.side == BUY else listing.last <= order.stop


def take_triggered(book: BookKernel, listing: Listing) -> list[BookOrder]:
    """Take the stops that the last trade triggers out of the waiting orders, in the order in which they were placed."""
    due = [order for order in listing.waiting.values() if is_triggered(listing, order)]
    for order in due:
        book.remove(order)
    return due


def run_stops(book: BookKernel, listing: Listing) -> None:
    """Place the stops that a command triggers; each may trigger others, which follow (M6)."""
    due: list[BookOrder] = []
    while True:
        if is_continuous(listing):
            due += take_triggered(book, listing)
        if not due:
            return
        trigger(book, due.pop(0))


def trigger(book: BookKernel, order: BookOrder) -> None:
    """Place a stop as the order that it becomes."""
    order.waits = False
    book.tell(EventKind.TRIGGERED, order, price=order.bound, size=order.left)
    if not is_continuous(order.listing):
        finish(book, order, BookReason.PRICE_BAND)
    elif order.tif == FILL_OR_KILL and not can_fill(order):
        book.reduce(order, order.left, BookReason.FILL_OR_KILL)
    else:
        place(book, order)


def join_close(book: BookKernel, listing: Listing) -> None:
    """Place the orders for the close, which have waited for the closing auction."""
    for order in [order for order in listing.waiting.values() if order.tif == AT_CLOSE]:
        book.remove(order)
        order.waits = False
        book.tell(EventKind.TRIGGERED, order, price=order.bound, size=order.left)
        book.add(order)
