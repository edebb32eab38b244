"""The state of the matching engine as canonical bytes (M14): the same state has the same bytes.

Everything is in the order in which the tape created it; orders are in book order. Amounts of the ledger have 128 bits.
The bytes have no hash of their own: `levelcast.market.snapshot` adds one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import TYPE_CHECKING, Any

from levelcast.native.book_codes import BUY, KEPT_TRADES, RULES_VERSION
from levelcast.native.pure_book_state import Balance, BookAccount, BookOrder, Listing, PastTrade

if TYPE_CHECKING:
    from levelcast.native.pure_book import BookKernel

MAGIC = b"LVBK"
VERSION = 1
HEADER = Struct("<4sIIIIIQQQQ")
ASSET = Struct("<Q16s")
LISTING = Struct("<10qQQqq11qqQqII")
COUNTS = Struct("<IIII")
ORDER = Struct("<QQQqqQIIBBBBBBxx")
ACCOUNT = Struct("<QQqqq16sQQBB6x")
SEEN = Struct("<QQQ")
BALANCE = Struct("<QQqq16s16s")
TRADE = Struct("<QqQQqqIIQ")
NUMBER = Struct("<Q")


def snapshot(book: BookKernel) -> bytes:
    """Return the state of a book."""
    return b"".join(_parts(book))


def _parts(book: BookKernel) -> Iterator[bytes]:
    yield HEADER.pack(
        MAGIC, VERSION, int(book.has_accounts), book.treasury, book.rules, 0, book.now_ns, book.count,
        book.order_count, book.trade_count,
    )  # fmt: skip
    ledger = book.ledger
    yield NUMBER.pack(len(ledger.assets))
    for key, due in zip(ledger.assets, ledger.due, strict=True):
        yield ASSET.pack(key, _wide(due))
    yield NUMBER.pack(len(ledger.accounts))
    for account in ledger.accounts.values():
        yield ACCOUNT.pack(
            account.number, account.owner, account.largest_order, account.largest_open, account.orders_per_second,
            _wide(account.open_value), account.second, account.used, account.restricted, account.locked,
        )  # fmt: skip
    yield NUMBER.pack(len(ledger.seen))
    for (number, gateway), count in ledger.seen.items():
        yield SEEN.pack(number, gateway, count)
    yield NUMBER.pack(len(ledger.balances))
    yield from map(packed_balance, ledger.balances.values())
    yield NUMBER.pack(len(ledger.trades))
    for number, trade in ledger.trades.items():
        yield TRADE.pack(
            number, trade.price, trade.buyer, trade.seller, trade.buyer_fee, trade.seller_fee, trade.listing,
            trade.size, trade.busted,
        )  # fmt: skip
    yield NUMBER.pack(len(book.listings))
    for listing in book.listings.values():
        yield from _listing(listing)


def _listing(listing: Listing) -> Iterator[bytes]:
    yield LISTING.pack(
        listing.id, listing.currency, listing.phase, listing.tick, listing.lot, listing.smallest, listing.largest,
        listing.high, listing.low, listing.collar, listing.wake_ns, listing.start_ns, listing.last,
        listing.band_reference, *listing.settings, *listing.shown, listing.touched, 0,
    )  # fmt: skip
    bids, asks, waiting = list(listing.bids), list(listing.asks), list(listing.waiting.values())
    yield COUNTS.pack(len(bids), len(asks), len(waiting), 0)
    yield from map(packed_order, listing.orders())


def packed_order(order: BookOrder) -> bytes:
    return ORDER.pack(
        order.id, order.number, order.client, order.bound, order.stop, order.owner, order.left, order.filled,
        order.side, order.type, order.tif, order.policy, order.post_only, order.waits,
    )  # fmt: skip


def packed_balance(each: Balance) -> bytes:
    return BALANCE.pack(each.account, each.asset, each.short, each.allowed, _wide(each.free), _wide(each.reserved))


def restore(octets: bytes, make: Callable[[bool, int], BookKernel]) -> BookKernel:
    """Return the book of a snapshot, an object of `make`; ValueError if the bytes are not one."""
    reader = _Reader(octets)
    magic, version, accounts, treasury, rules, _, now, count, orders, trades = reader.take(HEADER)
    if magic != MAGIC or version != VERSION or accounts > 1 or treasury > 0xFFFF or not 0 < rules <= RULES_VERSION:
        raise ValueError("not a snapshot of this version")
    book = make(bool(accounts), treasury)
    book.rules, book.now_ns, book.count, book.order_count, book.trade_count = rules, now, count, orders, trades
    _restore_ledger(reader, book)
    for _ in range(reader.number()):
        _restore_listing(reader, book)
    if not reader.ended() or not book.ledger.conserved():
        raise ValueError("the snapshot is damaged")
    return book


def _restore_ledger(reader: _Reader, book: BookKernel) -> None:
    ledger = book.ledger
    for _ in range(reader.number()):
        key, due = reader.take(ASSET)
        ledger.due[ledger.asset(key)] = _narrow(due)
    for _ in range(reader.number()):
        account = BookAccount(0)
        (account.number, account.owner, account.largest_order, account.largest_open, account.orders_per_second,
         open_value, account.second, account.used, restricted, locked) = reader.take(ACCOUNT)  # fmt: skip
        account.open_value = _narrow(open_value)
        account.restricted, account.locked = bool(restricted), bool(locked)
        ledger.accounts[account.number] = account
    for _ in range(reader.number()):
        number, gateway, count = reader.take(SEEN)
        ledger.seen[number, gateway] = count
    for _ in range(reader.number()):
        number, asset, short, allowed, free, reserved = reader.take(BALANCE)
        _check(asset < len(ledger.held))
        balance = ledger.balance(number, asset)
        balance.short, balance.allowed = short, bool(allowed)
        ledger.move(balance, _narrow(free), _narrow(reserved))
    kept = reader.number()
    _check(kept == (min(book.trade_count, KEPT_TRADES) if book.has_accounts else 0))
    for _ in range(kept):
        number, price, buyer, seller, buyer_fee, seller_fee, listing, size, busted = reader.take(TRADE)
        ledger.trades[number] = PastTrade(listing, buyer, seller, price, size, buyer_fee, seller_fee)
        ledger.trades[number].busted = bool(busted)


def _restore_listing(reader: _Reader, book: BookKernel) -> None:
    values = reader.take(LISTING)
    ident, currency, phase, tick, lot, smallest, largest, high, low, collar = values[:10]
    _check(ident not in book.listings)
    book.define(ident, tick, lot, smallest, largest, high, low, collar, currency)
    listing = book.listings[ident]
    listing.phase, listing.wake_ns, listing.start_ns = phase, values[10], values[11]
    listing.last, listing.band_reference = values[12], values[13]
    listing.settings, listing.shown, listing.touched = list(values[14:25]), values[25:28], bool(values[28])
    bids, asks, waiting, _ = reader.take(COUNTS)
    for place in range(bids + asks + waiting):
        order = _restore_order(reader, book, listing)
        if place < bids + asks:
            _check((order.side == BUY) == (place < bids))
            book.add(order)
        else:
            book.add_waiting(order)
    listing.touched = bool(values[28])


def _restore_order(reader: _Reader, book: BookKernel, listing: Listing) -> BookOrder:
    order = BookOrder()
    (order.id, order.number, order.client, order.bound, order.stop, order.owner, order.left, order.filled, order.side,
     order.type, order.tif, order.policy, post_only, waits) = reader.take(ORDER)  # fmt: skip
    order.post_only, order.waits, order.where = bool(post_only), bool(waits), 0
    order.listing, order.account, order.cash, order.shares = listing, None, None, None
    _check((order.number, order.client) not in book.table and order.left > 0)
    if book.has_accounts:
        _check(order.number in book.ledger.accounts)
        order.account = book.ledger.accounts[order.number]
        order.cash = book.ledger.balance(order.number, listing.cash)
        order.shares = book.ledger.balance(order.number, listing.asset)
    return order


class _Reader:
    """Reads structures in turn."""

    def __init__(self, octets: bytes) -> None:
        self._octets, self._at = octets, 0

    def take(self, shape: Struct) -> tuple[Any, ...]:
        _check(self._at + shape.size <= len(self._octets))
        values = shape.unpack_from(self._octets, self._at)
        self._at += shape.size
        return values

    def number(self) -> int:
        return int(self.take(NUMBER)[0])

    def ended(self) -> bool:
        return self._at == len(self._octets)


def _check(holds: bool) -> None:
    if not holds:
        raise ValueError("the snapshot is damaged")


def _wide(amount: int) -> bytes:
    return amount.to_bytes(16, "little", signed=True)


def _narrow(octets: bytes) -> int:
    return int.from_bytes(octets, "little", signed=True)
