"""A floor without sockets: traders, gateway, sequencer and engine, whose process is killed; one seed is one history.

The disk is the journal and the tape in memory. The floor may be killed before and after each write and each send. A
connection is lost with its bytes. The traders are FIX sessions with journals, which send orders, cancels and
replacements. At the end every report has arrived once and in order, and the balances are conserved.
"""

from __future__ import annotations

from random import Random

from levelcast.market.engine import MatchingEngine
from levelcast.market.entry import journal
from levelcast.market.entry.gateway import Gateway, GatewayConfig, GatewayOutput
from levelcast.market.entry.requests import command
from levelcast.market.entry.rights import RightsTable, TradingAccount, TradingLogin
from levelcast.market.fix.config import SessionConfig
from levelcast.market.fix.effects import Close, DeliverMessage, Effects, PersistEntry, SendBytes
from levelcast.market.fix.journal import Entry, SessionImage
from levelcast.market.fix.reader import Message
from levelcast.market.fix.session import FixSession, SessionState
from levelcast.market.fix.values import time_text
from levelcast.market.floor.machine import OPERATOR, FloorMachine
from levelcast.market.floor.sequencer import LocalSequencer, local_tip
from levelcast.protocol.history import Frame
from levelcast.records import instruments, statuses
from tests.fix_parts import START

USD = int.from_bytes(b"USD\0", "little")
CASH, SHARES = 10**15, 10**6
MS = 1_000_000


class FloorKilled(Exception):
    """The process of the floor stopped."""


def rights(count: int = 2, **settings: object) -> RightsTable:
    """Return the rights of T1, T2 … with accounts t1, t2 …"""
    return RightsTable(
        TradingLogin(
            comp_id=f"T{number}",
            number=number,
            accounts=(TradingAccount(number, f"t{number}", number),),
            **settings,  # type: ignore[arg-type]
        )
        for number in range(1, count + 1)
    )


class FloorDisk:
    """What survives a kill."""

    def __init__(self) -> None:
        self.journal = bytearray()
        self.tape: list[Frame] = []


class SimFloor:
    """The process of a floor on its disk."""

    def __init__(self, disk: FloorDisk, table: RightsTable, chance: Random | None = None, now: int = START) -> None:
        self.disk, self.chance, self.now = disk, chance, now
        self.kill_ratio = 0.0
        self.sent: dict[object, bytes] = {}
        self.closed: set[object] = set()
        engine = MatchingEngine(treasury=OPERATOR)
        self.gateway = Gateway(
            GatewayConfig(checks_passwords=False),
            table,
            lambda at: journal.sent_at(bytes(disk.journal[at:])),
            balances=engine.kernel.balances,
            top=engine.kernel.top,
        )
        tip = local_tip()
        for frame in disk.tape:
            tip.append(frame)
        sequencer = LocalSequencer(tip)
        packets, end = self.gateway.restore(bytes(disk.journal), sequencer.next_number(1))
        del disk.journal[end:]
        self.machine = FloorMachine(engine, self.gateway, sequencer, 1)
        for frame in disk.tape:
            self.machine.apply(frame, now)
            disk.journal += self.gateway.take().journal
        sequencer.timestamp_ns = engine.timestamp_ns
        for packet in packets:
            sequencer.submit(packet)
        self.gateway.start(now)

    def prepare(self, accounts: int = 2) -> None:
        """Define IBM, open it, and give everybody money and shares."""
        made = instruments(1)
        made["instrument_id"], made["raw_symbol"], made["currency"] = 7, b"IBM", b"USD"
        made["min_price_increment"], made["publisher_id"] = 10_000_000, OPERATOR
        self.machine.command(made.tobytes(), 1)
        opened = statuses(1)
        opened["instrument_id"], opened["action"] = 7, 7
        self.machine.command(opened.tobytes(), 1)
        for account in range(1, accounts + 1):
            self.machine.command(command(b"N", OPERATOR, 0, 0, 0, account, price=CASH, order_id=USD, kind=b"D"), 1)
            self.machine.command(command(b"N", OPERATOR, 7, 0, 0, account, price=SHARES, kind=b"D"), 1)
        self.cycle()

    def cycle(self) -> None:
        """Perform what the gateway has, as the driver does."""
        while True:
            output = self.gateway.take()
            self._perform(output)
            if output.packet is not None:
                self.machine.sequencer.submit(output.packet)
            self._risk()
            frames = self.machine.sequencer.release(self.now)
            if not frames:
                return
            for frame in frames:
                self.disk.tape.append(frame)
                self._risk()
                self.machine.apply(frame, self.now)

    def _perform(self, output: GatewayOutput) -> None:
        self._risk()
        if self.chance is not None and self.kill_ratio and self.chance.random() < self.kill_ratio:
            self.disk.journal += output.journal[: self.chance.randrange(len(output.journal) + 1)]
            raise FloorKilled
        self.disk.journal += output.journal
        self._risk()
        for connection, parts in output.sends.items():
            self.sent[connection] = self.sent.get(connection, b"") + b"".join(parts)
            self._risk()
        self.closed.update(connection for connection, _ in output.closes)

    def _risk(self) -> None:
        if self.chance is not None and self.kill_ratio and self.chance.random() < self.kill_ratio:
            raise FloorKilled


class SimTrader:
    """The program of a trader, with its journal."""

    def __init__(self, name: bytes, *, journaled: bool = True) -> None:
        self.config = SessionConfig(
            sender=name, target=b"FLOOR", initiator=True, heartbeat_s=0, reset_on_logon=not journaled
        )
        self.entries: list[Entry] = []
        self.reports: list[Message] = []
        self.outgoing = b""
        self.session = FixSession(self.config)

    def restart(self) -> None:
        self.outgoing = b""
        self.session = FixSession(self.config, SessionImage(self.entries))

    def perform(self, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, PersistEntry):
                self.entries.append(effect.entry)
            elif isinstance(effect, SendBytes):
                self.outgoing += effect.data
            elif isinstance(effect, DeliverMessage):
                self.reports.append(effect.message)
            elif isinstance(effect, Close):
                self.outgoing = b""

    def say(self, kind: bytes, text: str, now: int) -> None:
        """Send an application message, written with | between its fields; `T` stands for the time."""
        body = text.replace("|", "\x01").encode().replace(b"=T\x01", b"=" + time_text(now) + b"\x01")
        self.perform(self.session.send(kind, body, now))


class EntryHistory:
    """A day of traders at a floor that is killed."""

    def __init__(self, seed: int, *, traders: int = 2, actions: int = 60, kills: bool = True) -> None:
        self.chance = Random(seed)
        self.now = START
        self.actions, self.has_kills = actions, kills
        self.table = rights(traders)
        self.disk = FloorDisk()
        self.floor = SimFloor(self.disk, self.table, self.chance)
        self.floor.prepare(traders)
        self.traders = [SimTrader(b"T%d" % number) for number in range(1, traders + 1)]
        self.links: dict[int, int] = {}
        """Connection of each trader."""
        self.kills = self.losses = self.connections = 0
        self.counts = [0] * traders

    def run(self) -> None:
        if self.has_kills:
            self.floor.kill_ratio = 0.01
        for _ in range(self.actions):
            self._act()
        self.floor.kill_ratio = 0.0
        for _ in range(40 * len(self.traders)):
            self.now += 10 * MS
            for at in range(len(self.traders)):
                self._exchange(at)

    def _act(self) -> None:
        self.now += self.chance.randrange(1, 50) * MS
        at = self.chance.randrange(len(self.traders))
        choice = self.chance.random()
        if choice < 0.7:
            self._order(at)
        elif choice < 0.75:
            self._lose(at)
        elif choice < 0.8:
            self.traders[at].restart()
            self._lose(at)
        elif choice < 0.85 and self.has_kills:
            self._kill()
        for _ in range(self.chance.randrange(4)):
            self._exchange(self.chance.randrange(len(self.traders)))

    def _order(self, at: int) -> None:
        trader, now = self.traders[at], self.now
        self.counts[at] += 1
        number, side = self.counts[at], self.chance.choice("12")
        target = self.chance.randrange(1, number + 1)
        kind = self.chance.random()
        price = f"{100 + self.chance.randrange(5)}.00"
        if kind < 0.7 or target == number:
            text = f"11=A{number}|38={self.chance.randrange(1, 9)}00|40=2|44={price}|54={side}|55=IBM|60=T|"
            trader.say(b"D", text, now)
        elif kind < 0.85:
            trader.say(b"F", f"41=A{target}|11=A{number}|38=100|54=1|55=IBM|60=T|", now)
        else:
            trader.say(b"G", f"41=A{target}|11=A{number}|38=200|40=2|44={price}|54=1|55=IBM|60=T|", now)

    def _lose(self, at: int) -> None:
        link = self.links.pop(at, None)
        self.traders[at].perform(self.traders[at].session.disconnected(self.now))
        if link is not None:
            self.losses += 1
            self.floor.sent.pop(link, None)
            self._on_floor(lambda: self.floor.gateway.disconnected(link, self.now))

    def _kill(self) -> None:
        self.kills += 1
        self.floor = SimFloor(self.disk, self.table, self.chance, self.now)
        self.floor.kill_ratio = 0.01
        for at in list(self.links):
            del self.links[at]
            self.traders[at].perform(self.traders[at].session.disconnected(self.now))
        self._on_floor(lambda: None)

    def _on_floor(self, call: object) -> None:
        try:
            self.floor.now = self.now
            call()  # type: ignore[operator]
            self.floor.cycle()
        except FloorKilled:
            self._kill()

    def _exchange(self, at: int) -> None:
        """Move bytes in both directions."""
        trader = self.traders[at]
        if trader.session.state is SessionState.CLOSED:
            self._lose(at)
            self.connections += 1
            link = self.links[at] = self.connections
            self._on_floor(lambda: self.floor.gateway.connect(link, self.now))
            if at in self.links:
                trader.perform(trader.session.connect(self.now))
        if at not in self.links:
            return
        link = self.links[at]
        size = len(trader.outgoing) if self.chance.random() < 0.5 else self.chance.randrange(len(trader.outgoing) + 1)
        data, trader.outgoing = trader.outgoing[:size], trader.outgoing[size:]
        if data:
            self._on_floor(lambda: self.floor.gateway.receive(link, data, self.now, self.now))
        if self.links.get(at) != link:
            return
        received = self.floor.sent.pop(link, b"")
        trader.perform(trader.session.receive(received, self.now))
        if link in self.floor.closed:
            self._lose(at)
