"""State of the matching engine: orders, instruments with their queues, accounts, balances and past trades.

The queues are dictionaries by order id, which keep the order of insertion: the first entry is the oldest order.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from levelcast.native.book_codes import BUY, MARKET, UNDEFINED, BookPhase


class Balance:
    """Balance of an account in an asset (S1), and its limits for it."""

    __slots__ = ("account", "allowed", "asset", "free", "reserved", "short")

    def __init__(self, account: int, asset: int) -> None:
        self.account, self.asset = account, asset
        self.free = self.reserved = self.short = 0
        self.allowed = False


class BookAccount:
    """Limits of an account and the counters that they need (M8)."""

    __slots__ = ("largest_open", "largest_order", "live", "locked", "number", "open_value", "orders_per_second",
                 "owner", "restricted", "second", "used")  # fmt: skip

    def __init__(self, number: int) -> None:
        self.number = self.owner = number
        self.largest_order = self.largest_open = self.orders_per_second = 0
        self.restricted = self.locked = False
        self.open_value = self.second = self.used = self.live = 0


class BookOrder:
    """A live or waiting order."""

    __slots__ = ("account", "bound", "cash", "client", "filled", "id", "left", "listing", "number", "owner",
                 "policy", "post_only", "shares", "side", "stop", "tif", "type", "waits", "where")  # fmt: skip

    id: int
    client: int
    side: int
    type: int
    tif: int
    policy: int
    owner: int
    stop: int
    left: int
    filled: int
    post_only: bool
    number: int
    """Account number."""
    account: BookAccount | None
    cash: Balance | None
    shares: Balance | None
    listing: Listing
    waits: bool
    """A stop that has not been triggered, or an order for the close before its auction."""
    where: int
    """`NOWHERE`, `IN_BOOK` or `IN_WAITING`."""
    bound: int
    """The limit price, or the collar's price of a market order or stop."""

    @property
    def sign(self) -> int:
        return 1 if self.side == BUY else -1


Queue = dict[int, BookOrder]
NOWHERE, IN_BOOK, IN_WAITING = range(3)


class BookSide:
    """Orders to buy or to sell an instrument."""

    def __init__(self, side: int) -> None:
        self.side = side
        self.sign = 1 if side == BUY else -1
        self.market: Queue = {}
        """Market orders that wait for an auction."""
        self.queues: dict[int, Queue] = {}
        self._keys: list[int] = []
        """Prices times `sign`, ascending: the best is last."""

    def add(self, order: BookOrder) -> None:
        if order.type == MARKET:
            self.market[order.id] = order
            return
        if order.bound not in self.queues:
            self.queues[order.bound] = {}
            insort(self._keys, order.bound * self.sign)
        self.queues[order.bound][order.id] = order

    def remove(self, order: BookOrder) -> None:
        if order.type == MARKET:
            del self.market[order.id]
            return
        queue = self.queues[order.bound]
        del queue[order.id]
        if not queue:
            del self.queues[order.bound]
            del self._keys[bisect_left(self._keys, order.bound * self.sign)]

    def best(self) -> int | None:
        return self._keys[-1] * self.sign if self._keys else None

    def first(self) -> BookOrder | None:
        """Return the oldest order at the best price."""
        return next(iter(self.queues[self._keys[-1] * self.sign].values())) if self._keys else None

    def prices(self) -> list[int]:
        """Return the prices, best first."""
        return [key * self.sign for key in reversed(self._keys)]

    def ranked(self) -> Iterator[BookOrder]:
        """Yield the orders by price, then place."""
        for price in self.prices():
            yield from self.queues[price].values()

    def __iter__(self) -> Iterator[BookOrder]:
        yield from self.market.values()
        yield from self.ranked()


class Listing:
    """One instrument: its definition, settings, phase and orders."""

    def __init__(self, instrument_id: int) -> None:
        self.id = instrument_id
        self.tick = self.lot = self.smallest = 1
        self.largest = 2**32 - 2
        self.high, self.low, self.collar, self.currency = UNDEFINED, 0, -1, 0
        self.asset = self.cash = 0
        self.settings = [0] * 11
        self.phase = int(BookPhase.UNAVAILABLE)
        self.last = self.band_reference = self.wake_ns = self.start_ns = 0
        """Price of the last trade and of the last auction; time of the next cross; start of the Dutch clock."""
        self.shown = (0, 0, 0)
        """The last indicative price, volume and surplus."""
        self.touched = False
        self.bids, self.asks = BookSide(BUY), BookSide(ord("A"))
        self.waiting: Queue = {}
        """Stops, and orders for the close, in the order in which they were placed."""

    def side(self, side: int) -> BookSide:
        return self.bids if side == BUY else self.asks

    def other(self, side: int) -> BookSide:
        return self.asks if side == BUY else self.bids

    def orders(self) -> list[BookOrder]:
        """Return all orders in book order."""
        return [*self.bids, *self.asks, *self.waiting.values()]


class PastTrade:
    """A trade that a bust may reverse (S6)."""

    __slots__ = ("busted", "buyer", "buyer_fee", "listing", "price", "seller", "seller_fee", "size")

    def __init__(
        self, listing: int, buyer: int, seller: int, price: int, size: int, buyer_fee: int, seller_fee: int
    ) -> None:
        self.listing, self.buyer, self.seller, self.price, self.size = listing, buyer, seller, price, size
        self.buyer_fee, self.seller_fee = buyer_fee, seller_fee
        self.busted = False
