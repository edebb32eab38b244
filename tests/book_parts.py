"""Parts for the tests of the matching engine: commands, random flows, and runs of an engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from levelcast.native.book_codes import EVENT, AccountSetting, BookPhase, BookReason, EventKind, InstrumentSetting
from levelcast.records import ORDER, RecordArray, orders

USD = int.from_bytes(b"USD\0", "little")
TICK = 5
INSTRUMENTS = (1, 2, 77)
ACCOUNTS = (11, 12, 13, 14)
PRICES = range(80, 121, TICK)
EVENT_DTYPE = np.dtype(
    [("kind", "u1"), ("reason", "u1"), ("flags", "u1"), ("side", "u1"), ("instrument", "<u4"), ("number", "<u8"),
     ("account", "<u8"), ("client", "<u8"), ("order", "<u8"), ("trade", "<u8"), ("price", "<i8"), ("size", "<u4"),
     ("left", "<u4")]
)  # fmt: skip
assert EVENT_DTYPE.itemsize == EVENT.size


def command(**fields: Any) -> RecordArray:
    """Return one order command; `fields` by name of the record."""
    made = orders(1)
    made["instrument_id"], made["account"], made["ts_event"] = 1, 11, 1_000_000_000
    for name, value in fields.items():
        made[name] = value
    return made


def deposit(account: int, amount: int, instrument: int = 0, **fields: Any) -> RecordArray:
    return command(
        action=b"N", command=b"D", account=account, price=amount, instrument_id=instrument,
        order_id=0 if instrument else USD, **fields,
    )  # fmt: skip


def account_limit(account: int, which: AccountSetting, value: int, instrument: int = 0) -> RecordArray:
    return command(
        action=b"N", command=b"L", account=account, order_id=int(which), price=value, instrument_id=instrument
    )


def setting(instrument: int, which: InstrumentSetting, value: int) -> RecordArray:
    return command(action=b"N", command=b"P", order_id=int(which), price=value, instrument_id=instrument)


@dataclass
class Step:
    """One call of an engine, or one command."""

    call: str
    args: tuple[Any, ...] = ()


@dataclass
class Flow:
    """A random sequence of steps, valid and invalid ones."""

    seed: int
    accounts: bool = True
    bad: float = 0.05
    rng: Random = field(init=False)
    last_id: dict[int, int] = field(default_factory=dict)
    known: list[tuple[int, int]] = field(default_factory=list)
    """(account, client order id) of orders that may be live."""
    now_ns: int = 1_000_000_000
    closed: bool = False

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)

    def begin(self) -> list[Step]:
        """Define instruments, fund accounts and open."""
        rng, steps = self.rng, []
        for instrument in INSTRUMENTS:
            collar = rng.choice([-1, 10, 20])
            high = 2**63 - 1 if instrument == 77 else 200
            steps.append(Step("define", (instrument, TICK, rng.choice([1, 1, 2]), 1, 1000, high, 1, collar, USD)))
        if self.accounts:
            for account in ACCOUNTS:
                steps.append(Step("command", (deposit(account, rng.choice([2_000, 20_000, 200_000])),)))
                steps += [
                    Step("command", (deposit(account, rng.choice([20, 200, 2000]), instrument),))
                    for instrument in INSTRUMENTS
                ]
        for instrument in INSTRUMENTS:
            steps += [Step("command", (made,)) for made in self._settings(instrument)]
        steps.append(Step("status", (0, rng.choice([int(BookPhase.PRE_OPEN), int(BookPhase.TRADING)]))))
        return steps

    def _settings(self, instrument: int) -> list[RecordArray]:
        rng, which = self.rng, InstrumentSetting
        made = [setting(instrument, which.PRICE_RULE, rng.randrange(4))]
        if rng.random() < 0.5:
            made.append(setting(instrument, which.MATCH_RULE, rng.randrange(4)))
        made.append(setting(instrument, which.INTERVAL, rng.choice([100, 1000])))
        made.append(setting(instrument, which.MAKER_FEE, rng.choice([0, 0, 1, 3])))
        made.append(setting(instrument, which.TAKER_FEE, rng.choice([0, 0, 2])))
        made.append(setting(instrument, which.DUTCH_START, 120))
        made.append(setting(instrument, which.DUTCH_STEP, rng.choice([0, 5])))
        if rng.random() < 0.3:
            made.append(setting(instrument, which.BAND, 10))
            made.append(setting(instrument, which.PAUSE, rng.choice([0, 500])))
        if rng.random() < 0.3:
            made.append(setting(instrument, which.REFERENCE, rng.choice(list(PRICES))))
        return made

    def step(self) -> Step:
        """Return the next step."""
        rng, chance = self.rng, self.rng.random()
        if chance < 0.01 or (self.closed and chance < 0.08):
            phase = rng.choices([7, 1, 2, 11, 4, 8, 9, 12, 15, 0, 10], [30, 3, 3, 3, 6, 1, 1, 1, 1, 1, 1])[0]
            self.closed = phase in (4, 8, 9, 12, 15, 10)
            return Step("status", (0 if self.closed else rng.choice([0, 0, *INSTRUMENTS, 5]), phase))
        if chance < 0.05:
            self.now_ns += rng.choice([0, 10, 100, 1_000, 1_000_000_000])
            return Step("advance", (self.now_ns,))
        if chance < 0.07:
            return Step("finish")
        if chance < 0.09:
            return Step("command", (self._treasury(),))
        return Step("command", (self._order(),))

    def _treasury(self) -> RecordArray:
        rng = self.rng
        account, instrument = rng.choice([*ACCOUNTS, 15, 0]), rng.choice([*INSTRUMENTS, 0, 5])
        kind = rng.random()
        publisher = 1 if rng.random() < self.bad else 0
        if kind < 0.4:
            made = deposit(account, rng.choice([0, -5, 50, 500, 1900, 5000, 19_000, 2**63 - 1]), instrument)
            made["command"] = rng.choice([b"D", b"W"])
        elif kind < 0.6:
            which = rng.choices(list(AccountSetting), [4, 2, 2, 2, 1, 2, 4, 1])[0]
            value = rng.choice([0, 11, 12]) if which == AccountSetting.OWNER else rng.choice([0, 0, 0, 1, 30, 4000])
            made = account_limit(account, which, value, instrument)
        elif kind < 0.8:
            made = setting(instrument, rng.choice(list(InstrumentSetting)), rng.choice([0, 1, 2, 3, 5, 100]))
        else:
            made = command(action=b"N", command=rng.choice([b"B", b"B", b"B", b"H", b"Z"]), order_id=rng.randrange(60))
        made["publisher_id"] = publisher
        return made

    def _next_id(self, account: int) -> int:
        gateway = self.rng.choice([0, 1])
        count = self.last_id.get(gateway << 32 | account, 0) + self.rng.choice([1, 1, 1, 2])
        if self.rng.random() >= self.bad:
            self.last_id[gateway << 32 | account] = count
        return gateway << 48 | count

    def _order(self) -> RecordArray:
        rng = self.rng
        account = rng.choice(ACCOUNTS)
        made = command(
            account=account, instrument_id=rng.choice(INSTRUMENTS), client_order_id=self._next_id(account),
            ts_event=self.now_ns + rng.randrange(2_000), size=rng.choice([2, 2, 4, 6, 8, 14, 3]),
            price=rng.choice(PRICES), side=rng.choice([b"A", b"B"]),
        )  # fmt: skip
        chance = rng.random()
        if self.known and chance < 0.4:
            self._change(made, chance)
        else:
            self._kind(made)
            self.known.append((account, int(made["client_order_id"][0])))
        if rng.random() < self.bad:
            self._spoil(made)
        return made

    def _change(self, made: RecordArray, chance: float) -> None:
        rng = self.rng
        place = max(0, len(self.known) - 1 - int(rng.expovariate(1 / 8)))
        account, client = self.known[place]
        made["account"], made["original_client_order_id"] = account, client
        made["client_order_id"] = self._next_id(account)
        made["action"] = b"M" if chance < 0.2 else b"C" if chance < 0.397 else b"R"
        if made["action"][0] == b"M":
            made["instrument_id"] = 0
            self.known.append((account, int(made["client_order_id"][0])))
            if rng.random() < 0.2:
                made["stop_price"] = rng.choice(PRICES)
        elif rng.random() < 0.5:
            made["client_order_id"] = 0
        if made["action"][0] == b"R":
            made["instrument_id"] = rng.choice([0, *INSTRUMENTS])

    def _kind(self, made: RecordArray) -> None:
        rng = self.rng
        made["order_type"] = rng.choices([b"1", b"2", b"3", b"4"], [1, 8, 1, 1])[0]
        made["time_in_force"] = rng.choices([b"0", b"1", b"2", b"3", b"4", b"7"], [5, 3, 1, 1, 1, 1])[0]
        made["self_trade_policy"] = rng.choice([b"A", b"N", b"O", b"B", b"D"])
        if made["order_type"][0] in (b"3", b"4"):
            made["stop_price"] = rng.choice(PRICES)
        if rng.random() < 0.1:
            made["exec_inst"] = b"6"

    def _spoil(self, made: RecordArray) -> None:
        spoilt: list[tuple[str, list[Any]]] = (
            [
                ("account", [0, 99, 15]), ("instrument_id", [0, 5]),
                ("price", [0, -5, 82, 205, 5 * 2**59, 2**63 - 1, 2**62 + 1]),
                ("size", [0, 2**32 - 1, 1001, 500]), ("side", [b"N", b"X"]), ("order_type", [b"9", b""]),
                ("time_in_force", [b"6"]), ("self_trade_policy", [b"", b"x"]), ("exec_inst", [b"h"]),
                ("_reserved", [b"x"]), ("action", [b"T", b"F"]), ("original_client_order_id", [0, 12345]),
                ("client_order_id", [0, 1]), ("stop_price", [0, 3, 2**63 - 1, -1]),
            ]
        )  # fmt: skip
        name, values = self.rng.choice(spoilt)
        made[name] = self.rng.choice(values)
        if made["price"][0] == 5 * 2**59:
            made["size"] = 13  # whose value has more than 64 bits


def run_steps(book: Any, steps: list[Step], batch: int = 1) -> bytes:
    """Run steps on an engine, with up to `batch` commands per call; return all events."""
    out: list[bytes] = []
    held: list[RecordArray] = []

    def flush() -> None:
        if held:
            out.append(book.run(np.concatenate(held).tobytes()))
            held.clear()

    for step in steps:
        if step.call == "command":
            held.append(step.args[0])
            if len(held) >= batch:
                flush()
            continue
        flush()
        out.append(getattr(book, step.call)(*step.args) or b"")
    flush()
    return b"".join(out)


def flow(seed: int, length: int, accounts: bool = True) -> list[Step]:
    made = Flow(seed, accounts)
    return [*made.begin(), *(made.step() for _ in range(length))]


def events_of(octets: bytes) -> RecordArray:
    return np.frombuffer(octets, EVENT_DTYPE)


def shown(octets: bytes) -> list[str]:
    """Return events as text, for messages of failed tests."""
    return [
        f"{EventKind(int(e['kind'])).name} {BookReason(int(e['reason'])).name} i{e['instrument']} n{e['number']} "
        f"a{e['account']} c{e['client']} o{e['order']} t{e['trade']} p{e['price']} s{e['size']} "
        f"l{e['left']} f{e['flags']}"
        for e in events_of(octets)
    ]


assert ORDER.itemsize == 96
