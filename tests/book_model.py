"""A slow model of the matching engine, written from the rules and independent of both engines.

There is one list of live orders and one of waiting ones. Each question is answered by looking at all of them: the best
order is the first after sorting, an auction tries every tick, and what is reserved is computed from the live orders
whenever a balance is needed. Events are tuples with the fields of `levelcast.native.book_codes.EVENT`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

UNDEF = 2**63 - 1
CALLS = (1, 2, 11)
ZERO_EVENT = {"side": 78, "account": 0, "client": 0, "order": 0, "trade": 0, "price": 0, "size": 0, "left": 0}


@dataclass(eq=False)
class ModelOrder:
    id: int
    account: int
    client: int
    owner: int
    instrument: int
    side: str
    type: str
    tif: str
    policy: str
    post_only: bool
    price: int
    stop: int
    left: int
    waiting: bool
    filled: int = 0
    place: int = 0


@dataclass
class ModelInstrument:
    id: int
    tick: int
    lot: int
    smallest: int
    largest: int
    high: int
    low: int
    collar: int
    currency: int
    phase: int = 15
    last: int = 0
    band_reference: int = 0
    wake: int = 0
    start: int = 0
    shown: tuple[int, int, int] = (0, 0, 0)
    touched: bool = False
    set: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def rule(self) -> str:
        return ("continuous", "batch", "sealed", "dutch")[self.set[2]]

    @property
    def fee(self) -> int:
        return max(self.set[4], self.set[5])

    @property
    def reference(self) -> int:
        return self.last or self.set[10]


@dataclass
class ModelAccount:
    owner: int
    limits: dict[Any, int] = field(default_factory=lambda: defaultdict(int))
    stamps: list[int] = field(default_factory=list)


class Refused(Exception):
    def __init__(self, reason: str) -> None:
        self.reason = reason


REASONS = {
    name: number
    for number, name in enumerate(
        [
            "none",
            "unknown-instrument",
            "unknown-account",
            "unknown-order",
            "duplicate",
            "locked",
            "rate",
            "not-allowed",
            "phase",
            "action",
            "side",
            "type",
            "tif",
            "policy",
            "instruction",
            "no-price",
            "price",
            "tick",
            "size",
            "lot",
            "sizes",
            "notional",
            "no-collar",
            "funds",
            "shares",
            "order-limit",
            "open-limit",
            "post-only",
            "fok",
            "not-treasury",
            "amount",
            "unknown-trade",
            "busted",
            "bust-lacks",
            "setting",
            "rules",
        ]
    )
} | {"owner": 40, "mass": 41, "immediate": 42, "self": 43, "reduced": 44, "cross": 45, "band": 46, "day": 47, "end": 48}


class Model:
    """The engine of a floor, slowly."""

    stamp = 0

    def __init__(self, accounts: bool = True) -> None:
        self.has_accounts = accounts
        self.live: list[ModelOrder] = []
        self.instruments: dict[int, ModelInstrument] = {}
        self.accounts: dict[int, ModelAccount] = {}
        self.total: dict[tuple[int, Any], int] = defaultdict(int)
        """What an account has of an asset, free or reserved: an instrument's number, or its currency as text."""
        self.ids: dict[tuple[int, int], int] = {}
        self.trades: list[dict[str, Any]] = []
        self.now = self.count = self.orders = self.places = 0
        self.told: list[tuple[int, ...]] = []

    # Events

    def event(self, kind: str, instrument: int, reason: str = "none", flags: int = 0, **fields: int) -> None:
        f = ZERO_EVENT | fields
        self.told.append(
            (ord(kind), REASONS[reason], flags, f["side"], instrument, self.count, f["account"], f["client"],
             f["order"], f["trade"], f["price"], f["size"], f["left"])
        )  # fmt: skip

    def of(self, kind: str, o: ModelOrder, price: int, size: int, reason: str = "none", **more: int) -> None:
        self.event(kind, o.instrument, reason, more.pop("flags", 0), side=ord(o.side), account=o.account,
                   client=o.client, order=o.id, price=price, size=size, left=o.left, **more)  # fmt: skip

    def taken(self) -> list[tuple[int, ...]]:
        told, self.told = self.told, []
        return told

    # Questions

    def ranked(self, instrument: int, side: str) -> list[ModelOrder]:
        """Return a side of the book: market orders by place, then by price, then by place."""
        sign = -1 if side == "B" else 1
        mine = [o for o in self.live if o.instrument == instrument and o.side == side and not o.waiting]
        return sorted(mine, key=lambda o: (o.type != "1", 0 if o.type == "1" else sign * o.price, o.place))

    def waiting(self, instrument: int) -> list[ModelOrder]:
        return sorted((o for o in self.live if o.instrument == instrument and o.waiting), key=lambda o: o.place)

    def all_orders(self, instrument: int) -> list[ModelOrder]:
        return self.ranked(instrument, "B") + self.ranked(instrument, "A") + self.waiting(instrument)

    def needs(self, i: ModelInstrument, side: str, price: int, size: int) -> dict[Any, int]:
        """Return what an order of this size reserves, by asset."""
        if side == "B":
            return {str(i.currency): (price + i.fee) * size}
        return {str(i.currency): i.fee * size, i.id: size}

    def reserved(self, account: int, asset: Any, without: ModelOrder | None = None) -> int:
        return sum(
            self.needs(self.instruments[o.instrument], o.side, o.price, o.left).get(asset, 0)
            for o in self.live
            if o.account == account and o is not without
        )

    def free(self, account: int, asset: Any, without: ModelOrder | None = None) -> int:
        return self.total[account, asset] - self.reserved(account, asset, without)

    def short(self, account: int, instrument: int) -> int:
        return self.accounts[account].limits[7, instrument] if account in self.accounts else 0

    def gathers(self, i: ModelInstrument) -> bool:
        return i.phase in CALLS or (i.phase == 7 and i.rule == "batch")

    def trading(self, i: ModelInstrument) -> bool:
        return i.phase == 7 and i.rule == "continuous"

    def touch(self, i: ModelInstrument) -> None:
        i.touched = i.touched or (self.gathers(i) and i.rule != "sealed")

    # Calls

    def define(self, *values: Any) -> None:
        known = self.instruments.get(values[0])
        if known is None:
            self.instruments[values[0]] = ModelInstrument(*values)
        else:
            (known.tick, known.lot, known.smallest, known.largest, known.high, known.low, known.collar) = values[1:8]

    def status(self, instrument: int, action: int) -> None:
        for i in self.instruments.values():
            if instrument in (0, i.id):
                self.phase(i, action)

    def advance(self, now: int) -> None:
        self.now = max(self.now, now)
        for i in self.instruments.values():
            if i.wake and i.wake <= self.now:
                if i.phase == 7:
                    self.cross(i)
                    self.next_batch(i)
                else:
                    self.phase(i, 7)

    def finish(self) -> None:
        for i in self.instruments.values():
            if i.touched and self.gathers(i) and (found := self.clearing(i)) != i.shown:
                i.shown = found
                self.market("I", i, *found)
            i.touched = False

    def market(self, kind: str, i: ModelInstrument, price: int, volume: int, surplus: int) -> None:
        side = "B" if surplus > 0 else "A" if surplus < 0 else "N"
        self.event(kind, i.id, side=ord(side), order=volume, trade=abs(surplus), price=price)

    def phase(self, i: ModelInstrument, action: int) -> None:
        if action in (0, 14):
            return
        before, i.phase, i.wake, i.shown = i.phase, action, 0, (0, 0, 0)
        self.event("P", i.id, flags=action & 255)
        if action == 11:
            for o in self.waiting(i.id):
                if o.tif == "7":
                    self.of("S", o, o.price, o.left)
                    self.rest(o)
        if action == 4 or (action == 7 and i.rule in ("continuous", "batch")):
            self.cross(i)
        if action == 7:
            if i.rule in ("continuous", "batch"):
                self.next_batch(i)
                self.stops(i)
            i.start = self.now
        if action == 12 or (action == 15 and before != 15):
            for o in self.all_orders(i.id):
                if action == 15 or o.tif != "1":
                    self.cancel(o, "day" if action == 12 else "end", kind="E")
        self.touch(i)

    def next_batch(self, i: ModelInstrument) -> None:
        if i.rule == "batch" and i.set[3]:
            i.wake = (self.now // i.set[3] + 1) * i.set[3]

    # Commands

    def command(self, c: dict[str, Any]) -> None:
        self.count += 1
        try:
            self.apply(c)
        except Refused as refused:
            self.answer("R", c, c["size"], refused.reason)

    def answer(self, kind: str, c: dict[str, Any], size: int = 0, reason: str = "none") -> None:
        self.event(
            kind, c["instrument"], reason, side=ord(c["side"]) if c["side"] else 0, account=c["account"],
            client=c["client"], order=c["order_id"], trade=c["original"], price=c["price"], size=size,
        )  # fmt: skip

    def apply(self, c: dict[str, Any]) -> None:
        action = c["action"]
        if action == "N":
            self.treasury(c)
            return
        if action not in list("ACMR"):
            raise Refused("action")
        if self.has_accounts:
            if c["account"] not in self.accounts:
                raise Refused("unknown-account")
            if action in "AM" or c["client"]:
                self.rising(c)
        if action == "R":
            self.mass_cancel(c)
        elif action == "C":
            self.cancel(self.named(c), "owner")
        else:
            if self.has_accounts:
                self.allowed_now(c)
            if action == "A":
                self.new(c)
            else:
                self.replace(c)

    def named(self, c: dict[str, Any]) -> ModelOrder:
        for o in self.live:
            if (o.account, o.client) == (c["account"], c["original"]):
                return o
        raise Refused("unknown-order")

    def rising(self, c: dict[str, Any]) -> None:
        gateway, count = divmod(c["client"], 2**48)
        if count <= self.ids.get((c["account"], gateway), 0):
            raise Refused("duplicate")
        self.ids[c["account"], gateway] = count

    def allowed_now(self, c: dict[str, Any]) -> None:
        account = self.accounts[c["account"]]
        if account.limits[8]:
            raise Refused("locked")
        if account.limits[4]:
            second = c["stamp"] // 10**9
            if account.stamps and account.stamps[-1] != second:
                account.stamps.clear()
            account.stamps.append(second)
            if len(account.stamps) > account.limits[4]:
                raise Refused("rate")

    def mass_cancel(self, c: dict[str, Any]) -> None:
        if c["instrument"] and c["instrument"] not in self.instruments:
            raise Refused("unknown-instrument")
        gone = 0
        for i in self.instruments.values():
            for o in self.all_orders(i.id):
                if o.account == c["account"] and c["instrument"] in (0, i.id):
                    self.cancel(o, "mass")
                    gone += 1
        self.answer("Q", c, gone)

    # Admission

    def check_codes(self, i: ModelInstrument, c: dict[str, Any]) -> None:
        day = c["tif"] in ("0", "1")
        stop = c["type"] in ("3", "4")
        tests = [
            (not c["reserved"] and c["exec"] in ("", "6"), "instruction"),
            (c["side"] in ("A", "B"), "side"),
            (c["type"] in ("1", "2", "3", "4"), "type"),
            (i.rule == "continuous" or c["type"] == "2" or (c["type"] == "1" and i.rule == "batch"), "type"),
            (c["tif"] in ("0", "1", "2", "3", "4", "7"), "tif"),
            (not (stop and c["tif"] in ("2", "7")), "tif"),
            (day or i.rule == "continuous", "tif"),
            (c["exec"] == "" or (day and c["type"] == "2"), "instruction"),
            (c["policy"] in ("A", "N", "O", "B", "D"), "policy"),
            (self.takes_orders(i), "phase"),
            (c["tif"] != "2" or i.phase in (1, 2), "phase"),
            (c["tif"] not in ("3", "4") or stop or i.phase == 7, "phase"),
        ]
        for holds, reason in tests:
            if not holds:
                raise Refused(reason)

    def takes_orders(self, i: ModelInstrument) -> bool:
        return i.phase in CALLS or (i.phase == 7 and i.rule != "sealed")

    def check_price(self, i: ModelInstrument, price: int, limits: bool = True) -> None:
        if price == UNDEF:
            raise Refused("no-price")
        if not 0 < price <= 2**62 or (limits and not i.low <= price <= i.high):
            raise Refused("price")
        if price % i.tick:
            raise Refused("tick")

    def worst_price(self, i: ModelInstrument, side: str, type_: str, price: int, stop: int) -> int:
        if type_ in "34":
            self.check_price(i, stop, limits=False)
        if type_ in "24":
            self.check_price(i, price)
            return price
        others = self.ranked(i.id, "A" if side == "B" else "B")
        near = stop if type_ == "3" else i.reference or next((o.price for o in others if o.type != "1"), 0)
        if i.collar >= 0 and not near:
            raise Refused("no-collar")
        if side == "B":
            worst = i.high if i.collar < 0 else min(i.high, near + i.collar)
            worst = 0 if worst > 2**62 else worst - worst % i.tick
        else:
            worst = i.low if i.collar < 0 else max(i.low, near - i.collar, 1)
            worst += -worst % i.tick
        if worst <= 0:
            raise Refused("no-collar")
        return worst

    def check_size(self, i: ModelInstrument, size: int) -> None:
        if size in (0, 2**32 - 1):
            raise Refused("size")
        if size % i.lot:
            raise Refused("lot")
        if not i.smallest <= size <= i.largest:
            raise Refused("sizes")

    def check_account(
        self, i: ModelInstrument, number: int, side: str, price: int, size: int, left: int, old: ModelOrder | None
    ) -> None:
        """Check limits and funds for an order, or for one that takes the place of `old`."""
        account = self.accounts[number]
        if account.limits[5] and not account.limits[6, i.id]:
            raise Refused("not-allowed")
        if account.limits[2] and size > account.limits[2]:
            raise Refused("order-limit")
        opened = sum(o.price * o.left for o in self.live if o.account == number and o is not old) + price * left
        grows = old is None or price * left > old.price * old.left
        if account.limits[3] and grows and opened > account.limits[3]:
            raise Refused("open-limit")
        money, needs = str(i.currency), self.needs(i, side, price, left)
        had = self.needs(i, side, old.price, old.left) if old else {}
        if needs[money] > had.get(money, 0) and needs[money] > self.free(number, money, old):
            raise Refused("funds")
        if side == "A" and left > had.get(i.id, 0) and left > self.free(number, i.id, old) + self.short(number, i.id):
            raise Refused("shares")

    def check_post_only(self, i: ModelInstrument, side: str, price: int) -> None:
        others = [o.price for o in self.ranked(i.id, "A" if side == "B" else "B") if o.type != "1"]
        if self.trading(i) and others and (price >= min(others) if side == "B" else price <= max(others)):
            raise Refused("post-only")

    def new(self, c: dict[str, Any]) -> None:
        i = self.instruments.get(c["instrument"])
        if i is None:
            raise Refused("unknown-instrument")
        self.check_codes(i, c)
        price = self.worst_price(i, c["side"], c["type"], c["price"], c["stop"])
        self.check_size(i, c["size"])
        if price * c["size"] >= 2**63:
            raise Refused("notional")
        if self.has_accounts:
            self.check_account(i, c["account"], c["side"], price, c["size"], c["size"], None)
        elif any((o.account, o.client) == (c["account"], c["client"]) for o in self.live):
            raise Refused("duplicate")
        if c["exec"] == "6":
            self.check_post_only(i, c["side"], price)
        stop = c["type"] in "34"
        owner = self.accounts[c["account"]].owner if self.has_accounts else c["account"]
        o = ModelOrder(
            self.orders + 1, c["account"], c["client"], owner, i.id, c["side"], c["type"], c["tif"], c["policy"],
            c["exec"] == "6", price, c["stop"] if stop else 0, c["size"], stop or (c["tif"] == "7" and i.phase != 11),
        )  # fmt: skip
        if o.tif == "4" and not o.waiting and not self.can_fill(i, o):
            raise Refused("fok")
        self.orders += 1
        self.live.append(o)
        self.of("W" if o.waiting else "A", o, price, o.left)
        self.enter(i, o)
        self.stops(i)

    def replace(self, c: dict[str, Any]) -> None:
        o = self.named(c)
        i = self.instruments[o.instrument]
        if c["instrument"] not in (0, i.id):
            raise Refused("unknown-instrument")
        client = c["client"] or o.client
        if not self.has_accounts and any(
            x.account == o.account and x.client == client and x is not o for x in self.live
        ):
            raise Refused("duplicate")
        if c["size"] <= o.filled:
            self.cancel(o, "reduced")
            return
        if not self.takes_orders(i):
            raise Refused("phase")
        price, stop = o.price, o.stop if c["stop"] == UNDEF else c["stop"]
        if o.type != "1":
            price = self.worst_price(i, o.side, o.type if o.waiting else "2", c["price"], stop)
        self.check_size(i, c["size"])
        if price * c["size"] >= 2**63:
            raise Refused("notional")
        left = c["size"] - o.filled
        if self.has_accounts:
            self.check_account(i, o.account, o.side, price, c["size"], left, o)
        if o.post_only:
            self.check_post_only(i, o.side, price)
        keeps = price == o.price and stop == o.stop and left <= o.left
        self.touch(i)
        o.price, o.stop, o.left, o.client = price, stop, left, client
        self.of("M", o, price, left, flags=int(keeps))
        if not keeps:
            self.enter(i, o)
            self.stops(i)

    # Trading

    def rest(self, o: ModelOrder) -> None:
        """Put an order at the end of its queue."""
        o.waiting = False
        self.places += 1
        o.place = self.places
        self.touch(self.instruments[o.instrument])

    def enter(self, i: ModelInstrument, o: ModelOrder) -> None:
        """Let an order wait, trade or rest."""
        if o.waiting:
            self.rest(o)
            o.waiting = True
        elif self.trading(i):
            paused = self.match(i, o)
            if o.left and o.type in "24" and o.tif not in ("3", "4"):
                self.rest(o)
            elif o.left:
                self.cancel(o, "band" if paused else "immediate")
        elif i.phase == 7 and i.rule == "dutch" and o.side == "B":
            self.dutch(i, o)
            if o.left:
                self.cancel(o, "immediate")
        else:
            self.rest(o)

    def opposite(self, i: ModelInstrument, o: ModelOrder) -> list[ModelOrder]:
        """Return the orders that an order may meet, best first."""
        others = [x for x in self.ranked(i.id, "A" if o.side == "B" else "B") if x.type != "1"]
        return [x for x in others if (x.price <= o.price if o.side == "B" else x.price >= o.price)]

    def price(self, i: ModelInstrument, taker: ModelOrder, maker: ModelOrder) -> int:
        rule = ("resting", "buyer", "seller", "midpoint")[i.set[1]]
        buyer, seller = (taker, maker) if taker.side == "B" else (maker, taker)
        if rule == "resting" or taker.type in "13":
            return maker.price
        if rule in ("buyer", "seller"):
            return buyer.price if rule == "buyer" else seller.price
        middle = [p for p in range(seller.price, buyer.price + 1) if p % i.tick == 0 or p == maker.price]
        double = buyer.price + seller.price
        if maker is seller:
            return max(p for p in middle if 2 * p <= double)
        return min(p for p in middle if 2 * p >= double)

    def in_band(self, i: ModelInstrument, price: int) -> bool:
        return not i.set[6] or not i.band_reference or abs(price - i.band_reference) <= i.set[6]

    def apart(self, a: ModelOrder, b: ModelOrder, newer: ModelOrder | None = None) -> bool:
        """Whether two orders of one owner are kept apart by the policy of the newer one."""
        return a.owner == b.owner and (newer or max(a, b, key=lambda o: o.id)).policy != "A"

    def keep_apart(self, newer: ModelOrder, older: ModelOrder) -> None:
        if newer.policy == "D":
            overlap = min(newer.left, older.left)
            self.cancel(older, "self", overlap)
            self.cancel(newer, "self", overlap)
        if newer.policy in "OB":
            self.cancel(older, "self")
        if newer.policy in "NB":
            self.cancel(newer, "self")

    def match(self, i: ModelInstrument, taker: ModelOrder) -> bool:
        """Trade an order; return whether the price band stopped it."""
        while taker.left and (others := [x for x in self.opposite(i, taker) if x is not taker]):
            maker = others[0]
            if self.apart(taker, maker, taker):
                self.keep_apart(taker, maker)
            elif self.in_band(i, price := self.price(i, taker, maker)):
                self.trade(i, taker, maker, price, min(taker.left, maker.left))
            else:
                self.phase(i, 2)
                i.wake = self.now + i.set[7]
                return True
        return False

    def can_fill(self, i: ModelInstrument, taker: ModelOrder) -> bool:
        found = 0
        for maker in self.opposite(i, taker):
            if self.apart(taker, maker, taker):
                if taker.policy == "O":
                    continue
                break
            if not self.in_band(i, self.price(i, taker, maker)):
                break
            found += maker.left
            if found >= taker.left:
                break
        return found >= taker.left

    def trade(
        self, i: ModelInstrument, one: ModelOrder, two: ModelOrder, price: int, size: int, auction: bool = False
    ) -> None:
        buyer, seller = (one, two) if one.side == "B" else (two, one)
        fees = {o.side: i.set[5] if o is one and not auction else i.set[4] for o in (one, two)}
        for o, kind in ((one, "T"), (two, "F")):
            o.left -= size
            o.filled += size
            self.of(kind, o, price, size, flags=2 if auction else 0, trade=len(self.trades) + 1)
        record = {"i": i, "buyer": buyer.account, "seller": seller.account, "price": price, "size": size, "fees": fees,
                  "busted": False}  # fmt: skip
        self.trades.append(record)
        self.pay(record, 1)
        i.last = price
        i.band_reference = i.band_reference or price
        self.live = [o for o in self.live if o.left]
        self.touch(i)

    def pay(self, t: dict[str, Any], sign: int) -> None:
        i, size, money = t["i"], t["size"] * sign, str(t["i"].currency)
        self.total[t["buyer"], money] -= (t["price"] + t["fees"]["B"]) * size
        self.total[t["seller"], money] += (t["price"] - t["fees"]["A"]) * size
        self.total[0, money] += (t["fees"]["A"] + t["fees"]["B"]) * size
        self.total[t["buyer"], i.id] += size
        self.total[t["seller"], i.id] -= size

    def cancel(self, o: ModelOrder, reason: str, size: int | None = None, kind: str = "C") -> None:
        size = o.left if size is None else size
        o.left -= size
        self.of(kind, o, o.price, size, reason)
        self.live = [x for x in self.live if x.left]
        self.touch(self.instruments[o.instrument])

    def stops(self, i: ModelInstrument) -> None:
        queue: list[ModelOrder] = []
        while True:
            if self.trading(i) and i.last:
                for o in self.waiting(i.id):
                    hit = i.last >= o.stop if o.side == "B" else i.last <= o.stop
                    if o.type in "34" and hit and o not in queue:
                        queue.append(o)
            if not queue:
                return
            o = queue.pop(0)
            o.waiting = False
            self.of("S", o, o.price, o.left)
            if not self.trading(i):
                if o.type == "4" and o.tif not in ("3", "4"):
                    self.rest(o)
                else:
                    self.cancel(o, "band")
            elif o.tif == "4" and not self.can_fill(i, o):
                self.cancel(o, "fok")
            else:
                self.live.remove(o)
                self.live.append(o)
                self.enter(i, o)

    # Auctions

    def clearing(self, i: ModelInstrument) -> tuple[int, int, int]:
        """Try every tick between the lowest and the highest price (M10)."""
        buys, sells = self.ranked(i.id, "B"), self.ranked(i.id, "A")
        prices = [o.price for o in buys + sells]
        found = []
        for price in range(min(prices), max(prices) + 1, i.tick) if buys and sells else ():
            demand = sum(o.left for o in buys if o.price >= price)
            supply = sum(o.left for o in sells if o.price <= price)
            found.append((price, min(demand, supply), demand - supply))
        volume = max((each[1] for each in found), default=0)
        if not volume:
            return 0, 0, 0
        found = [each for each in found if each[1] == volume]
        least = min(abs(each[2]) for each in found)
        found = [each for each in found if abs(each[2]) == least]
        if all(each[2] < 0 for each in found):
            return found[0]
        if all(each[2] > 0 for each in found) or not i.reference:
            return found[-1]
        return sorted(found, key=lambda each: (abs(each[0] - i.reference), -each[0]))[0]

    def cross(self, i: ModelInstrument) -> None:
        if i.rule == "sealed":
            self.sealed(i)
            return
        price, volume, surplus = self.clearing(i)
        while volume and self.cancel_own(i, price):
            price, volume, surplus = self.clearing(i)
        if volume:
            self.market("O", i, price, volume, surplus)
            while True:
                buys, sells = self.able(i, price)
                if not buys or not sells:
                    break
                self.trade(i, buys[0], sells[0], price, min(buys[0].left, sells[0].left), auction=True)
            i.last = i.band_reference = price
        for o in self.ranked(i.id, "B") + self.ranked(i.id, "A"):
            if o.tif in ("2", "7") or o.type == "1":
                self.cancel(o, "cross")

    def able(self, i: ModelInstrument, price: int) -> tuple[list[ModelOrder], list[ModelOrder]]:
        buys = [o for o in self.ranked(i.id, "B") if o.price >= price]
        return buys, [o for o in self.ranked(i.id, "A") if o.price <= price]

    def cancel_own(self, i: ModelInstrument, price: int) -> bool:
        """Find unit by unit who would trade with whom; cancel what meets its own owner."""
        units = [[(o, n) for o in side for n in range(o.left)] for side in self.able(i, price)]
        found = False
        while units[0] and units[1]:
            one, two = units[0][0][0], units[1][0][0]
            if not self.apart(one, two):
                del units[0][0], units[1][0]
                continue
            found = True
            older, newer = sorted((one, two), key=lambda o: o.id)
            left = {o.id: sum(unit[0] is o for side in units for unit in side) for o in (one, two)}
            gone = {
                "D": [(older, min(left.values())), (newer, min(left.values()))], "O": [(older, left[older.id])],
                "N": [(newer, left[newer.id])], "B": [(older, left[older.id]), (newer, left[newer.id])],
            }[newer.policy]  # fmt: skip
            for o, size in gone:
                self.cancel(o, "self", size)
                side = units[o is two]
                del side[:size]
        return found

    def sealed(self, i: ModelInstrument) -> None:
        for lot in self.ranked(i.id, "A"):
            bids = [
                b
                for b in self.ranked(i.id, "B")
                if b.price >= lot.price and b.left >= lot.left and not self.apart(b, lot)
            ]
            if bids:
                seconds = [b.price for b in bids if b.owner != bids[0].owner]
                price = max(seconds, default=lot.price)
                self.market("O", i, price, lot.left, 0)
                self.trade(i, bids[0], lot, price, lot.left, auction=True)
        for o in self.ranked(i.id, "B") + self.ranked(i.id, "A"):
            self.cancel(o, "cross")

    def dutch(self, i: ModelInstrument, taker: ModelOrder) -> None:
        steps = max(0, self.stamp - i.start) // i.set[3] if i.set[3] else 0
        price = i.set[8] - i.set[9] * steps
        while taker.left and 0 < price <= taker.price:
            lots = [lot for lot in self.ranked(i.id, "A") if lot.price <= price]
            if not lots:
                return
            if self.apart(taker, lots[0], taker):
                self.keep_apart(taker, lots[0])
            else:
                self.trade(i, taker, lots[0], price, min(taker.left, lots[0].left))

    # The treasury

    def treasury(self, c: dict[str, Any]) -> None:
        what = c["command"]
        if what in list("HCUE"):
            return
        if what not in list("DWBLP"):
            raise Refused("action")
        if c["publisher"] != 0:
            raise Refused("not-treasury")
        if what in "DW":
            self.payment(c, 1 if what == "D" else -1)
        elif what == "B":
            self.bust(c["order_id"])
        elif what == "L":
            self.limit(c)
        else:
            self.setting(c)
        self.answer({"D": "D", "W": "Y", "B": "B", "L": "L", "P": "U"}[what], c)

    def payment(self, c: dict[str, Any], sign: int) -> None:
        account, amount = c["account"], c["price"]
        if not self.has_accounts or account == 0:
            raise Refused("unknown-account")
        if c["instrument"]:
            known, asset = c["instrument"] in self.instruments, c["instrument"]
        else:
            known, asset = 0 < c["order_id"] < 2**32, str(c["order_id"])
        if not known:
            raise Refused("unknown-instrument")
        if not 0 < amount <= 2**62:
            raise Refused("amount")
        if sign < 0 and account not in self.accounts:
            raise Refused("unknown-account")
        if sign < 0 and self.free(account, asset) < amount:
            raise Refused("shares" if c["instrument"] else "funds")
        self.accounts.setdefault(account, ModelAccount(account))
        self.total[account, asset] += sign * amount

    def bust(self, number: int) -> None:
        if not self.has_accounts or not 0 < number <= len(self.trades):
            raise Refused("unknown-trade")
        t = self.trades[number - 1]
        if t["busted"]:
            raise Refused("busted")
        money = str(t["i"].currency)
        fees = (t["fees"]["A"] + t["fees"]["B"]) * t["size"]
        if (
            self.free(t["seller"], money) < (t["price"] - t["fees"]["A"]) * t["size"]
            or self.free(t["buyer"], t["i"].id) + self.short(t["buyer"], t["i"].id) < t["size"]
            or self.free(0, money) < fees
        ):
            raise Refused("bust-lacks")
        self.pay(t, -1)
        t["busted"] = True

    def limit(self, c: dict[str, Any]) -> None:
        which, value, number = c["order_id"], c["price"], c["account"]
        if not self.has_accounts or number == 0:
            raise Refused("unknown-account")
        if not 1 <= which <= 8 or not 0 <= value <= 2**62:
            raise Refused("setting")
        if which in (6, 7) and c["instrument"] not in self.instruments:
            raise Refused("unknown-instrument")
        account = self.accounts.setdefault(number, ModelAccount(number))
        if which == 7 and self.free(number, c["instrument"]) + value < 0:
            raise Refused("shares")
        if which == 1:
            account.owner = value
        elif which in (6, 7):
            account.limits[which, c["instrument"]] = value
        else:
            account.limits[which] = value

    def setting(self, c: dict[str, Any]) -> None:
        which, value = c["order_id"], c["price"]
        if which == 0:
            if value != 1:
                raise Refused("rules")
            return
        if which > 10 or not 0 <= value <= {1: 3, 2: 3}.get(which, 2**62):
            raise Refused("setting")
        i = self.instruments.get(c["instrument"])
        if i is None:
            raise Refused("unknown-instrument")
        if which in (1, 2, 3, 4, 5, 8, 9) and self.all_orders(i.id):
            raise Refused("setting")
        i.set[which] = value
        if which == 10:
            i.band_reference = value

    def balances(self) -> dict[tuple[int, Any], tuple[int, int]]:
        """Return free and reserved by account and asset, without empty ones."""
        found = {key: (self.free(*key), self.reserved(*key)) for key in list(self.total)}
        return {key: value for key, value in found.items() if value != (0, 0)}


def fields(record: Any) -> dict[str, Any]:
    """Return an order command as the model reads it."""
    names = {
        "publisher": "publisher_id", "instrument": "instrument_id", "stamp": "ts_event", "order_id": "order_id",
        "price": "price", "size": "size", "stop": "stop_price", "client": "client_order_id",
        "original": "original_client_order_id", "account": "account",
    }  # fmt: skip
    texts = {
        "action": "action", "side": "side", "type": "order_type", "tif": "time_in_force", "policy": "self_trade_policy",
        "command": "command", "exec": "exec_inst", "reserved": "_reserved",
    }  # fmt: skip
    return {name: int(record[of]) for name, of in names.items()} | {
        name: record[of].decode("latin-1") for name, of in texts.items()
    }


def run_model(model: Model, call: str, args: tuple[Any, ...]) -> list[tuple[int, ...]]:
    """Run one step of `tests.book_parts`; return events."""
    if call == "command":
        given = fields(args[0][0])
        model.stamp = given["stamp"]
        model.command(given)
    else:
        getattr(model, call)(*args)
    return model.taken()
