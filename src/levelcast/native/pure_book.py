"""The matching engine in Python: rules M1 to M14 and S1 to S6 of market.md. `_book.c` gives the same bytes, faster.

- One `BookKernel` has the instruments, orders and accounts of a floor. It reads no clock: `advance` gives it the time
  of the frame. Its output is a function of the calls, and `run` gives the same events for any division of the commands.
- `run` takes order commands (96 bytes each) and returns events (64 bytes each). `define` and `status` apply the
  records of instruments and phases. `advance` begins a frame, `finish` ends it.
- Without accounts (`accounts=False`) there is no ledger, limit or client order id rule: an order is named by the
  account and client order id of its command, and no account has to exist.

`pure_book_entry` admits orders, `pure_book_match` trades them, `pure_book_auction` has the auctions,
`pure_book_ledger` the balances and `pure_book_snapshot` the bytes of the state.
"""

from __future__ import annotations

from itertools import islice, zip_longest
from struct import Struct

from levelcast.native import pure_book_auction as auction
from levelcast.native import pure_book_entry as entry
from levelcast.native import pure_book_ledger as ledgers
from levelcast.native import pure_book_match as matching
from levelcast.native import pure_book_settings as settings
from levelcast.native import pure_book_snapshot as snapshots
from levelcast.native.book_codes import (
    ADD,
    AT_CLOSE,
    CANCEL,
    COMMAND,
    EVENT,
    FILL_OR_KILL,
    FIRST_RULES,
    MASS_CANCEL,
    NO_ACTION,
    NO_CHANGE,
    POST_ONLY,
    REPLACE,
    STOP,
    STOP_LIMIT,
    TILL_CANCEL,
    UNDEFINED,
    BookPhase,
    BookReason,
    EventKind,
    InstrumentSetting,
    MatchRule,
)
from levelcast.native.pure_book_entry import Command
from levelcast.native.pure_book_state import (
    IN_BOOK,
    IN_WAITING,
    NOWHERE,
    BookAccount,
    BookOrder,
    BookSide,
    Listing,
)

_END, _LEVEL, _ID = Struct("<Q"), Struct("<qQ"), Struct("<I")


class BookKernel:
    """The matching engine of one floor."""

    def __init__(self, accounts: bool = True, treasury: int = 0) -> None:
        self.has_accounts, self.treasury = accounts, treasury
        self.rules = FIRST_RULES
        self.now_ns = self.count = self.order_count = self.trade_count = 0
        self.stamp_ns = 0
        """Stamp of the current command."""
        self.listings: dict[int, Listing] = {}
        self.table: dict[tuple[int, int], BookOrder] = {}
        self.ledger = ledgers.Ledger()
        self._events: list[bytes] = []

    # Calls of a frame

    def define(
        self, instrument: int, tick: int, lot: int, smallest: int, largest: int, high: int, low: int, collar: int,
        currency: int,
    ) -> None:  # fmt: skip
        """Define an instrument, or change its limits; the currency stays."""
        if (
            max(instrument, currency) > 0xFFFFFFFF
            or min(instrument, tick, lot) < 1
            or min(smallest, largest, high, low, currency) < 0
            or collar < -1
        ):
            raise ValueError("a definition needs a positive id, tick and lot, and no negative limit")
        listing = self.listings.get(instrument)
        if listing is None:
            listing = self.listings[instrument] = Listing(instrument)
            listing.currency = currency
            listing.asset = self.ledger.asset(instrument)
            listing.cash = self.ledger.asset(ledgers.CURRENCY | currency)
        listing.tick, listing.lot, listing.smallest, listing.largest = tick, lot, smallest, largest
        listing.high, listing.low, listing.collar = high, low, collar

    def status(self, instrument: int, action: int) -> bytes:
        """Change the phase of an instrument, or of all (0); return events."""
        if not instrument:
            for listing in self.listings.values():
                self.set_phase(listing, action)
        elif (found := self.listings.get(instrument)) is not None:
            self.set_phase(found, action)
        return self._taken()

    def advance(self, now_ns: int) -> bytes:
        """Begin a frame: set the time and run what was due by then; return events."""
        self.now_ns = max(self.now_ns, now_ns)
        for listing in self.listings.values():
            if not listing.wake_ns or listing.wake_ns > self.now_ns:
                continue
            if listing.phase == BookPhase.TRADING:
                auction.cross(self, listing)
                self._set_wake(listing)
            else:
                self.set_phase(listing, BookPhase.TRADING)
        return self._taken()

    def run(self, commands: bytes | bytearray | memoryview) -> bytes:
        """Apply commands; return events."""
        octets = memoryview(commands).cast("B")
        if len(octets) % COMMAND.size:
            raise ValueError(f"commands have {COMMAND.size} bytes each")
        for values in COMMAND.iter_unpack(octets):
            self.count += 1
            self._apply(Command._make(values))
        return self._taken()

    def finish(self) -> bytes:
        """End a frame: tell changed indicative prices, check that every asset is conserved; return events."""
        for listing in self.listings.values():
            if listing.touched:
                listing.touched = False
                self._indicate(listing)
        if not self.ledger.conserved():
            raise RuntimeError("the ledger does not conserve an asset")
        return self._taken()

    def trace(self, commands: bytes | bytearray | memoryview, levels: int) -> tuple[bytes, bytes, bytes]:
        """Apply commands one by one; return events, the number of events after each, and `top` after each."""
        octets = memoryview(commands).cast("B")
        if len(octets) % COMMAND.size:
            raise ValueError(f"commands have {COMMAND.size} bytes each")
        events, ends, tops, size = [], [], [], 0
        for at in range(0, len(octets), COMMAND.size):
            events.append(self.run(octets[at : at + COMMAND.size]))
            size += len(events[-1]) // EVENT.size
            ends.append(_END.pack(size))
            tops.append(self.top(int.from_bytes(octets[at + 4 : at + 8], "little"), levels))
        return b"".join(events), b"".join(ends), b"".join(tops)

    # State

    def top(self, instrument: int, levels: int) -> bytes:
        """Return ask price, ask size, bid price, bid size of the best levels; no level: undefined price, size 0."""
        listing = self.listings.get(instrument)
        asks = [] if listing is None else _levels(listing.asks, levels)
        bids = [] if listing is None else _levels(listing.bids, levels)
        rows = zip_longest(range(levels), asks, bids, fillvalue=(UNDEFINED, 0))
        return b"".join(_LEVEL.pack(*ask) + _LEVEL.pack(*bid) for _, ask, bid in rows)

    @property
    def live(self) -> int:
        """Orders that are live or waiting."""
        return len(self.table)

    def instruments(self) -> bytes:
        """Return the ids of the instruments in the order of their definition, 4 bytes each."""
        return b"".join(map(_ID.pack, self.listings))

    def orders(self, instrument: int) -> bytes:
        """Return the orders of an instrument in book order, as `pure_book_snapshot.ORDER`."""
        listing = self.listings.get(instrument)
        return b"" if listing is None else b"".join(map(snapshots.packed_order, listing.orders()))

    def front(self, instrument: int, side: int, count: int) -> bytes:
        """Return the first orders of a side by price, then place."""
        listing = self.listings.get(instrument)
        ranked = [] if listing is None else listing.side(side).ranked()
        return b"".join(map(snapshots.packed_order, islice(ranked, count)))

    def balances(self) -> bytes:
        """Return the balances, as `pure_book_snapshot.BALANCE`."""
        return b"".join(map(snapshots.packed_balance, self.ledger.balances.values()))

    def snapshot(self) -> bytes:
        return snapshots.snapshot(self)

    @classmethod
    def restore(cls, octets: bytes) -> BookKernel:
        return snapshots.restore(octets, cls)

    # Commands

    def _apply(self, command: Command) -> None:
        self.stamp_ns = command.stamp
        if command.action == NO_ACTION:
            settings.apply(self, command)
            return
        if command.action not in (ADD, CANCEL, REPLACE, MASS_CANCEL):
            self.refuse(command, BookReason.ACTION)
            return
        account = None
        if self.has_accounts:
            account = self.ledger.accounts.get(command.account)
            if account is None or command.account == ledgers.FLOOR_ACCOUNT:
                self.refuse(command, BookReason.UNKNOWN_ACCOUNT)
                return
            if (command.client or command.action in (ADD, REPLACE)) and (
                reason := entry.check_id(self, account, command.client)
            ):
                self.refuse(command, reason)
                return
        self._apply_order(command, account)

    def _apply_order(self, command: Command, account: BookAccount | None) -> None:
        if command.action == MASS_CANCEL:
            self._mass_cancel(command)
            return
        if command.action == CANCEL:
            self._cancel(command)
            return
        if account is not None and (reason := entry.check_account(account, command.stamp)):
            self.refuse(command, reason)
        elif command.action == ADD:
            self._new(command, account)
        else:
            self._replace(command)

    def _new(self, command: Command, account: BookAccount | None) -> None:
        listing = self.listings.get(command.instrument)
        if listing is None:
            self.refuse(command, BookReason.UNKNOWN_INSTRUMENT)
            return
        bound, reason = entry.check_new(self, listing, account, command)
        if reason:
            self.refuse(command, reason)
            return
        order = self._order(command, listing, account, bound)
        if order.tif == FILL_OR_KILL and not order.waits and not matching.can_fill(order):
            self.refuse(command, BookReason.FILL_OR_KILL)
            return
        self.order_count = order.id
        if account is not None:
            order.cash = self.ledger.balance(account.number, listing.cash)
            order.shares = self.ledger.balance(account.number, listing.asset)
            ledgers.hold(self.ledger, order, order.left)
        self.tell(EventKind.WAITING if order.waits else EventKind.ACCEPTED, order, price=bound, size=order.left)
        matching.place(self, order)
        matching.run_stops(self, listing)

    def _order(self, command: Command, listing: Listing, account: BookAccount | None, bound: int) -> BookOrder:
        order = BookOrder()
        order.id, order.number, order.client = self.order_count + 1, command.account, command.client
        order.listing, order.account, order.cash, order.shares = listing, account, None, None
        order.owner = account.owner if account is not None else command.account
        order.side, order.type, order.tif, order.policy = command.side, command.type, command.tif, command.policy
        order.post_only = command.instruction == POST_ONLY
        order.bound, order.left, order.filled, order.where = bound, command.size, 0, NOWHERE
        stops = command.type in (STOP, STOP_LIMIT)
        order.stop = command.stop if stops else 0
        order.waits = stops or (command.tif == AT_CLOSE and listing.phase != BookPhase.PRE_CLOSE)
        return order

    def _replace(self, command: Command) -> None:
        order = self.table.get((command.account, command.original))
        if order is None:
            self.refuse(command, BookReason.UNKNOWN_ORDER)
            return
        if command.instrument not in (0, order.listing.id):
            self.refuse(command, BookReason.UNKNOWN_INSTRUMENT)
            return
        client = command.client or order.client
        if not self.has_accounts and client != order.client and (command.account, client) in self.table:
            self.refuse(command, BookReason.DUPLICATE_ID)
            return
        if ends(order, command.size):
            self.reduce(order, order.left, BookReason.REDUCED)
            return
        bound, stop, reason = entry.check_replace(self, order, command)
        if reason:
            self.refuse(command, reason)
            return
        self._change(order, client, bound, stop, entry.left_after(order, command.size))

    def _change(self, order: BookOrder, client: int, bound: int, stop: int, left: int) -> None:
        """Replace an order: it keeps its place if its price stays and it does not grow (M5)."""
        keeps = keeps_place(order, bound, stop, left)
        waits, listing = order.waits, order.listing
        if not keeps:
            self.remove(order)
        ledgers.release(self.ledger, order, order.left)
        order.bound, order.stop, order.left = bound, stop, left
        ledgers.hold(self.ledger, order, left)
        if keeps:
            del self.table[order.number, order.client]
            self.table[order.number, client] = order
            self.touch(listing)
        order.client = client
        self.tell(EventKind.REPLACED, order, price=bound, size=left, flags=int(keeps))
        if not keeps:
            order.waits = waits
            matching.place(self, order)
            matching.run_stops(self, listing)

    def _cancel(self, command: Command) -> None:
        order = self.table.get((command.account, command.original))
        if order is None:
            self.refuse(command, BookReason.UNKNOWN_ORDER)
        else:
            self.reduce(order, order.left, BookReason.BY_OWNER)

    def _mass_cancel(self, command: Command) -> None:
        if command.instrument and command.instrument not in self.listings:
            self.refuse(command, BookReason.UNKNOWN_INSTRUMENT)
            return
        gone = 0
        for listing in self.listings.values():
            if command.instrument in (0, listing.id):
                for order in [order for order in listing.orders() if order.number == command.account]:
                    self.reduce(order, order.left, BookReason.BY_MASS_CANCEL)
                    gone += 1
        self.tell_command(EventKind.MASS_CANCELLED, command, size=gone)

    # Orders in their queues

    def add(self, order: BookOrder) -> None:
        """Put an order into the book, at the end of its queue."""
        order.listing.side(order.side).add(order)
        self._register(order, IN_BOOK)

    def add_waiting(self, order: BookOrder) -> None:
        order.listing.waiting[order.id] = order
        self._register(order, IN_WAITING)

    def _register(self, order: BookOrder, where: int) -> None:
        order.where = where
        self.table[order.number, order.client] = order
        if order.account is not None:
            order.account.live += 1
        self.touch(order.listing)

    def remove(self, order: BookOrder) -> None:
        """Take an order out of its queue."""
        if order.where == IN_BOOK:
            order.listing.side(order.side).remove(order)
        else:
            del order.listing.waiting[order.id]
        order.where = NOWHERE
        del self.table[order.number, order.client]
        if order.account is not None:
            order.account.live -= 1
        self.touch(order.listing)

    def drop(self, order: BookOrder) -> None:
        """Take an order out of its queue, if it is in one."""
        if order.where != NOWHERE:
            self.remove(order)

    def reduce(self, order: BookOrder, size: int, reason: BookReason, kind: EventKind = EventKind.CANCELLED) -> None:
        """Cancel a part of an order, or all of it; return what it had reserved in the same step (S2)."""
        ledgers.release(self.ledger, order, size)
        order.left -= size
        self.tell(kind, order, price=order.bound, size=size, reason=reason)
        if order.left:
            self.touch(order.listing)
        else:
            self.drop(order)

    # Phases

    def set_phase(self, listing: Listing, action: int) -> None:
        """Apply a phase (M9)."""
        if action in NO_CHANGE:
            return
        was = listing.phase
        listing.phase, listing.wake_ns, listing.shown = action, 0, (0, 0, 0)
        self.tell_listing(EventKind.PHASE, listing, action)
        if action == BookPhase.PRE_CLOSE:
            matching.join_close(self, listing)
        elif action == BookPhase.CROSS:
            auction.cross(self, listing)
        elif action == BookPhase.TRADING:
            self._open(listing)
        elif action == BookPhase.CLOSE:
            self._expire(listing, BookReason.END_OF_DAY)
        elif action == BookPhase.UNAVAILABLE and was != BookPhase.UNAVAILABLE:
            self._expire(listing, BookReason.INSTRUMENT_ENDED)
        self.touch(listing)

    def _open(self, listing: Listing) -> None:
        rule = listing.settings[InstrumentSetting.MATCH_RULE]
        if rule in (MatchRule.CONTINUOUS, MatchRule.BATCH):
            auction.cross(self, listing)
            self._set_wake(listing)
            matching.run_stops(self, listing)
        listing.start_ns = self.now_ns

    def _set_wake(self, listing: Listing) -> None:
        interval, listing.wake_ns = listing.settings[InstrumentSetting.INTERVAL], 0
        if listing.settings[InstrumentSetting.MATCH_RULE] == MatchRule.BATCH and interval:
            listing.wake_ns = (self.now_ns // interval + 1) * interval

    def _expire(self, listing: Listing, reason: BookReason) -> None:
        for order in listing.orders():
            if reason == BookReason.INSTRUMENT_ENDED or expires(order):
                self.reduce(order, order.left, reason, EventKind.EXPIRED)

    def touch(self, listing: Listing) -> None:
        """Note that an indicative price may have changed."""
        if matching.gathers(listing) and not auction.is_sealed(listing):
            listing.touched = True

    def _indicate(self, listing: Listing) -> None:
        if not matching.gathers(listing):
            return
        found = auction.clearing(listing)
        if found != listing.shown:
            listing.shown = found
            self.tell_market(EventKind.INDICATIVE, listing, *found)

    # Events

    def _taken(self) -> bytes:
        events, self._events = b"".join(self._events), []
        return events

    def tell(
        self, kind: EventKind, order: BookOrder, *, price: int, size: int, flags: int = 0, trade: int = 0,
        reason: BookReason = BookReason.NONE,
    ) -> None:  # fmt: skip
        """Tell what happened to an order."""
        self._events.append(
            EVENT.pack(
                kind, reason, flags, order.side, order.listing.id, self.count, order.number, order.client, order.id,
                trade, price, size, order.left,
            )
        )  # fmt: skip

    def tell_command(
        self, kind: EventKind, command: Command, *, size: int = 0, reason: BookReason = BookReason.NONE
    ) -> None:
        """Tell what became of a command that is no order."""
        self._events.append(
            EVENT.pack(
                kind, reason, 0, command.side, command.instrument, self.count, command.account, command.client,
                command.order_id, command.original, command.price, size, 0,
            )
        )  # fmt: skip

    def refuse(self, command: Command, reason: BookReason) -> None:
        self.tell_command(EventKind.REJECTED, command, size=command.size, reason=reason)

    def tell_listing(self, kind: EventKind, listing: Listing, code: int) -> None:
        self._events.append(EVENT.pack(kind, 0, code & 255, ord("N"), listing.id, self.count, 0, 0, 0, 0, 0, 0, 0))

    def tell_market(self, kind: EventKind, listing: Listing, price: int, volume: int, surplus: int) -> None:
        """Tell a price of an auction: the volume is in the order id, the surplus in the trade id."""
        side = auction.surplus_side(surplus)
        self._events.append(
            EVENT.pack(kind, 0, 0, side, listing.id, self.count, 0, 0, volume, abs(surplus), price, 0, 0)
        )


def _levels(side: BookSide, levels: int) -> list[tuple[int, int]]:
    return [(price, sum(order.left for order in side.queues[price].values())) for price in side.prices()[:levels]]


def keeps_place(order: BookOrder, bound: int, stop: int, left: int) -> bool:
    return bound == order.bound and stop == order.stop and left <= order.left


def ends(order: BookOrder, size: int) -> bool:
    """Return whether a replacement's size, the filled part included, ends an order (M5)."""
    return size <= order.filled


def expires(order: BookOrder) -> bool:
    """Return whether an order ends with the day."""
    return order.tif != TILL_CANCEL
