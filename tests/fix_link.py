"""Two sessions with journals, joined by a connection that fails, in processes that are killed: one seed is one history.

The initiator sends orders. The acceptor answers each by a report. An application is a function of the journal: its
messages received are the `Received` entries, its events are the orders so far, or a report for each order received,
and it sends the events after the highest cause. At the end every event of one side has arrived at the other once and
in order.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from levelcast.market.fix.config import SessionConfig
from levelcast.market.fix.effects import Close, DeliverMessage, Effects, PersistEntry, SendBytes
from levelcast.market.fix.framing import FixFrame, Framer
from levelcast.market.fix.journal import Entry, Received, Sent, SessionImage
from levelcast.market.fix.reader import Message, Reader
from levelcast.market.fix.session import FixSession, SessionState
from levelcast.market.fix.values import time_text
from tests.fix_parts import START, S

MS = 1_000_000
CL_ORD_ID = 11


READER = Reader()


class Killed(Exception):
    """The process of a side stopped."""


def order_body(number: int) -> bytes:
    return b"11=O%d\x0121=1\x0138=100\x0140=1\x0154=1\x0155=IBM\x0160=%b\x01" % (number, time_text(START))


def report_body(order: bytes, number: int) -> bytes:
    return b"6=0\x0111=%b\x0114=0\x0117=E%d\x0137=R%d\x0139=0\x0154=1\x0155=IBM\x01150=0\x01151=100\x01" % (
        order,
        number,
        number,
    )


def read_message(raw: bytes) -> Message:
    framer = Framer()
    framer.feed(raw)
    frame = framer.next()
    assert isinstance(frame, FixFrame)
    return READER.read(frame)


class Side:
    """A process with a session, its journal and its application."""

    def __init__(self, config: SessionConfig, chance: Random) -> None:
        self.config = config
        self.chance = chance
        self.journal: list[Entry] = []
        self.orders = 0
        self.outgoing = b""
        """Bytes on their way to the peer."""
        self.closing = False
        self.kill_ratio = 0.0
        self.session: FixSession | None = None
        self.delivered: list[bytes] = []
        self.start()

    def start(self) -> None:
        """Start the process on its journal."""
        self.session = FixSession(self.config, SessionImage(self.journal))
        self.delivered = [read_message(raw).get(CL_ORD_ID) for raw in self.received()]

    def received(self) -> list[bytes]:
        return [entry.message for entry in self.journal if isinstance(entry, Received)]

    @property
    def events(self) -> int:
        """The number of messages to be sent so far."""
        return self.orders if self.config.initiator else len(self.delivered)

    def body(self, event: int) -> bytes:
        return order_body(event) if self.config.initiator else report_body(self.delivered[event], event)

    def perform(self, effects: Effects) -> None:
        """Perform effects in order; the process may be killed before each."""
        for effect in effects:
            self._risk()
            if isinstance(effect, PersistEntry):
                self.journal.append(effect.entry)
            elif isinstance(effect, SendBytes):
                self._transmit(effect.data)
            elif isinstance(effect, DeliverMessage):
                self.delivered.append(effect.message.get(CL_ORD_ID))
            elif isinstance(effect, Close):
                self.closing = True

    def _risk(self) -> None:
        if self.kill_ratio and self.chance.random() < self.kill_ratio:
            raise Killed

    def _transmit(self, data: bytes) -> None:
        if self.kill_ratio and self.chance.random() < self.kill_ratio:
            self.outgoing += data[: self.chance.randrange(len(data))]
            raise Killed
        self.outgoing += data

    def answer(self, now: int) -> None:
        """Send the events that the journal does not have."""
        assert self.session is not None
        kind = b"D" if self.config.initiator else b"8"
        while (cause := self.session.image.cause) < self.events:
            self.perform(self.session.send(kind, self.body(cause), now, cause=cause + 1))

    def sent(self) -> list[Sent]:
        return [entry for entry in self.journal if isinstance(entry, Sent)]


class LinkHistory:
    def __init__(self, seed: int, *, actions: int = 80) -> None:
        self.chance = Random(seed)
        self.actions = actions
        self.now = START
        self.kills = self.losses = self.resends = 0
        max_held, batch = self.chance.choice((1, 4, 100)), self.chance.choice((1, 3, 500))
        heartbeat_s = self.chance.choice((0, 2, 30))
        server = SessionConfig(sender=b"ISLD", target=b"TW44", max_held=max_held, resend_batch=batch)
        client = replace(server, sender=b"TW44", target=b"ISLD", initiator=True, heartbeat_s=heartbeat_s)
        self.client = Side(client, self.chance)
        self.server = Side(server, self.chance)
        self.joined = False
        """Whether there is a connection between the sides."""

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.client, self.server

    def run(self) -> None:
        """Run random actions, then without faults until every message has arrived."""
        for side in self.sides:
            side.kill_ratio = self.chance.choice((0.0, 0.01, 0.05))
        for _ in range(self.actions):
            self._action()
        for side in self.sides:
            side.kill_ratio = 0.0
        until = self.now + 400 * S
        while not self._complete():
            assert self.now < until, "stuck: " + ", ".join(
                str(side.session and side.session.state) for side in self.sides
            )
            self._calm_action()
        self._check()

    def _action(self) -> None:
        pick = self.chance.random()
        if pick < 0.25:
            self.client.orders += self.chance.randrange(1, 4)
            self._guarded(self.client, lambda side: side.answer(self.now))
        elif pick < 0.75:
            self._deliver(self.chance.choice(self.sides))
        elif pick < 0.88:
            self._advance()
        elif pick < 0.9:
            self._lose_connection()
        else:
            self._restore()

    def _calm_action(self) -> None:
        self._restore()
        for side in self.sides:
            self._guarded(side, lambda side: side.answer(self.now))
            self._deliver(side, everything=True)
        if not any(side.outgoing for side in self.sides):
            self._advance()

    def _guarded(self, side: Side, call: object) -> None:
        """Call for a side that runs; a kill ends its process and its connection."""
        if side.session is None:
            return
        try:
            call(side)  # type: ignore[operator]
        except Killed:
            self.kills += 1
            side.session = None
            self._lose_connection()
        else:
            if side.closing:
                side.closing = False
                self._lose_connection(lossless=True)

    def _deliver(self, side: Side, everything: bool = False) -> None:
        """Move some bytes of a side to its peer, which handles them."""
        peer = self.server if side is self.client else self.client
        if not self.joined or not side.outgoing:
            return
        size = len(side.outgoing) if everything else self.chance.randrange(1, len(side.outgoing) + 1)
        data, side.outgoing = side.outgoing[:size], side.outgoing[size:]
        self.resends += data.count(b"\x0135=2\x01")

        def handle(peer: Side) -> None:
            assert peer.session is not None
            peer.perform(peer.session.receive(data, self.now))
            peer.answer(self.now)

        self._guarded(peer, handle)

    def _advance(self) -> None:
        """Advance the time, at most to the next action of a session."""
        wakes = [side.session.wake_ns for side in self.sides if side.session is not None]
        due = min((wake for wake in wakes if wake is not None), default=self.now + S)
        self.now = max(self.now + MS, min(due, self.now + 10 * S))
        for side in self.sides:
            self._guarded(side, self._step)

    def _step(self, side: Side) -> None:
        assert side.session is not None
        wake = side.session.wake_ns
        if wake is not None and wake <= self.now:
            side.perform(side.session.step(self.now))

    def _lose_connection(self, lossless: bool = False) -> None:
        """End the connection; what has not arrived is lost, unless a side closed it in order."""
        if not self.joined:
            return
        if lossless:
            for side in self.sides:
                self._deliver(side, everything=True)
        self.joined = False
        self.losses += 1
        for side in self.sides:
            side.outgoing = b""
            self._guarded(side, self._disconnected)

    def _disconnected(self, side: Side) -> None:
        assert side.session is not None
        side.perform(side.session.disconnected(self.now))

    def _restore(self) -> None:
        """Start what was killed, and connect."""
        for side in self.sides:
            if side.session is None:
                side.start()
                self._guarded(side, lambda side: side.answer(self.now))
        if self.joined or any(side.session is None for side in self.sides):
            return
        self.joined = True
        for side in (self.server, self.client):
            side.outgoing = b""
            self._guarded(side, self._connect)

    def _connect(self, side: Side) -> None:
        assert side.session is not None
        side.perform(side.session.connect(self.now))

    def _complete(self) -> bool:
        established = all(
            side.session is not None and side.session.state is SessionState.ESTABLISHED for side in self.sides
        )
        return (
            established
            and len(self.server.received()) == self.client.orders
            and len(self.client.received()) == self.client.orders
        )

    def _check(self) -> None:
        """Every message sent has arrived once, in order, under its own number."""
        for side, peer in ((self.client, self.server), (self.server, self.client)):
            sent = [(entry.seq, entry.body) for entry in side.sent()]
            numbers = [seq for seq, _ in sent]
            assert numbers == sorted(set(numbers)), "a number was used twice"
            assert [body for _, body in sent] == [side.body(event) for event in range(side.events)]
            arrived = [entry for entry in peer.journal if isinstance(entry, Received)]
            assert [entry.seq for entry in arrived] == numbers
            for entry, (_, body) in zip(arrived, sent, strict=True):
                assert body in entry.message
            ids = [read_message(entry.message).get(CL_ORD_ID) for entry in arrived]
            assert ids == peer.delivered
            assert len(set(ids)) == len(ids)
