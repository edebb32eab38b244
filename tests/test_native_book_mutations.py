"""Each clause of M4 to M12 and S2 to S6, left out of the engine: the slow model, or conservation, finds it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from levelcast.native import pure_book, pure_book_auction, pure_book_entry, pure_book_ledger, pure_book_match
from levelcast.native import pure_book_settings as treasury
from levelcast.native.book_codes import BookReason
from levelcast.native.pure_book import BookKernel
from levelcast.native.pure_book_state import BookSide
from tests.book_compare import against_model
from tests.book_parts import flow

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


MUTATIONS: list[tuple[str, Any, str, Any]] = [
    ("M3 any client order id", pure_book_entry, "check_id", accept),
    ("M4 always the resting price", pure_book_match, "trade_price", lambda listing, taker, maker: maker.bound),
    ("M4 newest first", BookSide, "first", newest_first),
    ("M5 a larger order keeps its place", pure_book, "keeps_place", lambda o, bound, stop, left: bound == o.bound),
    ("M5 a smaller order loses its place", pure_book, "keeps_place", never),
    ("M5 a replacement never ends an order", pure_book, "ends", never),
    ("M6 no collar", pure_book_entry, "collar_bound", lambda listing, side, near: 200 if side == ord("B") else 5),
    ("M6 immediate orders rest", pure_book_match, "may_rest", always),
    ("M6 fill or kill fills partly", pure_book_match, "can_fill", always),
    ("M6 stops without their trigger", pure_book_match, "is_triggered", lambda listing, o: o.type in b"34"),
    ("M6 stops are never triggered", pure_book_match, "is_triggered", never),
    ("M6 post-only may trade", pure_book_entry, "check_post_only", accept),
    ("M6 orders for the auction stay", pure_book_auction, "is_for_cross", never),
    ("M7 own orders meet", pure_book_match, "are_kept_apart", never),
    ("M7 always the oldest goes", pure_book_match, "own_amounts", only_the_older),
    ("M7 fill or kill counts own orders", pure_book_match, "can_fill", fill_beyond_own),
    ("M7 own orders meet in an auction", pure_book_auction, "keep_owners_apart", never),
    ("M8 any price", pure_book_entry, "check_price", accept),
    ("M8 any stop price", pure_book_entry, "check_stop_price", accept),
    ("M8 any size", pure_book_entry, "check_size", accept),
    ("M8 no rate, no lock", pure_book_entry, "check_account", accept),
    ("M8 no limits of accounts", pure_book_entry, "check_limits", accept),
    ("M9 orders in a halt", pure_book_entry, "takes_orders", always),
    ("M9 any time in force in any phase", pure_book_entry, "check_phase", accept),
    ("M9 day orders stay", pure_book, "expires", never),
    ("M9 no price band", pure_book_match, "outside_band", never),
    ("M9 orders for the close do not join", pure_book_match, "join_close", nothing),
    ("M10 volume only", pure_book_auction, "choose", by_volume_only),
    ("M10 without pressure", pure_book_auction, "choose", without_pressure),
    ("M10 no reference price", pure_book_auction, "reference", lambda listing: 0),
    ("M10 market orders last", pure_book_auction, "eligible", limits_first),
    ("M10 no batches", BookKernel, "_set_wake", nothing),
    ("M11 pays the own bid", pure_book_auction, "second_price", at_own_bid),
    ("M11 pays the reserve", pure_book_auction, "second_price", reserve_only),
    ("M11 sells less than the lot", pure_book_auction, "is_bid_for", lambda bid, lot: bid.bound >= lot.bound),
    ("M12 the clock stands", pure_book_auction, "clock_price", start_price),
    ("S2 nothing is released", pure_book_ledger, "release", nothing),
    ("S2 fees are not reserved", pure_book_ledger, "reserved_fee", without_fees),
    ("S2 no funds are needed", pure_book_ledger, "lacks", accept),
    ("S3 one side only", pure_book_ledger, "settle", half_trade(pure_book_ledger.settle)),
    ("S4 reserved money is withdrawn", treasury, "can_withdraw", any_withdrawal),
    ("S6 a bust that moves nothing", pure_book_ledger, "bust", accept),
]


def finds() -> str:
    """Return the first difference in random flows."""
    for seed in range(5000, 5000 + MOST_FLOWS):
        try:
            if found := against_model(BookKernel, flow(seed, 300, accounts=True), accounts=True):
                return found
        except (RuntimeError, AssertionError, KeyError, struct.error) as error:
            return repr(error)
    return ""


@pytest.mark.parametrize(("name", "where", "what", "instead"), MUTATIONS, ids=[each[0] for each in MUTATIONS])
def test_mutation_is_found(name: str, where: Any, what: str, instead: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(where, what, instead)
    assert finds(), f"no random flow notices the mutation: {name}"


def test_the_engine_as_it_is_has_no_difference() -> None:
    for seed in range(5000, 5010):
        assert against_model(BookKernel, flow(seed, 300, accounts=True), accounts=True) == ""
