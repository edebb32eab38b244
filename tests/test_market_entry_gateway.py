"""The gateway: each request has its reports, refusals name their reason, and a kill loses and repeats nothing (G2)."""

from __future__ import annotations

from collections import Counter

import pytest

from levelcast.market.engine import BookFrame, MatchingEngine
from levelcast.market.floor.machine import OPERATOR
from levelcast.native.pure_book_snapshot import BALANCE
from tests.entry_link import CASH, SHARES, EntryHistory, FloorDisk, SimFloor, SimTrader, rights
from tests.fix_parts import START

S = 10**9


class Day:
    """Two traders at a floor, without faults."""

    def __init__(self, **settings: object) -> None:
        self.disk = FloorDisk()
        self.table = rights(2, **settings)
        self.floor = SimFloor(self.disk, self.table)
        self.floor.prepare()
        self.now = START
        self.traders = {number: SimTrader(b"T%d" % number) for number in (1, 2)}
        for number in self.traders:
            self.connect(number)

    def connect(self, number: int) -> None:
        trader = self.traders[number]
        self.floor.gateway.connect(number, self.now)
        trader.perform(trader.session.connect(self.now))
        self.pump()

    def pump(self) -> None:
        for _ in range(10):
            for number, trader in self.traders.items():
                data, trader.outgoing = trader.outgoing, b""
                if data:
                    self.floor.gateway.receive(number, data, self.now, self.now)
                self.floor.cycle()
                trader.perform(trader.session.receive(self.floor.sent.pop(number, b""), self.now))

    def say(self, number: int, kind: bytes, text: str) -> list[str]:
        """Send a message; return the fields of what comes back to this trader that tell what happened."""
        trader = self.traders[number]
        before = len(trader.reports)
        trader.say(kind, text, self.now)
        self.pump()
        return [shown(message) for message in trader.reports[before:]]

    def wait(self, seconds: float) -> None:
        self.now += int(seconds * S)
        self.floor.now = self.now
        self.floor.gateway.step(self.now)
        self.pump()


def shown(message: object) -> str:
    get = message.get  # type: ignore[attr-defined]
    fields = [message.type, *(get(tag) for tag in (150, 39, 11, 41, 151, 14, 103, 102, 380, 58))]  # type: ignore[attr-defined]
    return " ".join(field.decode() for field in fields if field)


ORDER = "11={}|38={}|40=2|44={}|54={}|55=IBM|60=T|"


def test_an_order_is_received_accepted_and_filled() -> None:
    day = Day()
    assert day.say(1, b"D", ORDER.format("A1", 300, "181.52", 1)) == ["8 A A A1 300 0", "8 0 0 A1 300 0"]
    assert day.say(2, b"D", ORDER.format("B1", 100, "181.50", 2)) == [
        "8 A A B1 100 0", "8 0 0 B1 100 0", "8 F 2 B1 0 100",
    ]  # fmt: skip
    assert shown(day.traders[1].reports[-1]) == "8 F 1 A1 200 100"
    assert day.traders[1].reports[-1].get(31) == b"181.52"


def test_an_order_is_replaced_and_cancelled() -> None:
    day = Day()
    day.say(1, b"D", ORDER.format("A1", 300, "181.52", 1))
    assert day.say(1, b"G", "41=A1|" + ORDER.format("A2", 400, "181.53", 1)) == [
        "8 E E A2 A1 300 0", "8 5 0 A2 A1 400 0",
    ]  # fmt: skip
    assert day.say(1, b"F", "41=A2|11=A3|38=400|54=1|55=IBM|60=T|") == ["8 6 6 A3 A2 400 0", "8 4 4 A3 A2 0 0"]
    assert day.say(1, b"F", "41=A2|11=A4|38=400|54=1|55=IBM|60=T|")[-1] == "9 4 A4 A2 0 too late: the order is over"
    assert day.say(1, b"G", "41=A9|" + ORDER.format("A5", 400, "181.53", 1)) == ["9 8 A5 A9 1 unknown order"]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("11=R|38=100|40=2|44=1|54=1|55=XYZ|60=T|", "8 8 8 R 0 0 1 unknown instrument XYZ"),
        ("11=R|38=1.5|40=2|44=1|54=1|55=IBM|60=T|", "8 8 8 R 0 0 13 the quantity 1.5 is not a whole number above 0"),
        ("11=R|38=0|40=2|44=1|54=1|55=IBM|60=T|", "8 8 8 R 0 0 13 the quantity 0 is not a whole number above 0"),
        ("11=R|38=100|40=K|44=1|54=1|55=IBM|60=T|", "8 8 8 R 0 0 11 OrdType is not 1, 2, 3 or 4"),
        ("11=R|38=100|40=2|44=1|54=3|55=IBM|60=T|", "8 8 8 R 0 0 11 Side is not 1, 2 or 5"),
        ("11=R|1=x|38=100|40=2|44=1|54=1|55=IBM|60=T|", "8 8 8 R 0 0 15 the session has no account x"),
        ("11=R|111=10|38=100|40=2|44=1|54=1|55=IBM|60=T|", "8 8 8 R 0 0 11 MaxFloor is not supported"),
        ("11=R|18=G|38=100|40=2|44=1|54=1|55=IBM|60=T|", "8 8 8 R 0 0 11 ExecInst is not 6 (post-only)"),
        ("11=R|38=100|40=2|44=1|54=1|55=IBM|59=6|60=T|", "8 8 8 R 0 0 11 TimeInForce is not 0, 1, 2, 3, 4 or 7"),
        ("11=A1|38=100|40=2|44=1|54=1|55=IBM|60=T|", "8 8 8 A1 0 0 6 ClOrdID was used before"),
        ("11=R|38=100|40=2|44=1.001|54=1|55=IBM|60=T|", "8 8 8 R 0 0 11 the price is not a multiple of the tick"),
        ("11=R|38=10000|40=2|44=1000|54=1|55=IBM|60=T|", "8 8 8 R 0 0 3 the funds are not sufficient"),
        ("11=R|38=100|40=2|54=1|55=IBM|60=T|", "8 8 8 R 0 0 11 the price is missing"),
    ],
)
def test_a_refusal_has_its_reason_and_changes_nothing(text: str, answer: str) -> None:
    day = Day()
    day.say(1, b"D", ORDER.format("A1", 300, "181.52", 1))
    before = day.floor.machine.engine.kernel.balances()
    assert day.say(1, b"D", text)[-1] == answer
    assert day.floor.machine.engine.kernel.balances() == before
    assert day.floor.machine.engine.kernel.live == 1


def test_a_mass_cancel_cancels_the_orders_of_the_session() -> None:
    day = Day()
    for number in range(3):
        day.say(1, b"D", ORDER.format(f"A{number}", 100, f"18{number}.00", 1))
    day.say(2, b"D", ORDER.format("B1", 100, "190.00", 2))
    found = day.say(1, b"q", "11=Q|530=7|60=T|")
    assert [each.split()[0] for each in found] == ["8", "8", "8", "r"]
    assert day.traders[1].reports[-1].get(533) == b"3"
    assert day.floor.machine.engine.kernel.live == 1


def test_queries_report_orders_instruments_status_and_positions() -> None:
    day = Day()
    day.say(1, b"D", ORDER.format("A1", 300, "181.52", 1))
    assert day.say(1, b"H", "11=A1|54=1|55=IBM|") == ["8 I 0 A1 300 0"]
    assert day.say(1, b"H", "11=A7|54=1|55=IBM|") == ["8 I 8 A7 0 0 5 unknown order"]
    assert day.say(1, b"AF", "584=M|585=7|") == ["8 I 0 A1 300 0"]
    day.say(1, b"x", "320=L|559=4|")
    assert [entry[55] for entry in day.traders[1].reports[-1].group(146)] == [b"IBM"]
    day.say(1, b"e", "324=S|55=IBM|263=1|")
    assert day.traders[1].reports[-1].get(326) == b"17"
    day.say(1, b"AN", "710=P|724=0|453=1|448=1|447=D|452=24|1=t1|581=1|715=20260105|60=T|")
    cash = day.traders[1].reports[-2]
    amounts = {entry[707]: entry[708] for entry in cash.group(753)}
    assert amounts == {b"CASH": b"945544", b"CRES": b"54456"}
    assert day.say(1, b"R", "131=Q|146=1|55=IBM|")[-1].startswith("j 3 Unsupported")


def test_market_data_follows_the_book() -> None:
    day = Day()
    day.say(1, b"D", ORDER.format("A1", 300, "181.52", 1))
    day.say(2, b"V", "262=M|263=1|264=0|267=3|269=0|269=1|269=2|146=1|55=IBM|")
    entries = day.traders[2].reports[-1].group(268)
    assert [(entry[269], entry[270], entry[271]) for entry in entries] == [(b"0", b"181.52", b"300")]
    day.say(2, b"D", ORDER.format("B1", 100, "181.52", 2))
    update = next(message for message in day.traders[2].reports if message.type == b"X")
    assert [(e[279], e[269], e[270], e[271]) for e in update.group(268)] == [
        (b"1", b"0", b"181.52", b"200"), (b"0", b"2", b"181.52", b"100"),
    ]  # fmt: skip
    day.say(2, b"V", "262=N|263=1|264=0|267=1|269=0|146=1|55=XYZ|")
    assert day.traders[2].reports[-1].type == b"Y"


def test_orders_of_a_lost_session_are_cancelled_after_the_grace_time() -> None:
    day = Day(cancel_after_ns=5 * S)
    day.say(1, b"D", ORDER.format("A1", 300, "181.52", 1))
    day.floor.gateway.disconnected(1, day.now)
    day.traders[1].perform(day.traders[1].session.disconnected(day.now))
    day.wait(4)
    assert day.floor.machine.engine.kernel.live == 1
    day.wait(2)
    assert day.floor.machine.engine.kernel.live == 0
    day.connect(1)
    assert shown(day.traders[1].reports[-1]) == "8 4 4 A1 0 0 the session was disconnected"


def balances(octets: bytes) -> dict[int, int]:
    """Return the sum of each asset."""
    found: Counter[int] = Counter()
    for _, asset, _, _, free, reserved in BALANCE.iter_unpack(octets):
        found[asset] += int.from_bytes(free, "little", signed=True) + int.from_bytes(reserved, "little", signed=True)
    return dict(found)


def check(history: EntryHistory) -> None:
    """Every request is answered, every report arrived once and in order, nothing is lost from the ledger."""
    events = MatchingEngine(treasury=OPERATOR)
    for frame in history.disk.tape:
        events.frame(BookFrame(frame.first_sequence + frame.records - 1, frame.timestamp_ns, frame.content))
    assert events.chain == history.floor.machine.engine.chain
    count = len(history.traders)
    assert sorted(balances(events.kernel.balances()).values()) == sorted((count * SHARES, count * CASH))
    for at, trader in enumerate(history.traders):
        numbers = [message.seq or 0 for message in trader.reports]
        assert numbers == sorted(set(numbers))
        reports = [message for message in trader.reports if message.type == b"8"]
        exec_ids = [message.get(17) for message in reports]
        assert len(set(exec_ids)) == len(exec_ids)
        answered = {message.get(11) for message in trader.reports}
        assert answered >= {b"A%d" % number for number in range(1, history.counts[at] + 1)}
        received = Counter(message.get(11) for message in reports if message.get(150) == b"A")
        assert set(received.values()) <= {1}
        by_event = [int(each) for each in exec_ids if each.isdigit() and each != b"0"]
        assert by_event == sorted(by_event)


def test_without_faults_a_history_passes() -> None:
    history = EntryHistory(1, kills=False)
    history.run()
    check(history)


@pytest.mark.parametrize("seed", range(60))
def test_a_killed_floor_loses_and_repeats_nothing(seed: int) -> None:
    history = EntryHistory(seed)
    history.run()
    check(history)


def test_the_histories_have_kills_and_losses() -> None:
    history = EntryHistory(3, actions=300)
    history.run()
    check(history)
    assert history.kills > 5
    assert history.losses > 5
    assert sum(len(trader.reports) for trader in history.traders) > 200
