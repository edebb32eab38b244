"""Admission of orders (M3, M6, M8): every check of a new order or a replacement, each with its reason.

The first check that fails decides the reason. No check changes anything but the counters of M3 and of the rate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from levelcast.native import pure_book_ledger as ledgers
from levelcast.native import pure_book_match as matching
from levelcast.native.book_codes import (
    AT_CLOSE,
    AT_OPEN,
    BUY,
    CALL_PHASES,
    DAY,
    FILL_OR_KILL,
    GATEWAY_BITS,
    IMMEDIATE,
    LIMIT,
    MARKET,
    MAX_NOTIONAL,
    MAX_PRICE,
    NO_SIZE,
    POST_ONLY,
    SECOND_NS,
    SELL,
    STOP,
    STOP_LIMIT,
    TILL_CANCEL,
    UNDEFINED,
    BookPhase,
    BookReason,
    InstrumentSetting,
    MatchRule,
)
from levelcast.native.pure_book_state import BookAccount, BookOrder, Listing

if TYPE_CHECKING:
    from levelcast.native.pure_book import BookKernel

POLICIES = b"NOBDA"


class Command(NamedTuple):
    """The fields of an order command, in the order of `COMMAND`."""

    publisher: int
    instrument: int
    stamp: int
    order_id: int
    price: int
    size: int
    action: int
    side: int
    stop: int
    client: int
    original: int
    account: int
    type: int
    tif: int
    policy: int
    command: int
    instruction: int
    reserved: int


def check_id(book: BookKernel, account: BookAccount, client: int) -> BookReason:
    """Refuse a client order id that does not rise within its gateway, else note it (M3)."""
    gateway, count = client >> GATEWAY_BITS, client & ((1 << GATEWAY_BITS) - 1)
    key = account.number, gateway
    if count <= book.ledger.seen.get(key, 0):
        return BookReason.DUPLICATE_ID
    book.ledger.seen[key] = count
    return BookReason.NONE


def check_account(account: BookAccount, stamp_ns: int) -> BookReason:
    """Refuse a locked account and orders above the rate, by the second of their stamp (M8)."""
    if account.locked:
        return BookReason.ACCOUNT_LOCKED
    if account.orders_per_second:
        second = stamp_ns // SECOND_NS
        if second != account.second:
            account.second, account.used = second, 0
        account.used += 1
        if account.used > account.orders_per_second:
            return BookReason.RATE
    return BookReason.NONE


def check_kind(listing: Listing, command: Command) -> BookReason:
    """Check the codes of a new order, alone and together."""
    rule = listing.settings[InstrumentSetting.MATCH_RULE]
    stops = command.type in (STOP, STOP_LIMIT)
    if command.reserved or command.instruction not in (0, POST_ONLY):
        return BookReason.INSTRUCTION
    if command.side not in (BUY, SELL):
        return BookReason.SIDE
    if command.type not in (MARKET, LIMIT, STOP, STOP_LIMIT):
        return BookReason.ORDER_TYPE
    if rule != MatchRule.CONTINUOUS and (stops or (command.type == MARKET and rule != MatchRule.BATCH)):
        return BookReason.ORDER_TYPE
    if command.tif not in (DAY, TILL_CANCEL, AT_OPEN, IMMEDIATE, FILL_OR_KILL, AT_CLOSE):
        return BookReason.TIME_IN_FORCE
    if stops and command.tif in (AT_OPEN, AT_CLOSE):
        return BookReason.TIME_IN_FORCE
    if rule != MatchRule.CONTINUOUS and command.tif not in (DAY, TILL_CANCEL):
        return BookReason.TIME_IN_FORCE
    if command.instruction == POST_ONLY and (command.type != LIMIT or command.tif not in (DAY, TILL_CANCEL)):
        return BookReason.INSTRUCTION
    return BookReason.NONE if command.policy in POLICIES else BookReason.SELF_TRADE_POLICY


def check_phase(listing: Listing, command: Command) -> BookReason:
    """Check that the phase takes the order (M9)."""
    if not takes_orders(listing):
        return BookReason.PHASE
    if command.tif == AT_OPEN and listing.phase not in (BookPhase.PRE_OPEN, BookPhase.PRE_CROSS):
        return BookReason.PHASE
    if command.tif in (IMMEDIATE, FILL_OR_KILL) and command.type in (MARKET, LIMIT) and listing.phase in CALL_PHASES:
        return BookReason.PHASE
    return BookReason.NONE


def takes_orders(listing: Listing) -> bool:
    if listing.phase in CALL_PHASES:
        return True
    return listing.phase == BookPhase.TRADING and listing.settings[InstrumentSetting.MATCH_RULE] != MatchRule.SEALED


def check_price(listing: Listing, price: int) -> BookReason:
    """Check a limit price: absent, absurd, beyond the limits, off the tick."""
    if price == UNDEFINED:
        return BookReason.NO_PRICE
    if price <= 0 or price > MAX_PRICE or price > listing.high or price < listing.low:
        return BookReason.PRICE_LIMITS
    return BookReason.TICK if price % listing.tick else BookReason.NONE


def check_stop_price(listing: Listing, price: int) -> BookReason:
    if price == UNDEFINED:
        return BookReason.NO_PRICE
    if price <= 0 or price > MAX_PRICE:
        return BookReason.PRICE_LIMITS
    return BookReason.TICK if price % listing.tick else BookReason.NONE


def check_size(listing: Listing, size: int) -> BookReason:
    if size in (0, NO_SIZE):
        return BookReason.SIZE
    if size % listing.lot:
        return BookReason.LOT
    return BookReason.SIZE_LIMITS if size < listing.smallest or size > listing.largest else BookReason.NONE


def collar_bound(listing: Listing, side: int, near: int) -> int:
    """Return the price beyond which an order without a limit does not trade; 0: none can be given.

    The collar is around `near`. Without a collar, the price limits of the instrument count.
    """
    if side == BUY:
        bound = listing.high
        if listing.collar >= 0:
            bound = min(bound, near + listing.collar) if near else 0
        return bound // listing.tick * listing.tick if bound <= MAX_PRICE else 0
    bound = listing.low
    if listing.collar >= 0:
        bound = max(bound, near - listing.collar, 1) if near else 0
    return -(-bound // listing.tick) * listing.tick


def near_price(listing: Listing, side: int) -> int:
    """Return the price that a market order's collar is around: the last trade's, else the best opposite one."""
    return listing.last or listing.settings[InstrumentSetting.REFERENCE] or listing.other(side).best() or 0


def bound_of(listing: Listing, side: int, kind: int, price: int, stop: int) -> tuple[int, BookReason]:
    """Return the worst price at which an order may trade, or why it has none (M6)."""
    if kind in (STOP, STOP_LIMIT) and (reason := check_stop_price(listing, stop)):
        return 0, reason
    if kind in (LIMIT, STOP_LIMIT):
        return price, check_price(listing, price)
    bound = collar_bound(listing, side, stop if kind == STOP else near_price(listing, side))
    return bound, BookReason.NONE if bound > 0 else BookReason.NO_COLLAR


def check_limits(
    book: BookKernel, listing: Listing, account: BookAccount, size: int, opened: int, needs: tuple[int, int]
) -> BookReason:
    """Check an account's limits (M8), then its funds and shares (S2). `opened` is the change of its open value."""
    if account.restricted:
        stock = book.ledger.balances.get((account.number, listing.asset))
        if stock is None or not stock.allowed:
            return BookReason.NOT_ALLOWED
    if account.largest_order and size > account.largest_order:
        return BookReason.ORDER_LIMIT
    if account.largest_open and opened > 0 and account.open_value + opened > account.largest_open:
        return BookReason.OPEN_LIMIT
    return ledgers.lacks(book.ledger, listing, account.number, *needs)


def check_new(
    book: BookKernel, listing: Listing, account: BookAccount | None, command: Command
) -> tuple[int, BookReason]:
    """Return the bound of a new order, or why it is refused."""
    reason = check_kind(listing, command) or check_phase(listing, command)
    if reason:
        return 0, reason
    bound, reason = bound_of(listing, command.side, command.type, command.price, command.stop)
    reason = reason or check_size(listing, command.size)
    if not reason and bound * command.size > MAX_NOTIONAL:
        reason = BookReason.NOTIONAL
    if not reason and account is not None:
        needs = ledgers.needs(listing, command.side, bound, command.size)
        reason = check_limits(book, listing, account, command.size, bound * command.size, needs)
    if not reason and account is None and (command.account, command.client) in book.table:
        reason = BookReason.DUPLICATE_ID
    if not reason and command.instruction == POST_ONLY:
        reason = check_post_only(listing, command.side, bound)
    return bound, reason


def check_post_only(listing: Listing, side: int, bound: int) -> BookReason:
    if matching.is_continuous(listing) and matching.would_trade(listing, side, bound):
        return BookReason.POST_ONLY
    return BookReason.NONE


def left_after(order: BookOrder, size: int) -> int:
    """Return what is left of an order that is replaced by a size, which includes the filled part (M5)."""
    return size - order.filled


def check_replace(book: BookKernel, order: BookOrder, command: Command) -> tuple[int, int, BookReason]:
    """Return the new bound and stop price of an order that stays live, or why it is not replaced (M5)."""
    listing = order.listing
    stop = order.stop if command.stop == UNDEFINED else command.stop
    bound, reason = order.bound, BookReason.NONE
    if not takes_orders(listing):
        reason = BookReason.PHASE
    elif order.type != MARKET:
        kind = order.type if order.waits else LIMIT
        bound, reason = bound_of(listing, order.side, kind, command.price, stop)
    reason = reason or check_size(listing, command.size)
    if not reason and bound * command.size > MAX_NOTIONAL:
        reason = BookReason.NOTIONAL
    left = left_after(order, command.size)
    if not reason and order.account is not None:
        cash, shares = ledgers.needs(listing, order.side, bound, left)
        old_cash, old_shares = ledgers.needs(listing, order.side, order.bound, order.left)
        opened = bound * left - order.bound * order.left
        needs = cash - old_cash, shares - old_shares
        reason = check_limits(book, listing, order.account, command.size, opened, needs)
    if not reason and order.post_only:
        reason = check_post_only(listing, order.side, bound)
    return bound, stop, reason
