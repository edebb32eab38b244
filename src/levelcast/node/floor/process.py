"""The process of a floor: one loop with gateway, engine, tape, public data, tables and status.

A turn of the loop reads every connection that has data, once, and handles all of it as one batch: one write to the
journal, one frame, one call of the engine, one write of the tape, and one write to the journal with the reports. The
order of the writes is that of `levelcast.market.entry.gateway`.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from levelcast.errors import LevelcastError, NetError, UserError
from levelcast.extras import ExtraMissing
from levelcast.market.engine import MatchingEngine
from levelcast.market.entry.gateway import Gateway, GatewayConfig, SessionEvent
from levelcast.market.fix.schedule import SessionSchedule
from levelcast.market.floor.machine import OPERATOR, FloorMachine
from levelcast.market.floor.sequencer import LocalSequencer, local_tip
from levelcast.network import Network
from levelcast.node.floor.accounts import AccountStore
from levelcast.node.floor.connections import (
    HANDSHAKE_NS,
    GatewayConnection,
    GatewayListener,
    TlsFailed,
    tls_context,
)
from levelcast.node.floor.control import ControlServer
from levelcast.node.floor.entry_journal import EntryJournal
from levelcast.node.floor.feed import FloorFeed
from levelcast.node.floor.operator import cancelled, operator_packet, owners_set, refusal
from levelcast.node.floor.passwords import PasswordChecker
from levelcast.node.floor.status import FloorStatus
from levelcast.node.floor.tables import OrderTables
from levelcast.node.floor.ticker import Ticker
from levelcast.protocol.history import Frame
from levelcast.runtime.realtime import calm_garbage_collection
from levelcast.runtime.sockets import LOOPBACK, Address
from levelcast.storage.append_file import Durability, lock_directory
from levelcast.storage.tape.reader import TapeReader
from levelcast.storage.tape.writer import TapeWriter

DATABASE = "accounts.sqlite"
MAX_CONNECTIONS = 4_096
MAX_PER_ADDRESS = 2_048
MAX_READY = 64
"""Descriptors handled in a turn of the loop; the kernel rotates them."""
_IDLE_S = 1.0
Listener = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorOptions:
    directory: Path
    address: Address = (LOOPBACK, 9_878)
    comp_id: str = "FLOOR"
    database: str = ""
    """URL of a PostgreSQL database; default: SQLite in the directory."""
    certificate: str = ""
    key: str = ""
    durable: Durability = "process"
    feed: Address | None = ("239.192.7.1", 9_879)
    interface: str = LOOPBACK
    status_port: int = 0
    """0: no status."""
    tables: bool = True
    rate_bytes: int = 1_000_000
    """Read from one connection in a second."""
    network: Network | None = None
    name: str = ""
    """The floor's name in the network file."""
    schedule: SessionSchedule | None = None
    publisher: int = 1


class FloorProcess:
    def __init__(self, options: FloorOptions, say: Listener = lambda line: None) -> None:
        _check_tls(options)
        self.options, self._say = options, say
        self.counts: Counter[str] = Counter()
        self.drops: Counter[str] = Counter()
        """Connections that ended, by reason."""
        self.started_ns = time.time_ns()
        self.stopping = False
        self._epoll = select.epoll()
        self._connections: dict[int, GatewayConnection] = {}
        """By descriptor; the gateway's key of a connection is its number."""
        self._by_number: dict[int, GatewayConnection] = {}
        self._paused: dict[int, GatewayConnection] = {}
        self._per_address: Counter[str] = Counter()
        self._handshakes: dict[int, int] = {}
        self._owners: dict[int, int] = {}
        self._dirty: set[int] = set()
        with ExitStack() as undo:
            self._open(undo)
            self._closers = undo.pop_all()

    # Start

    def _open(self, undo: ExitStack) -> None:
        options = self.options
        directory = options.directory
        directory.mkdir(parents=True, exist_ok=True)
        undo.callback(os.close, lock_directory(directory, "floor"))
        self.accounts = AccountStore(options.database or directory / DATABASE)
        undo.callback(self.accounts.close)
        rights = self.accounts.rights()
        self._hashes = self.accounts.hashes()
        self.journal = EntryJournal(directory, options.durable)
        undo.callback(self.journal.close)
        self.ticker: Ticker | None = None
        if options.network is not None:
            self.ticker = Ticker(options.network, options.name, directory / "ticker", options.interface)
            undo.callback(self.ticker.close)
        engine = MatchingEngine(treasury=OPERATOR)
        config = GatewayConfig(comp_id=options.comp_id.encode(), schedule=options.schedule)
        self.gateway = Gateway(
            config,
            rights,
            self.journal.read_sent,
            balances=engine.kernel.balances,
            top=engine.kernel.top,
        )
        self.tape = TapeWriter.open(directory / "tape", local_tip(), durable=options.durable)
        undo.callback(self.tape.close)
        self.sequencer = LocalSequencer(self.tape.tip.copy())
        packets, end = self.gateway.restore(self.journal.content(), self.sequencer.next_number(config.number))
        self.journal.cut(end)
        publisher = self.ticker.publisher_id if self.ticker is not None else options.publisher
        self.floor = FloorMachine(engine, self.gateway, self.sequencer, publisher)
        self.feed: FloorFeed | None = None
        if options.feed is not None:
            self.feed = FloorFeed(options.feed, options.interface, self.started_ns)
            undo.callback(self.feed.close)
        self.tables: OrderTables | None = None
        if options.tables:
            try:
                self.tables = OrderTables(directory / "tables", self.gateway.listing)
            except ExtraMissing as error:
                self._say(f"no tables of orders and fills: {error}")
        self._replay(directory / "tape")
        for packet in packets:
            self.sequencer.submit(packet)
        now = time.time_ns()
        self.gateway.start(now)
        tls = tls_context(options.certificate, options.key) if options.certificate else None
        self.listener = GatewayListener(options.address, tls, options.rate_bytes)
        undo.callback(self.listener.close)
        self.control = ControlServer(directory, self.operate)
        undo.callback(self.control.close)
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        undo.callback(os.close, self._wake_read)
        undo.callback(os.close, self._wake_write)
        self.passwords = PasswordChecker(self._hashes.get, self._wake)
        undo.callback(self.passwords.close)
        self.status = FloorStatus(self, options.status_port)
        undo.callback(self.status.close)
        for fileno in (self.listener.fileno, self.control.fileno, self._wake_read):
            self._epoll.register(fileno, select.EPOLLIN)
        if self.feed is not None:
            self._epoll.register(self.feed.fileno, select.EPOLLIN)
        self._cycle(now)
        self._set_owners(now)
        if self.ticker is not None:
            self._define_symbols(self.ticker.symbols)

    def _replay(self, directory: Path) -> None:
        """Apply the frames of the tape: engine, orders and numbers are where they were."""
        frames = 0
        for found in TapeReader(directory).frames():
            self._apply(found.frame(), self.started_ns, live=False)
            self.gateway_catch_up()
            frames += 1
        self.sequencer.timestamp_ns = self.floor.engine.timestamp_ns
        if frames:
            self._say(f"replayed {frames:,} frames, {self.gateway.reports.number:,} events")
        for notice in (*self.journal.notices, *self.tape.notices):
            self._say(notice)

    def gateway_catch_up(self) -> None:
        """Write the reports that a killed process had not written, before they are sent at the next logon."""
        output = self.gateway.take()
        if output.journal:
            self.journal.append(output.journal)

    def _set_owners(self, now: int) -> None:
        """Give the engine the owners of the accounts that it does not know yet (M7)."""
        for row in self.accounts.rows():
            if self._owners.get(row.number, row.number) != row.owner:
                self._operate({"op": "owner", "by": "floor", "account": row.name, "owner": row.owner}, now)

    def _define_symbols(self, symbols: dict[str, int]) -> None:
        known = self.gateway.listing.by_symbol
        for symbol, number in sorted(symbols.items(), key=lambda each: each[1]):
            if symbol.encode() not in known:
                self._operate({"op": "instrument", "by": "floor", "symbol": symbol, "id": number}, time.time_ns())

    # Loop

    def run(self, duration_s: float | None = None) -> None:
        """Run until a signal or the end of the duration."""
        calm_garbage_collection()
        until = None if duration_s is None else time.monotonic() + duration_s
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *unused: self.stop())
        try:
            while not self.stopping and (until is None or time.monotonic() < until):
                self.turn(_IDLE_S if until is None else min(_IDLE_S, until - time.monotonic()))
        finally:
            self.close()

    def stop(self) -> None:
        self.stopping = True
        self._wake()

    def close(self) -> None:
        """Log the sessions out, and write what is left."""
        now = time.time_ns()
        for session in self.gateway.sessions.values():
            self.gateway.logout(session, now, b"the floor is closing")
        self._cycle(now)
        self._flush_tables()
        self.abandon()

    def abandon(self) -> None:
        """Release sockets and files without writing anything, as the end of a killed process does."""
        for connection in list(self._connections.values()):
            self._drop(connection, "the floor is closing", tell=False)
        self._closers.close()
        self._epoll.close()

    def turn(self, timeout_s: float) -> None:
        """Wait for something to do, and do it."""
        now = time.time_ns()
        ready = self._epoll.poll(self._wait_s(now, timeout_s), MAX_READY)
        now = time.time_ns()
        for fileno, events in ready:
            connection = self._connections.get(fileno)
            if connection is not None:
                if events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
                    self._read(connection, now)
                if events & select.EPOLLOUT:
                    self._dirty.add(connection.number)
            else:
                self._on_other(fileno, now)
        self._resume(now)
        self.gateway.step(now)
        self._cycle(now)
        self._chores(now)

    def _wait_s(self, now: int, timeout_s: float) -> float:
        times = [connection.paused_until_ns for connection in self._paused.values()]
        if self.tables is not None and self.tables.wake_ns is not None:
            times.append(self.tables.wake_ns)
        if self.feed is not None:
            times.append(self.feed.wake_ns)
        if self.ticker is not None and (wake := self.ticker.wake_ns(now)) is not None:
            times.append(wake)
        times += [wake for wake in (self.gateway.wake_ns, self.status.wake_ns) if wake is not None]
        times += list(self._handshakes.values())[:1]
        due = min(times, default=None)
        return timeout_s if due is None else max(0.0, min(timeout_s, (due - now) / 1e9))

    def _on_other(self, fileno: int, now: int) -> None:
        if fileno == self.listener.fileno:
            self._accept(now)
        elif fileno == self._wake_read:
            with suppress(BlockingIOError):
                os.read(self._wake_read, 4_096)
            self._take_passwords(now)
        elif fileno == self.control.fileno:
            client = self.control.accept()
            if client is not None:
                self._epoll.register(client, select.EPOLLIN)
        elif self.feed is not None and fileno == self.feed.fileno:
            self.feed.answer()
        elif self.status.owns(fileno):
            self.status.step({fileno}, now)
        else:
            self.control.receive(fileno)

    def _chores(self, now: int) -> None:
        if self.tables is not None and self.tables.wake_ns is not None and self.tables.wake_ns <= now:
            self._flush_tables()
        if self.feed is not None:
            self.feed.heartbeats(now)
        if self.ticker is not None:
            self.ticker.push()
        self.status.step(set(), now)
        self.status.watch(self._epoll)
        while self._handshakes and next(iter(self._handshakes.values())) <= now:
            number = next(iter(self._handshakes))
            del self._handshakes[number]
            if (late := self._by_number.get(number)) is not None:
                self._drop(late, "no Logon")

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    # Batches

    def _cycle(self, now: int) -> None:
        """Journal, send and sequence what the gateway has, until it has nothing more."""
        while True:
            output = self.gateway.take()
            if output.journal:
                self.journal.append(output.journal)
            for number, parts in output.sends.items():
                connection = self._by_number.get(number)  # type: ignore[call-overload]
                if connection is not None:
                    connection.send(parts[0] if len(parts) == 1 else b"".join(parts))
                    self._dirty.add(connection.number)
            self._flush()
            for number, reason in output.closes:
                connection = self._by_number.get(number)  # type: ignore[call-overload]
                if connection is not None:
                    self._finish(connection, reason)
            for check in output.checks:
                connection = self._by_number.get(check.connection)  # type: ignore[call-overload]
                if connection is not None:
                    self.passwords.submit(check, connection.peer[0], now)
            for event in output.events:
                self._on_event(event)
            if output.packet is not None:
                self.sequencer.submit(output.packet)
                self.counts["commands"] += output.packet.records
            frames = self.sequencer.release(now)
            if not frames:
                return
            for frame in frames:
                self._take_frame(frame, now)

    def _take_frame(self, frame: Frame, now: int) -> Any:
        self.tape.append(frame)
        if self.options.durable == "power":
            self.tape.sync()
        return self._apply(frame, now, live=True)

    def _apply(self, frame: Frame, now: int, *, live: bool) -> Any:
        applied = self.floor.apply(frame, now)
        self.counts["frames"] += 1
        self.counts["events"] += len(applied.events)
        self._owners |= owners_set(applied.events)
        if self.feed is not None:
            self.feed.release(frame.timestamp_ns, applied.public, now, send=live)
        if self.ticker is not None:
            self.ticker.release(applied.public.trades)
        if self.tables is not None:
            self.tables.add(applied.first_event, frame.timestamp_ns, applied.events, now)
            if self.tables.is_full:
                self._flush_tables()
        return applied

    def _flush_tables(self) -> None:
        """Write the tables. Trading does not depend on them: after an error they are written at the next start."""
        if self.tables is None:
            return
        try:
            self.tables.flush()
        except Exception as error:  # of Arrow or the disk
            self.tables = None
            self._say(f"tables of orders and fills: {error}; they are written from the tape at the next start")

    def _flush(self) -> None:
        """Send the queues of connections."""
        dirty, self._dirty = self._dirty, set()
        for number in dirty:
            connection = self._by_number.get(number)
            if connection is None:
                continue
            if not connection.flush():
                self._drop(connection, "the peer does not read")
            elif connection.closing and not connection.queued:
                self._drop(connection, "closed", tell=False)
            else:
                self._watch(connection)

    # Connections

    def _accept(self, now: int) -> None:
        for connection in self.listener.accept():
            address = connection.peer[0]
            if len(self._connections) >= MAX_CONNECTIONS or self._per_address[address] >= MAX_PER_ADDRESS:
                self.counts["refused_connections"] += 1
                connection.close()
                continue
            self.counts["connections"] += 1
            self._per_address[address] += 1
            self._connections[connection.fileno] = self._by_number[connection.number] = connection
            self._handshakes[connection.number] = now + HANDSHAKE_NS
            self._epoll.register(connection.fileno, select.EPOLLIN)
            self.gateway.connect(connection.number, now)

    def _read(self, connection: GatewayConnection, now: int) -> None:
        try:
            found = connection.receive()
        except BlockingIOError:
            return
        except TlsFailed as error:
            self._drop(connection, f"TLS: {error}")
            return
        if found is None:
            self._drop(connection, "the peer closed the connection")
            return
        data, stamp_ns = found
        self.counts["bytes_in"] += len(data)
        if connection.queued:
            self._dirty.add(connection.number)
        if data:
            self._handshakes.pop(connection.number, None)
            self.gateway.receive(connection.number, data, now, stamp_ns)
        if connection.paused_until_ns:
            self._paused[connection.number] = connection
            self._watch(connection)

    def _resume(self, now: int) -> None:
        """Read connections again whose rate allows it."""
        for number, connection in list(self._paused.items()):
            if connection.paused_until_ns <= now:
                connection.paused_until_ns = 0
                del self._paused[number]
                if connection.fileno in self._connections:
                    self._watch(connection)

    def _watch(self, connection: GatewayConnection) -> None:
        """Wait for what the connection can do now."""
        wanted = (select.EPOLLIN if connection.reads else 0) | (select.EPOLLOUT if connection.queued else 0)
        if wanted != connection.watched:
            connection.watched = wanted
            self._epoll.modify(connection.fileno, wanted)

    def _finish(self, connection: GatewayConnection, reason: str) -> None:
        """Close a connection when its queue is sent."""
        self.counts["closed"] += 1
        connection.closing = True
        if connection.queued:
            self._watch(connection)
        else:
            self._drop(connection, reason, tell=False)

    def _drop(self, connection: GatewayConnection, reason: str, *, tell: bool = True) -> None:
        if self._connections.pop(connection.fileno, None) is None:
            return
        self._epoll.unregister(connection.fileno)
        del self._by_number[connection.number]
        self._paused.pop(connection.number, None)
        self._handshakes.pop(connection.number, None)
        self._per_address[connection.peer[0]] -= 1
        if not self._per_address[connection.peer[0]]:
            del self._per_address[connection.peer[0]]
        connection.close()
        self.drops[reason] += 1
        if tell:
            self.gateway.disconnected(connection.number, time.time_ns())

    def _take_passwords(self, now: int) -> None:
        while self.passwords.results:
            verdict = self.passwords.results.popleft()
            self.passwords.note(verdict, now)
            if verdict.refusal:
                self.counts["refused_logons"] += 1
                self.gateway.refuse(verdict.check.connection, verdict.refusal, now)
            else:
                self.gateway.admit(verdict.check.connection, now)

    def _wake(self) -> None:
        with suppress(OSError):
            os.write(self._wake_write, b"\0")

    def _on_event(self, event: SessionEvent) -> None:
        self.counts[f"session.{event.kind}"] += 1
        if event.kind in ("LoggedOn", "LoggedOut"):
            words = "logged on" if event.kind == "LoggedOn" else "logged out"
            self._say(f"{event.comp_id} {words}{': ' if event.text else ''}{event.text}")

    # Operator

    def operate(self, request: dict[str, Any]) -> dict[str, Any]:
        """Perform a request of the operator, and answer it."""
        now = time.time_ns()
        try:
            if request.get("op") == "rights":
                self._load_rights(now)
                return {"ok": True}
            if request.get("op") == "status":
                return self.status.document(now)
            return self._operate(request, now)
        except LevelcastError as error:
            return {"error": str(error)}

    def _load_rights(self, now: int) -> None:
        self._hashes.clear()
        self._hashes.update(self.accounts.hashes())
        for login in self.accounts.rights().logins.values():
            self.gateway.add_login(login, now)
        self._cycle(now)
        self._set_owners(now)

    def _operate(self, request: dict[str, Any], now: int) -> dict[str, Any]:
        """Sequence a command of the operator in a frame of its own; return what it did."""
        self._cycle(now)
        packet = operator_packet(request, self.gateway.listing, self.accounts.number_of, now)
        self.floor.command(packet.payload, packet.records)
        (frame,) = self.sequencer.release(now)
        applied = self._take_frame(frame, now)
        self._cycle(now)
        if why := refusal(applied.events):
            raise UserError(f"{request['op']}: {why}")
        return {"ok": True, "cancelled": cancelled(applied.events), "events": len(applied.events)}


def _check_tls(options: FloorOptions) -> None:
    if bool(options.certificate) != bool(options.key):
        raise NetError("--certificate and --key belong together; pass both")
    if not options.certificate and not options.address[0].startswith("127."):
        raise NetError(
            f"--address: {options.address[0]} is not a loopback address, and sessions outside of this machine need "
            "TLS; pass --certificate and --key"
        )
