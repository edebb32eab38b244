"""Auctions: the call auction (M10), the sealed round at the second price (M11) and the Dutch clock (M12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelcast.native import pure_book_match as matching
from levelcast.native.book_codes import (
    AT_CLOSE,
    AT_OPEN,
    BUY,
    MARKET,
    SELL,
    BookReason,
    EventKind,
    InstrumentSetting,
    MatchRule,
)
from levelcast.native.pure_book_state import BookOrder, BookSide, Listing

if TYPE_CHECKING:
    from levelcast.native.pure_book import BookKernel


def is_sealed(listing: Listing) -> bool:
    return listing.settings[InstrumentSetting.MATCH_RULE] == MatchRule.SEALED


def is_dutch(listing: Listing) -> bool:
    return listing.settings[InstrumentSetting.MATCH_RULE] == MatchRule.DUTCH


def depth(side: BookSide) -> dict[int, int]:
    """Return the size by price, of market orders too."""
    sizes: dict[int, int] = {}
    for order in side:
        sizes[order.bound] = sizes.get(order.bound, 0) + order.left
    return sizes


def reference(listing: Listing) -> int:
    """Return the last trade's price, or the one that was set; 0: none."""
    return listing.last or listing.settings[InstrumentSetting.REFERENCE]


def candidates(listing: Listing, prices: list[int]) -> list[int]:
    """Return prices that include every one that M10 may choose.

    Volume and surplus change only at prices of orders. So those, the ticks beside them and the reference suffice.
    """
    least, most = min(prices), max(prices)
    found = {price + offset for price in prices for offset in (-listing.tick, 0, listing.tick)}
    found.add(reference(listing) // listing.tick * listing.tick)
    return sorted(price for price in found if least <= price <= most)


def clearing(listing: Listing) -> tuple[int, int, int]:
    """Return price, volume and surplus (positive: buying) of an auction of the book now; volume 0: none."""
    buys, sells = depth(listing.bids), depth(listing.asks)
    if not buys or not sells:
        return 0, 0, 0
    found = []
    for price in candidates(listing, [*buys, *sells]):
        demand = sum(size for bound, size in buys.items() if bound >= price)
        supply = sum(size for bound, size in sells.items() if bound <= price)
        found.append((price, min(demand, supply), demand - supply))
    return choose(listing, found)


def choose(listing: Listing, found: list[tuple[int, int, int]]) -> tuple[int, int, int]:
    """Choose among (price, volume, surplus) by M10: volume, surplus, pressure, reference."""
    volume = max(each[1] for each in found)
    if not volume:
        return 0, 0, 0
    found = [each for each in found if each[1] == volume]
    surplus = min(abs(each[2]) for each in found)
    found = [each for each in found if abs(each[2]) == surplus]
    if all(each[2] < 0 for each in found):
        return found[0]
    if all(each[2] > 0 for each in found) or not reference(listing):
        return found[-1]
    return min(reversed(found), key=lambda each: abs(each[0] - reference(listing)))


def cross(book: BookKernel, listing: Listing) -> None:
    """Run the auction of an instrument, then cancel what was only for it."""
    if is_sealed(listing):
        sealed_round(book, listing)
        return
    price, volume, surplus = clearing(listing)
    while volume and keep_owners_apart(book, listing, price):
        price, volume, surplus = clearing(listing)
    if volume:
        book.tell_market(EventKind.CROSSED, listing, price, volume, surplus)
        allocate(book, listing, price)
        listing.last = listing.band_reference = price
    for order in [*listing.bids, *listing.asks]:
        if is_for_cross(order):
            book.reduce(order, order.left, BookReason.AFTER_CROSS)


def is_for_cross(order: BookOrder) -> bool:
    """Return whether an order in the book was only for the auction."""
    return order.tif in (AT_OPEN, AT_CLOSE) or order.type == MARKET


def eligible(listing: Listing, price: int) -> tuple[list[BookOrder], list[BookOrder]]:
    """Return the orders that may trade at the price: market orders first, then by price, then by place."""
    buys = [order for order in listing.bids if order.bound >= price]
    return buys, [order for order in listing.asks if order.bound <= price]


def keep_owners_apart(book: BookKernel, listing: Listing, price: int) -> bool:
    """Cancel what would meet an order of its own owner at this price (M7); return whether anything was.

    Cancelling changes volume and price, so the auction is computed again, and trades only when nothing is cancelled.
    """
    buys, sells = eligible(listing, price)
    left = {order.id: order.left for order in [*buys, *sells]}
    found = False
    while buys and sells:
        buy, sell = buys[0], sells[0]
        newer, older = (buy, sell) if buy.id > sell.id else (sell, buy)
        size = min(left[buy.id], left[sell.id])
        if matching.are_kept_apart(newer, older):
            found = True
            for order, amount in matching.own_amounts(newer, older, left[newer.id], left[older.id]):
                book.reduce(order, amount, BookReason.SELF_TRADE)
                left[order.id] -= amount
        else:
            left[buy.id] -= size
            left[sell.id] -= size
        if not left[buy.id]:
            buys.pop(0)
        if not left[sell.id]:
            sells.pop(0)
    return found


def allocate(book: BookKernel, listing: Listing, price: int) -> None:
    """Trade the orders in their rank, all at one price."""
    buys, sells = eligible(listing, price)
    while buys and sells:
        buy, sell = buys[0], sells[0]
        matching.trade(book, buy, sell, price, min(buy.left, sell.left), auctioned=True)
        if not buy.left:
            buys.pop(0)
        if not sell.left:
            sells.pop(0)


def sealed_round(book: BookKernel, listing: Listing) -> None:
    """Sell each lot to its highest bidder at the price of the second highest bidder, or at the reserve (M11)."""
    for lot in list(listing.asks):
        bids = [bid for bid in listing.bids if is_bid_for(bid, lot)]
        if bids:
            price = second_price(bids, lot)
            book.tell_market(EventKind.CROSSED, listing, price, lot.left, 0)
            matching.trade(book, bids[0], lot, price, lot.left, auctioned=True)
    for order in [*listing.bids, *listing.asks]:
        book.reduce(order, order.left, BookReason.AFTER_CROSS)


def is_bid_for(bid: BookOrder, lot: BookOrder) -> bool:
    """Return whether a bid reaches the reserve for the complete lot, and is another owner's."""
    newer, older = (bid, lot) if bid.id > lot.id else (lot, bid)
    return bid.bound >= lot.bound and bid.left >= lot.left and not matching.are_kept_apart(newer, older)


def second_price(bids: list[BookOrder], lot: BookOrder) -> int:
    return next((bid.bound for bid in bids if bid.owner != bids[0].owner), lot.bound)


def clock_price(listing: Listing, stamp_ns: int) -> int:
    """Return the price of the Dutch clock at a stamp (M12)."""
    settings = listing.settings
    interval = settings[InstrumentSetting.INTERVAL]
    passed = max(0, stamp_ns - listing.start_ns) // interval if interval else 0
    return settings[InstrumentSetting.DUTCH_START] - settings[InstrumentSetting.DUTCH_STEP] * passed


def accept_clock(book: BookKernel, taker: BookOrder) -> None:
    """Take lots at the price of the clock, those with the lowest reserve first."""
    listing = taker.listing
    price = clock_price(listing, book.stamp_ns)
    if price <= 0 or price > taker.bound:
        return
    while taker.left:
        lot = listing.asks.first()
        if lot is None or lot.bound > price:
            return
        if matching.are_kept_apart(taker, lot):
            matching.own_orders_meet(book, taker, lot)
        else:
            matching.trade(book, taker, lot, price, min(taker.left, lot.left))


def surplus_side(surplus: int) -> int:
    return BUY if surplus > 0 else SELL if surplus < 0 else ord("N")
