"""The gateway of a floor without I/O (G1 to G5): connections, sessions, requests, reports.

The driver calls `connect`, `receive`, `disconnected`, `step` and `apply`, any number of times, and then `take`. What
`take` returns is performed in this order, all of it before the next `take`:

1. `journal` is written, as one write, and is as durable as the floor requires;
2. `sends` leave, then connections are closed;
3. `packet` is submitted to the sequencer.

A frame that the sequencer releases goes through the engine, and `apply` turns its events into reports for the next
`take`. So nothing is acknowledged and no order leaves before the journal has it, and a report has its number in the
journal before it is sent (G2). A kill loses nothing that was acknowledged, and repeats nothing:

- `restore` reads the journal: sessions, requests, and the packets that no frame has. The driver submits these again.
- The frames of the tape are applied again. A session sends the reports whose cause is above its highest one.

Admission (G3): what the engine cannot express, an account without rights, a ClOrdID that was used before and requests
above the rate are refused here; the engine decides about everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import NamedTuple

from levelcast.errors import LevelcastError
from levelcast.market.entry import journal, reports, requests
from levelcast.market.entry.event_reports import EventReports
from levelcast.market.entry.listing import InstrumentList
from levelcast.market.entry.market_data import MarketData
from levelcast.market.entry.order_state import OrderChange, OrderRegistry, OrderState
from levelcast.market.entry.queries import Queries
from levelcast.market.entry.rights import RightsTable, TradingLogin
from levelcast.market.entry.values import CancelRejectReason, EntryRefused, OrderRejectReason
from levelcast.market.fix.acceptor import Acceptor, LogonRequested, Outputs
from levelcast.market.fix.config import SessionConfig
from levelcast.market.fix.effects import (
    Close,
    DeliverMessage,
    Effect,
    Effects,
    GapFound,
    Ignored,
    LoggedOn,
    LoggedOut,
    PeerReject,
    PersistEntry,
    Refused,
    SendBytes,
)
from levelcast.market.fix.journal import Entry, Expecting, Received, Reset, Sent, SessionImage
from levelcast.market.fix.reader import Message
from levelcast.market.fix.replies import business_reject_body
from levelcast.market.fix.schedule import SessionSchedule
from levelcast.market.fix.session import FixSession, SessionState
from levelcast.market.fix.values import time_text
from levelcast.native.book_codes import GATEWAY_BITS
from levelcast.records import ORDER
from levelcast.wire.messages import Packet

Connection = Hashable


class JournalError(LevelcastError):
    """The journal does not belong to the accounts of the gateway."""


UNSUPPORTED_TYPE, NOT_AUTHORISED = 3, 6
"""BusinessRejectReason (FIX 380)."""
POSS_RESEND = 97
MAX_TEXT_BYTES = 255
"""Longest ClOrdID."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    comp_id: bytes = b"FLOOR"
    number: int = 1
    """Number of the gateway in client order ids (M3), and of its source in the sequence."""
    schedule: SessionSchedule | None = None
    checks_passwords: bool = True
    time_tolerance_ns: int = 120 * 10**9
    max_message: int = 16_384
    logon_timeout_ns: int = 60 * 10**9
    """Time for the check of a password, when many log on at once."""


class PasswordCheck(NamedTuple):
    """A Logon that waits for `admit` or `refuse`."""

    connection: Connection
    comp_id: str
    username: bytes
    password: bytes


class SessionEvent(NamedTuple):
    """An event of a session, for logs and metrics."""

    comp_id: str
    kind: str
    text: str


@dataclass(slots=True)
class GatewayOutput:
    journal: bytes
    packet: Packet | None
    sends: dict[Connection, list[bytes]]
    closes: list[tuple[Connection, str]]
    checks: list[PasswordCheck]
    events: list[SessionEvent]


@dataclass(slots=True, eq=False)
class EntrySession:
    """A session of the gateway."""

    login: TradingLogin
    fix: FixSession
    sent: journal.SentLog
    connection: Connection | None = None


Handler = Callable[[EntrySession, Message, int, int], None]


class Gateway:
    def __init__(
        self,
        config: GatewayConfig,
        rights: RightsTable,
        read_sent: Callable[[int], Sent],
        *,
        journal_end: int = 0,
        balances: Callable[[], bytes] = bytes,
        top: Callable[[int, int], bytes] = lambda instrument, levels: b"",
    ) -> None:
        self.config, self.rights = config, rights
        self.listing = InstrumentList()
        self.registry = OrderRegistry()
        self.reports = EventReports(self.registry, self.listing, rights, config.number)
        self.sessions: dict[int, EntrySession] = {}
        self.acceptor = Acceptor(
            checks_passwords=config.checks_passwords,
            logon_timeout_ns=config.logon_timeout_ns,
            max_message=config.max_message,
        )
        self.queries = Queries(self.registry, self.listing, balances)
        self.market_data = MarketData(self.listing, top)
        self.packet_number = 0
        self.client = config.number << GATEWAY_BITS
        """The last client order id."""
        self._read_sent = read_sent
        self._journal_end = journal_end
        self._entries: list[bytes] = []
        self._entries_size = 0
        self._commands: list[bytes] = []
        self._touched: set[EntrySession] = set()
        self._cancels: dict[EntrySession, int] = {}
        """When the orders of a session without a connection are cancelled (G4)."""
        self._of: dict[FixSession, EntrySession] = {}
        self._outgoing: dict[EntrySession, list[tuple[bytes, bytes, int]]] = {}
        """Messages without a number: type, body and cause."""
        self._now = 0
        self._sends: dict[Connection, list[bytes]] = {}
        self._closes: list[tuple[Connection, str]] = []
        self._checks: list[PasswordCheck] = []
        self._events: list[SessionEvent] = []
        self._time = b""
        self._time_ns = -1
        self._handlers: dict[bytes, Handler] = {
            b"D": self._on_new_order,
            b"F": self._on_change,
            b"G": self._on_change,
            b"q": self._on_mass_cancel,
        }
        for login in rights.logins.values():
            self._add_session(login)

    # Rights

    def add_login(self, login: TradingLogin, now: int) -> None:
        """Add a session, or change its rights; a locked one is logged out."""
        self.rights.add(login)
        found = self.sessions.get(login.number)
        if found is None:
            self._add_session(login)
        else:
            found.login = login
            self._end_if_locked(found, now)

    def _end_if_locked(self, session: EntrySession, now: int) -> None:
        if session.login.locked and session.fix.state is SessionState.ESTABLISHED:
            self.logout(session, now, b"the account is locked")

    def logout(self, session: EntrySession, now: int, text: bytes) -> None:
        """Begin to end an established session."""
        self._number()
        self._perform(session, session.connection, session.fix.logout(now, text), now, now)

    def _plan_cancel(self, session: EntrySession, now: int) -> None:
        """Cancel the orders of a session without a connection after its grace time (G4)."""
        if session.login.cancel_after_ns is not None:
            self._cancels[session] = now + session.login.cancel_after_ns

    def _add_session(self, login: TradingLogin, image: SessionImage | None = None) -> EntrySession:
        image = image or SessionImage()
        sent = journal.SentLog(self._read_sent)
        image.sent = sent  # type: ignore[assignment]  # a mapping of its own, as the image allows
        config = SessionConfig(
            sender=self.config.comp_id,
            target=login.comp_id.encode(),
            schedule=self.config.schedule,
            time_tolerance_ns=self.config.time_tolerance_ns,
            max_message=self.config.max_message,
        )
        session = EntrySession(login, FixSession(config, image), sent)
        self.sessions[login.number] = session
        self.acceptor.add(session.fix)
        self._of[session.fix] = session
        return session

    # Restart (G2)

    def restore(self, octets: bytes | memoryview, first_packet: int = 1) -> tuple[list[Packet], int]:
        """Apply the journal; return its packets from a number on, and the end of its last complete batch."""
        packets, end = [], 0
        for batch, upto in journal.read_batches(octets):
            commands = []
            for number, entry, offset in batch.entries:
                session = self.sessions.get(number)
                if session is None:
                    raise JournalError(f"the journal names session {number}, which the accounts do not have")
                self._restore_entry(session, entry, offset)
                if isinstance(entry, journal.RequestEntry | journal.CommandsEntry):
                    commands.append(entry.commands)
            if batch.packet:
                self.packet_number = batch.packet
                if batch.packet >= first_packet:
                    packets.append(self._packet(batch.packet, b"".join(commands)))
            end = upto
        self._journal_end = end
        for session in self.sessions.values():
            session.sent.written()
        return packets, end

    def _restore_entry(self, session: EntrySession, entry: journal.GatewayEntry, offset: int) -> None:
        image = session.fix.image
        if isinstance(entry, journal.RequestEntry):
            image.apply(Expecting(entry.seq + 1))
            self._restore_request(session, entry)
        elif isinstance(entry, journal.RefusedEntry):
            image.apply(Expecting(entry.seq + 1))
            self.registry.refuse(session.login.number, entry.text)
            self.client = max(self.client, entry.client)
        elif isinstance(entry, journal.CommandsEntry):
            self.client = max(self.client, *requests.clients_of(entry.commands))
        else:
            image.apply(entry)
            if isinstance(entry, Sent):
                session.sent.place(entry.seq, offset)
                session.sent.written()
            elif isinstance(entry, Reset):
                self.registry.forget_texts(session.login.number)

    def _restore_request(self, session: EntrySession, entry: journal.RequestEntry) -> None:
        request = requests.restored(session.login.number, entry, self.registry)
        self.client = max(self.client, request.client)
        self._register(request)

    def _register(self, request: OrderState | OrderChange) -> None:
        if isinstance(request, OrderChange) and request.order is not None:
            request.order.pending.append(request)
        elif isinstance(request, OrderState):
            account = self.rights.accounts.get(request.account)
            request.fix_fields(account.name.encode() if account else b"%d" % request.account)
        self.registry.add(request)

    def start(self, now: int) -> None:
        """Begin to work after a restart: every session is disconnected from now on."""
        for session in self.sessions.values():
            self._plan_cancel(session, now)

    # The driver's calls

    def connect(self, connection: Connection, now: int) -> None:
        self.acceptor.connect(connection, now)

    def receive(self, connection: Connection, data: bytes, now: int, stamp_ns: int) -> None:
        """Handle bytes of a connection that the kernel had at `stamp_ns` (E1)."""
        fix = self.acceptor.session_of(connection)
        if fix is None:
            self._number()
            self._perform_all(self.acceptor.receive(connection, data, now), now, stamp_ns)
            return
        if self._outgoing:
            self._number()
        self._perform(self._of[fix], connection, fix.receive(data, now), now, stamp_ns)
        self.acceptor.settle(connection)

    def disconnected(self, connection: Connection, now: int) -> None:
        self._number()
        self._perform_all(self.acceptor.disconnected(connection, now), now, now)

    def admit(self, connection: Connection, now: int) -> None:
        self._number()
        self._perform_all(self.acceptor.admit(connection, now), now, now)

    def refuse(self, connection: Connection, text: bytes, now: int) -> None:
        self._number()
        self._perform_all(self.acceptor.refuse(connection, text, now), now, now)

    def step(self, now: int) -> None:
        """Perform what is due."""
        self._number()
        self._perform_all(self.acceptor.step(now), now, now)
        for session, at in list(self._cancels.items()):
            if at <= now:
                del self._cancels[session]
                self._cancel_orders(session, now)

    @property
    def wake_ns(self) -> int | None:
        times = list(self._cancels.values())
        if (wake := self.acceptor.wake_ns) is not None:
            times.append(wake)
        return min(times, default=None)

    def apply(self, payload: bytes, timestamp_ns: int, events: bytes, now: int) -> None:
        """Handle the definitions of a frame and the engine's events: send the reports that the sessions do not have."""
        self.listing.read(payload)
        for number, kind, body, cause in self.reports.apply(events, timestamp_ns):
            session = self.sessions.get(number)
            if session is not None and cause > session.fix.image.cause:
                self._send(session, kind, body, now, cause)
        if self.reports.changed and self.queries.watchers:
            for number, body in self.queries.phase_changes(self.reports.changed, time_text(timestamp_ns)):
                self._notify(number, b"f", body, now)
        for number, kind, body in self.market_data.apply(events):
            self._notify(number, kind, body, now)

    def take(self) -> GatewayOutput:
        """Return what the calls since the last one amount to."""
        self._number()
        packet = None
        number = 0
        if self._commands:
            number = self.packet_number = self.packet_number + 1
            packet = self._packet(number, b"".join(self._commands))
        octets = b""
        if self._entries or packet is not None:
            octets = journal.seal_batch(number, b"".join(self._entries))
            self._journal_end += len(octets)
            for touched in self._touched:
                touched.sent.written()
        output = GatewayOutput(octets, packet, self._sends, self._closes, self._checks, self._events)
        self._entries, self._entries_size, self._commands, self._touched = [], 0, [], set()
        self._sends, self._closes, self._checks, self._events = {}, [], [], []
        return output

    def _packet(self, number: int, payload: bytes) -> Packet:
        return Packet(self.config.number, 1, number, len(payload) // ORDER.itemsize, payload)

    # Effects

    def _perform_all(self, outputs: Outputs, now: int, stamp_ns: int) -> None:
        for connection, fix, effect in outputs:
            session = self._of[fix] if fix is not None else None
            if isinstance(effect, LogonRequested):
                assert session is not None
                self._checks.append(PasswordCheck(connection, session.login.comp_id, effect.username, effect.password))
            elif session is not None:
                self._perform(session, connection, [effect], now, stamp_ns)
            elif isinstance(effect, Close):
                self._closes.append((connection, effect.reason))
        for connection in {connection for connection, *_ in outputs if connection is not None}:
            self.acceptor.settle(connection)

    def _perform(
        self, session: EntrySession, connection: Connection | None, effects: Effects, now: int, stamp_ns: int
    ) -> None:
        for effect in effects:
            if isinstance(effect, PersistEntry):
                self._persist(session, effect.entry)
            elif isinstance(effect, DeliverMessage):
                self._deliver(session, effect.message, now, stamp_ns)
            elif isinstance(effect, SendBytes):
                self._sends.setdefault(connection, []).append(effect.data)
            elif isinstance(effect, Close):
                self._closes.append((connection, effect.reason))
            else:
                self._on_event(session, connection, effect, now)

    def _persist(self, session: EntrySession, entry: Entry) -> None:
        number = session.login.number
        if isinstance(entry, Received):
            return  # `_deliver` follows, and writes what the message became
        if isinstance(entry, Sent):
            packed = journal.pack_sent(number, entry)
            session.sent.place(entry.seq, self._journal_end + journal.BATCH_HEAD.size + self._entries_size)
            self._touched.add(session)
        else:
            packed = journal.pack_number(number, entry)
            if isinstance(entry, Reset):
                self.registry.forget_texts(number)
        self._write(packed)

    def _write(self, packed: bytes) -> None:
        self._entries.append(packed)
        self._entries_size += len(packed)

    def _on_event(self, session: EntrySession, connection: Connection | None, effect: Effect, now: int) -> None:
        """Count an event of a session, and follow its logons."""
        text = ""
        if isinstance(effect, LoggedOn):
            session.connection = connection
            self._cancels.pop(session, None)
            self._end_if_locked(session, now)
        elif isinstance(effect, LoggedOut):
            session.connection = None
            self.queries.forget(session.login.number)
            self.market_data.forget(session.login.number)
            self._plan_cancel(session, now)
            text = effect.reason
        elif isinstance(effect, Ignored | Refused):
            text = effect.reason
        elif isinstance(effect, GapFound):
            text = f"{effect.first} to {effect.received - 1}"
        elif isinstance(effect, PeerReject):
            text = effect.message.get(58).decode("ascii", "replace")
        self._events.append(SessionEvent(session.login.comp_id, type(effect).__name__, text))

    # Messages

    def _deliver(self, session: EntrySession, message: Message, now: int, stamp_ns: int) -> None:
        handler = self._handlers.get(message.type)
        if handler is not None:
            handler(session, message, now, stamp_ns)
            return
        self._write(journal.pack_number(session.login.number, Expecting((message.seq or 0) + 1)))
        try:
            if message.type == b"V":
                time = self._text_of(now)
                for kind, body in self.market_data.request(session.login.number, message, time):
                    self._notify(session.login.number, kind, body, now)
                return
            replies = self.queries.reply(session.login, message, self._text_of(now))
        except EntryRefused as refused:
            self._send(session, b"j", business_reject_body(message, 0, refused.text), now)
            return
        if replies is None:
            body = business_reject_body(message, UNSUPPORTED_TYPE, b"Unsupported Message Type")
            replies = [(b"j", body)]
        for kind, body in replies:
            self._send(session, kind, body, now)

    def _on_new_order(self, session: EntrySession, message: Message, now: int, stamp_ns: int) -> None:
        text, client = message.get(requests.CL_ORD_ID), self.client + 1
        try:
            self._check_text(session, message, text)
            record, order = requests.new_order(
                message, session.login, self.listing, self.config.number, client, stamp_ns
            )
        except EntryRefused as refused:
            self._refuse_order(session, message, refused, now)
            return
        self._register(order)
        entry = journal.RequestEntry(message.seq or 0, order.side, record, text, order.symbol)
        self._accept(session, entry, client)
        body = reports.execution(order, b"A%d" % client, b"A", self._text_of(now))
        self._send(session, b"8", body, now)

    def _check_text(self, session: EntrySession, message: Message, text: bytes) -> None:
        if len(text) > MAX_TEXT_BYTES:
            raise EntryRefused(OrderRejectReason.UNSUPPORTED, f"ClOrdID is longer than {MAX_TEXT_BYTES} bytes")
        if self.registry.is_known(session.login.number, text):
            raise EntryRefused(OrderRejectReason.DUPLICATE, "ClOrdID was used before")

    def _accept(self, session: EntrySession, entry: journal.RequestEntry, client: int) -> None:
        """Journal a request with its commands, which are part of the next packet."""
        self.client = client
        self._commands.append(entry.commands)
        self._write(journal.pack_request(session.login.number, entry))

    def _note_refused(self, session: EntrySession, message: Message, text: bytes) -> int:
        """Journal a request that the gateway refuses; return its number."""
        self.client += 1
        number = session.login.number
        entry = journal.RefusedEntry(message.seq or 0, self.client, text[:MAX_TEXT_BYTES])
        self._write(journal.pack_refused(number, entry))
        self.registry.refuse(number, entry.text)
        return self.client

    def _refuse_order(self, session: EntrySession, message: Message, refused: EntryRefused, now: int) -> None:
        text, time = message.get(requests.CL_ORD_ID), self._text_of(now)
        order = self.registry.find(session.login.number, text)
        client = self._note_refused(session, message, text)
        if refused.code == OrderRejectReason.DUPLICATE and order is not None and message.get(POSS_RESEND) == b"Y":
            self._send(session, b"8", reports.execution(order, b"0", b"I", time), now)
            return
        body = reports.refused_order(
            text[:MAX_TEXT_BYTES], message.get(requests.SYMBOL) or b"N/A", message.get(requests.SIDE),
            message.get(requests.ORDER_QTY), b"G%d" % client, refused.code, refused.text, time,
        )  # fmt: skip
        self._send(session, b"8", body, now)

    def _on_change(self, session: EntrySession, message: Message, now: int, stamp_ns: int) -> None:
        text, client = message.get(requests.CL_ORD_ID), self.client + 1
        time = self._text_of(now)
        try:
            self._check_text(session, message, text)
            record, change = requests.change_order(
                message, session.login, self.registry, self.config.number, client, stamp_ns
            )
        except EntryRefused as refused:
            original = message.get(requests.ORIG_CL_ORD_ID)
            order = self.registry.find(session.login.number, original)
            self._note_refused(session, message, text)
            duplicate = refused.code == OrderRejectReason.DUPLICATE
            code = refused.code if duplicate or refused.code == 1 else CancelRejectReason.OTHER
            body = reports.cancel_refused(
                message.type, text[:MAX_TEXT_BYTES], original, order, code, refused.text, time
            )
            self._send(session, b"9", body, now)
            return
        self._register(change)
        self._accept(
            session, journal.RequestEntry(message.seq or 0, message.type, record, text, change.original), client
        )
        if change.order is not None:
            pending = b"6" if message.type == b"F" else b"E"
            body = reports.execution(
                change.order, b"P%d" % client, pending, time, text=text, original=change.original, status=pending
            )
            self._send(session, b"8", body, now)

    def _on_mass_cancel(self, session: EntrySession, message: Message, now: int, stamp_ns: int) -> None:
        text = message.get(requests.CL_ORD_ID)
        try:
            self._check_text(session, message, text)
            records, change = requests.mass_cancel(
                message, session.login, self.listing, self.config.number, self.client + 1, stamp_ns
            )
        except EntryRefused as refused:
            self._note_refused(session, message, text)
            kind = message.get(requests.MASS_TYPE)
            code = 1 if refused.code == OrderRejectReason.UNKNOWN_SYMBOL else 99 if refused.code else 0
            body = reports.mass_cancel_refused(text[:MAX_TEXT_BYTES], kind, code, refused.text, self._text_of(now))
            self._send(session, b"r", body, now)
            return
        self._register(change)
        entry = journal.RequestEntry(message.seq or 0, b"q", records, text, change.original)
        self._accept(session, entry, change.client)

    def _cancel_orders(self, session: EntrySession, now: int) -> None:
        """Cancel the orders of a session that was lost (G4)."""
        commands = []
        for order in self.registry.open_orders(session.login.number):
            self.client += 1
            commands.append(
                requests.command(
                    b"C", self.config.number, order.instrument, now, self.client, order.account, original=order.client
                )
            )
        for at in range(0, len(commands), journal.MAX_COMMANDS):
            part = b"".join(commands[at : at + journal.MAX_COMMANDS])
            self._commands.append(part)
            self._write(journal.pack_commands(session.login.number, part))

    # Messages of the gateway

    def _send(self, session: EntrySession, kind: bytes, body: bytes, now: int, cause: int = 0) -> None:
        """Send a message, or keep it until the session is connected. `_number` does it, for all that wait."""
        self._now = now
        waiting = self._outgoing.get(session)
        if waiting is None:
            self._outgoing[session] = [(kind, body, cause)]
        else:
            waiting.append((kind, body, cause))

    def _number(self) -> None:
        """Number the messages that wait, and write their entries."""
        outgoing, self._outgoing = self._outgoing, {}
        entries = self._entries
        for session, messages in outgoing.items():
            number, sent = session.login.number, session.sent
            before = self._journal_end + journal.BATCH_HEAD.size
            parts = []
            for entry, data in session.fix.send_many(messages, self._now):
                if isinstance(entry, Sent):
                    packed = journal.pack_sent(number, entry)
                    sent.place(entry.seq, before + self._entries_size)
                    entries.append(packed)
                    self._entries_size += len(packed)
                else:
                    self._persist(session, entry)
                if data is not None:
                    parts.append(data)
            self._touched.add(session)
            if parts:
                self._sends.setdefault(session.connection, []).extend(parts)

    def _notify(self, number: int, kind: bytes, body: bytes, now: int) -> None:
        """Send a message that is not repeated."""
        self._number()
        session = self.sessions[number]
        self._perform(session, session.connection, session.fix.notify(kind, body, now), now, now)

    def _text_of(self, now: int) -> bytes:
        if now != self._time_ns:
            self._time_ns, self._time = now, time_text(now)
        return self._time
