"""Each clause of M4 to M12 and S2 to S6, left out of the engine: the slow model, or conservation, finds it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest

from levelcast.native import pure_book, pure_book_auction, pure_book_entry, pure_book_ledger, pure_book_match
from levelcast.native import pure_book_settings as treasury
from levelcast.native.book_codes import AccountSetting, BookPhase, BookReason, InstrumentSetting
from levelcast.native.pure_book import BookKernel
from levelcast.native.pure_book_state import BookSide, Listing
from levelcast.records import RecordArray
from tests.book_compare import against_model
from tests.book_parts import TICK, USD, Step, account_limit, command, deposit, flow, setting

MOST_FLOWS = 60


def never(*_: Any, **__: Any) -> bool:
    return False


def always(*_: Any, **__: Any) -> bool:
    return True


def accept(*_: Any, **__: Any) -> BookReason:
    return BookReason.NONE


def nothing(*_: Any, **__: Any) -> None:
    return None


def newest_first(side: BookSide) -> Any:
    best = side.best()
    return None if best is None else list(side.queues[best].values())[-1]


def by_volume_only(listing: Any, found: list[tuple[int, int, int]]) -> tuple[int, int, int]:
    best = max(found, key=lambda each: each[1])
    return best if best[1] else (0, 0, 0)


def without_pressure(listing: Any, found: list[tuple[int, int, int]]) -> tuple[int, int, int]:
    volume = max(each[1] for each in found)
    found = [each for each in found if each[1] == volume]
    least = min(abs(each[2]) for each in found)
    return next(each for each in found if abs(each[2]) == least) if volume else (0, 0, 0)


def limits_first(listing: Any, price: int) -> Any:
    buys = [o for o in [*listing.bids.ranked(), *listing.bids.market.values()] if o.bound >= price]
    return buys, [o for o in [*listing.asks.ranked(), *listing.asks.market.values()] if o.bound <= price]


def at_own_bid(bids: list[Any], lot: Any) -> int:
    return int(bids[0].bound)


def reserve_only(bids: list[Any], lot: Any) -> int:
    return int(lot.bound)


def start_price(listing: Any, stamp_ns: int) -> int:
    return int(listing.settings[8])


def any_withdrawal(balance: Any, amount: int) -> bool:
    return balance is not None and balance.free + balance.reserved >= amount


def without_fees(listing: Any) -> int:
    return 0


def only_the_older(newer: Any, older: Any, newer_left: int, older_left: int) -> Any:
    return [(older, older_left)]


def fill_beyond_own(taker: Any) -> bool:
    found = sum(
        maker.left for maker in taker.listing.other(taker.side).ranked() if pure_book_match.reaches(taker, maker.bound)
    )
    return bool(found >= taker.left)


def half_trade(honest: Callable[..., None]) -> Callable[..., None]:
    """Settle only the buyer's side (S3)."""

    def settle(ledger: Any, number: int, price: int, size: int, buy: Any, sell: Any, taker: int) -> None:
        if buy.account is not None:
            ledger.move(buy.cash, buy.bound * size - price * size, -buy.bound * size)
            ledger.move(buy.shares, size)

    return settle


def midpoint_away(listing: Any, taker: Any, maker: Any) -> int:
    """Round the midpoint away from the resting order (M4)."""
    total, double = taker.bound + maker.bound, 2 * listing.tick
    if listing.settings[1] != 3 or taker.type in b"13":
        return int(TRADE_PRICE(listing, taker, maker))
    return int(total // double * listing.tick if maker.side == ord("B") else -(-total // double) * listing.tick)


def seller_for_buyer(listing: Any, taker: Any, maker: Any) -> int:
    bounds = {taker.side: taker.bound, maker.side: maker.bound}
    swapped = listing.settings[1] in (1, 2) and taker.type in b"24"
    return int(bounds[ord("A" if listing.settings[1] == 1 else "B")] if swapped else TRADE_PRICE(listing, taker, maker))


def newest_in_queue(side: BookSide) -> Any:
    for price in side.prices():
        yield from reversed(side.queues[price].values())


def stops_once(book: Any, listing: Any) -> None:
    """Stops that a stop triggers wait for another command (M6)."""
    if pure_book_match.is_continuous(listing):
        for order in pure_book_match.take_triggered(book, listing):
            pure_book_match.trigger(book, order)


def newest_stop_first(book: Any, listing: Any) -> Any:
    return TAKE_TRIGGERED(book, listing)[::-1]


def policies(**changed: bytes) -> Callable[..., Any]:
    """Return a function that takes one policy for another (M7)."""

    def amounts(newer: Any, older: Any, newer_left: int, older_left: int) -> Any:
        was = newer.policy
        newer.policy = changed.get(chr(was), bytes([was]))[0]
        try:
            return OWN_AMOUNTS(newer, older, newer_left, older_left)
        finally:
            newer.policy = was

    return amounts


def account_without(**lacking: int) -> Callable[..., Any]:
    """Return a check of accounts that ignores some of their limits (M8)."""

    def check(account: Any, stamp_ns: int) -> Any:
        kept = {name: getattr(account, name) for name in lacking}
        for name, value in lacking.items():
            setattr(account, name, value)
        try:
            return CHECK_ACCOUNT(account, stamp_ns)
        finally:
            for name, value in kept.items():
                setattr(account, name, value)

    return check


def limits_without(**lacking: int) -> Callable[..., Any]:
    def check(book: Any, listing: Any, account: Any, *rest: Any) -> Any:
        kept = {name: getattr(account, name) for name in lacking}
        for name, value in lacking.items():
            setattr(account, name, value)
        try:
            return CHECK_LIMITS(book, listing, account, *rest)
        finally:
            for name, value in kept.items():
                setattr(account, name, value)

    return check


def price_without(reason: BookReason) -> Callable[..., BookReason]:
    return lambda listing, price: BookReason.NONE if (found := CHECK_PRICE(listing, price)) == reason else found


def size_without(reason: BookReason) -> Callable[..., BookReason]:
    return lambda listing, size: BookReason.NONE if (found := CHECK_SIZE(listing, size)) == reason else found


def pause_for_ever(book: Any, listing: Any) -> None:
    book.set_phase(listing, 2)


def any_surplus(listing: Any, found: list[tuple[int, int, int]]) -> tuple[int, int, int]:
    """Choose as if every price with the largest volume had the least surplus (M10)."""
    volume = max(each[1] for each in found)
    best = [each for each in found if each[1] == volume]
    return best[-1] if volume else (0, 0, 0)


def second_of_anyone(bids: list[Any], lot: Any) -> int:
    return int(bids[1].bound if len(bids) > 1 else lot.bound)


def clock_of_the_frame(book: Any, taker: Any) -> None:
    stamp, book.stamp_ns = book.stamp_ns, book.now_ns
    ACCEPT_CLOCK(book, taker)
    book.stamp_ns = stamp


def whole_lots(book: Any, taker: Any) -> None:
    """End a lot with the first acceptance (M12)."""
    lot = taker.listing.asks.first()
    before = lot.left if lot else 0
    ACCEPT_CLOCK(book, taker)
    if lot and 0 < lot.left < before:
        book.reduce(lot, lot.left, BookReason.AFTER_CROSS)


def lacks_with(short: Callable[[Any], int]) -> Callable[..., BookReason]:
    """Return a check of funds and shares with another short limit (S2)."""

    def lacks(ledger: Any, listing: Any, account: int, cash: int, shares: int) -> BookReason:
        stock = ledger.balance(account, listing.asset)
        kept, stock.short = stock.short, short(stock)
        try:
            return BookReason(LACKS(ledger, listing, account, cash, shares))
        finally:
            stock.short = kept

    return lacks


def keeps_difference(ledger: Any, number: int, price: int, size: int, buy: Any, sell: Any, taker: int) -> None:
    """What a better price leaves of a buyer's money stays reserved (S2)."""
    SETTLE(ledger, number, price, size, buy, sell, taker)
    if buy.account is not None:
        ledger.move(buy.cash, -(buy.bound - price) * size, (buy.bound - price) * size)


def creates_money(ledger: Any, number: int, price: int, size: int, buy: Any, sell: Any, taker: int) -> None:
    SETTLE(ledger, number, price, size, buy, sell, taker)
    if buy.account is not None:
        ledger.move(sell.cash, 1)


TRADE_PRICE, TAKE_TRIGGERED = pure_book_match.trade_price, pure_book_match.take_triggered
OWN_AMOUNTS, ACCEPT_CLOCK = pure_book_match.own_amounts, pure_book_auction.accept_clock
CHECK_ACCOUNT, CHECK_LIMITS = pure_book_entry.check_account, pure_book_entry.check_limits
CHECK_PRICE, CHECK_SIZE = pure_book_entry.check_price, pure_book_entry.check_size
LACKS, SETTLE = pure_book_ledger.lacks, pure_book_ledger.settle

MUTATIONS: list[tuple[str, Any, str, Any]] = [
    ("M3 any client order id", pure_book_entry, "check_id", accept),
    ("M4 always the resting price", pure_book_match, "trade_price", lambda listing, taker, maker: maker.bound),
    ("M4 newest first", BookSide, "first", newest_first),
    ("M4 midpoint rounded away from the resting order", pure_book_match, "trade_price", midpoint_away),
    ("M4 the seller's price for the buyer's", pure_book_match, "trade_price", seller_for_buyer),
    ("M5 a larger order keeps its place", pure_book, "keeps_place", lambda o, bound, stop, left: bound == o.bound),
    ("M5 a smaller order loses its place", pure_book, "keeps_place", never),
    ("M5 a replacement never ends an order", pure_book, "ends", never),
    ("M5 the filled part does not count", pure_book_entry, "left_after", lambda order, size: size),
    ("M6 no collar", pure_book_entry, "collar_bound", lambda listing, side, near: 200 if side == ord("B") else 5),
    ("M6 immediate orders rest", pure_book_match, "may_rest", always),
    ("M6 fill or kill fills partly", pure_book_match, "can_fill", always),
    ("M6 stops without their trigger", pure_book_match, "is_triggered", lambda listing, o: o.type in b"34"),
    ("M6 stops are never triggered", pure_book_match, "is_triggered", never),
    ("M6 newest stop first", pure_book_match, "take_triggered", newest_stop_first),
    ("M6 stops trigger no other stops", pure_book_match, "run_stops", stops_once),
    ("M6 post-only may trade", pure_book_entry, "check_post_only", accept),
    ("M6 orders for the auction stay", pure_book_auction, "is_for_cross", never),
    ("M7 own orders meet", pure_book_match, "are_kept_apart", never),
    ("M7 always the oldest goes", pure_book_match, "own_amounts", only_the_older),
    ("M7 newest stays", pure_book_match, "own_amounts", policies(N=b"O")),
    ("M7 oldest stays", pure_book_match, "own_amounts", policies(O=b"N")),
    ("M7 both: only the newest", pure_book_match, "own_amounts", policies(B=b"N")),
    ("M7 decrement: both", pure_book_match, "own_amounts", policies(D=b"B")),
    (
        "M7 an owner with two accounts is two owners",
        pure_book_match,
        "are_kept_apart",
        lambda newer, older: newer.number == older.number and newer.policy != ord("A"),
    ),
    ("M7 fill or kill counts own orders", pure_book_match, "can_fill", fill_beyond_own),
    ("M7 own orders meet in an auction", pure_book_auction, "keep_owners_apart", never),
    ("M8 any price", pure_book_entry, "check_price", accept),
    ("M8 any stop price", pure_book_entry, "check_stop_price", accept),
    ("M8 prices off the tick", pure_book_entry, "check_price", price_without(BookReason.TICK)),
    ("M8 prices beyond the limits", pure_book_entry, "check_price", price_without(BookReason.PRICE_LIMITS)),
    ("M8 any size", pure_book_entry, "check_size", accept),
    ("M8 sizes off the lot", pure_book_entry, "check_size", size_without(BookReason.LOT)),
    ("M8 sizes beyond the limits", pure_book_entry, "check_size", size_without(BookReason.SIZE_LIMITS)),
    ("M8 no rate, no lock", pure_book_entry, "check_account", accept),
    ("M8 no rate", pure_book_entry, "check_account", account_without(orders_per_second=0)),
    ("M8, M9 no lock", pure_book_entry, "check_account", account_without(locked=False)),
    ("M8 no limits of accounts", pure_book_entry, "check_limits", accept),
    ("M8 no largest order", pure_book_entry, "check_limits", limits_without(largest_order=0)),
    ("M8 no largest open value", pure_book_entry, "check_limits", limits_without(largest_open=0)),
    ("M8 any instrument", pure_book_entry, "check_limits", limits_without(restricted=False)),
    ("M9 orders in a halt", pure_book_entry, "takes_orders", always),
    ("M9 any time in force in any phase", pure_book_entry, "check_phase", accept),
    ("M9 day orders stay", pure_book, "expires", never),
    ("M9 no price band", pure_book_match, "outside_band", never),
    ("M9 no reopening after a pause", pure_book_match, "pause", pause_for_ever),
    (
        "M9 trades before the opening",
        pure_book_match,
        "is_continuous",
        lambda listing: listing.phase in (1, 2, 7) and not listing.settings[2],
    ),
    ("M9 no book order", Listing, "orders", lambda listing: [*listing.waiting.values(), *listing.asks, *listing.bids]),
    ("M9 orders for the close do not join", pure_book_match, "join_close", nothing),
    ("M10 volume only", pure_book_auction, "choose", by_volume_only),
    ("M10 any surplus", pure_book_auction, "choose", any_surplus),
    ("M10 without pressure", pure_book_auction, "choose", without_pressure),
    ("M10 no reference price", pure_book_auction, "reference", lambda listing: 0),
    ("M10 market orders last", pure_book_auction, "eligible", limits_first),
    ("M10, M11 newest first at a price", BookSide, "ranked", newest_in_queue),
    ("M10 no batches", BookKernel, "_set_wake", nothing),
    ("M11 pays the own bid", pure_book_auction, "second_price", at_own_bid),
    ("M11 pays the reserve", pure_book_auction, "second_price", reserve_only),
    ("M11 pays the own second bid", pure_book_auction, "second_price", second_of_anyone),
    ("M11 sells below the reserve", pure_book_auction, "is_bid_for", lambda bid, lot: bid.left >= lot.left),
    ("M11 sells less than the lot", pure_book_auction, "is_bid_for", lambda bid, lot: bid.bound >= lot.bound),
    ("M12 the clock stands", pure_book_auction, "clock_price", start_price),
    ("M12 the frame's time for the stamp", pure_book_auction, "accept_clock", clock_of_the_frame),
    ("M12 the rest of a lot ends", pure_book_auction, "accept_clock", whole_lots),
    ("S2 nothing is released", pure_book_ledger, "release", nothing),
    ("S2 fees are not reserved", pure_book_ledger, "reserved_fee", without_fees),
    ("S2 no funds are needed", pure_book_ledger, "lacks", accept),
    ("S2 no short limit", pure_book_ledger, "lacks", lacks_with(lambda stock: 10**12)),
    ("S2 never short", pure_book_ledger, "lacks", lacks_with(lambda stock: 0)),
    ("S2 a better price leaves money reserved", pure_book_ledger, "settle", keeps_difference),
    ("S3 one side only", pure_book_ledger, "settle", half_trade(pure_book_ledger.settle)),
    ("S4 reserved money is withdrawn", treasury, "can_withdraw", any_withdrawal),
    ("S4 anyone is the treasury", treasury, "is_treasury", always),
    ("S5 a trade creates money", pure_book_ledger, "settle", creates_money),
    ("S6 a bust that moves nothing", pure_book_ledger, "bust", accept),
]


def begun(match_rule: int, phase: int, *limits: RecordArray) -> list[Step]:
    """Return an instrument under a matching rule, with two funded accounts."""
    steps = [Step("define", (1, TICK, 1, 1, 100, 200, 1, -1, USD))]
    made = [setting(1, InstrumentSetting.MATCH_RULE, match_rule), *(deposit(each, 9_000) for each in (11, 12, 13))]
    return (
        steps
        + [Step("command", (each,)) for each in (*made, deposit(12, 5, 1), *limits)]
        + [Step("status", (1, phase))]
    )


def order(account: int, client: int, side: bytes, price: int, size: int) -> Step:
    made = command(account=account, client_order_id=client, side=side, price=price, size=size)
    made["self_trade_policy"] = b"A"
    return Step("command", (made,))


HISTORIES = [
    # A bidder's own second bid is not the second price, which is another's.
    [*begun(2, int(BookPhase.PRE_CROSS)), order(12, 1, b"A", 100, 2), order(11, 1, b"B", 150, 2),
     order(11, 2, b"B", 140, 2), order(13, 1, b"B", 120, 2), Step("status", (1, int(BookPhase.CROSS)))],
    # An account sells short up to its limit, and no more.
    [*begun(0, int(BookPhase.TRADING), account_limit(13, AccountSetting.SHORT_LIMIT, 3, 1)),
     order(13, 1, b"A", 100, 3), order(11, 1, b"B", 100, 3), order(13, 2, b"A", 100, 1)],
]  # fmt: skip
"""Histories that random flows seldom reach."""


def finds() -> str:
    """Return the first difference in the histories and in random flows."""
    for steps in chain(HISTORIES, (flow(seed, 300, accounts=True) for seed in range(5000, 5000 + MOST_FLOWS))):
        try:
            if found := against_model(BookKernel, steps, accounts=True):
                return found
        except (RuntimeError, AssertionError, KeyError, struct.error) as error:
            return repr(error)
    return ""


@pytest.mark.parametrize(("name", "where", "what", "instead"), MUTATIONS, ids=[each[0] for each in MUTATIONS])
def test_mutation_is_found(name: str, where: Any, what: str, instead: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(where, what, instead)
    assert finds(), f"no random flow notices the mutation: {name}"


def test_the_engine_as_it_is_has_no_difference() -> None:
    for steps in [*HISTORIES, *(flow(seed, 300, accounts=True) for seed in range(5000, 5010))]:
        assert against_model(BookKernel, steps, accounts=True) == ""
