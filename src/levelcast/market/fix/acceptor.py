"""Connections of an acceptor: read the Logon of each and give the connection to the session that it names.

A connection whose first message is not a Logon, or names CompIDs without a session or a session that has a
connection, is closed without an answer. With `checks_passwords` the Logon waits for the driver: `LogonRequested` has
the name and the password, and the driver calls `admit` or `refuse` when it has checked them, outside its loop. While
a Logon waits, the connection may send one message of the limit in advance.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from levelcast.market.fix.effects import Close, Effect, Effects
from levelcast.market.fix.framing import DEFAULT_MAX_MESSAGE, FixFrame, Framer, Garbled
from levelcast.market.fix.reader import Message, Reader
from levelcast.market.fix.session import BEGIN_STRING, LOGON, SENDER, TARGET, FixSession, SessionState
from levelcast.market.fix.values import SECOND

USERNAME, PASSWORD = 553, 554

Connection = Hashable


class LogonRequested(NamedTuple):
    """A Logon that waits for `admit` or `refuse`."""

    session: FixSession
    username: bytes
    password: bytes


class Output(NamedTuple):
    """An effect with the connection and the session that it belongs to."""

    connection: Connection | None
    session: FixSession | None
    effect: Effect | LogonRequested


Outputs = list[Output]


@dataclass(slots=True)
class _Pending:
    framer: Framer
    since_ns: int
    logon: FixFrame | None = None
    session: FixSession | None = None


class Acceptor:
    def __init__(
        self,
        sessions: Iterable[FixSession] = (),
        *,
        checks_passwords: bool = False,
        logon_timeout_ns: int = 10 * SECOND,
        max_message: int = DEFAULT_MAX_MESSAGE,
    ) -> None:
        self._checks_passwords = checks_passwords
        self._logon_timeout_ns = logon_timeout_ns
        self._max_message = max_message
        self._sessions: dict[tuple[bytes, bytes], FixSession] = {}
        self._pending: dict[Connection, _Pending] = {}
        self._active: dict[Connection, FixSession] = {}
        self._reader = Reader()
        self._due: list[tuple[int, int, Connection]] = []
        """Heap of times, with a number to order equal ones. Entries that `_scheduled` does not confirm are void."""
        self._scheduled: dict[Connection, int] = {}
        self._numbers = count()
        for session in sessions:
            self.add(session)

    def add(self, session: FixSession) -> None:
        """Accept logons for a session."""
        if session.config.initiator:
            raise ValueError(f"session with {session.config.target!r}: an initiator cannot be accepted")
        self._sessions[session.config.target, session.config.sender] = session

    def session_of(self, connection: Connection) -> FixSession | None:
        """Return the session of a connection, None before its Logon is accepted."""
        return self._active.get(connection)

    @property
    def pending(self) -> int:
        """Connections without a session."""
        return len(self._pending)

    def connect(self, connection: Connection, now: int) -> None:
        """Begin a connection."""
        self._pending[connection] = _Pending(Framer(self._max_message), now)
        self.schedule(connection)

    def receive(self, connection: Connection, data: bytes, now: int) -> Outputs:
        """Handle bytes of a connection."""
        session = self._active.get(connection)
        if session is not None:
            return self._outputs(connection, session, session.receive(data, now))
        pending = self._pending.get(connection)
        if pending is None:
            return []
        pending.framer.feed(data)
        if pending.logon is not None:
            if pending.framer.held > self._max_message:
                return self._close(connection, "too many bytes before the answer to the Logon")
            return []
        return self._first(connection, pending, now)

    def disconnected(self, connection: Connection, now: int) -> Outputs:
        """Handle the loss of a connection."""
        self._pending.pop(connection, None)
        self._scheduled.pop(connection, None)
        session = self._active.get(connection)
        return self._outputs(connection, session, session.disconnected(now)) if session is not None else []

    def admit(self, connection: Connection, now: int) -> Outputs:
        """Accept the waiting Logon of a connection."""
        pending = self._pending.get(connection)
        if pending is None or pending.logon is None or pending.session is None:
            return []
        session, frame = pending.session, pending.logon
        if session.state is not SessionState.CLOSED:
            return self._close(connection, "the session has a connection")
        del self._pending[connection]
        self._active[connection] = session
        effects = session.connect(now, pending.framer)
        session.receive_frame(frame, now, effects)
        effects += session.receive(b"", now)
        return self._outputs(connection, session, effects)

    def refuse(self, connection: Connection, text: bytes, now: int) -> Outputs:
        """Answer the waiting Logon of a connection by a Logout with a reason."""
        pending = self._pending.get(connection)
        if pending is None or pending.session is None:
            return []
        session = pending.session
        if session.state is not SessionState.CLOSED:
            return self._close(connection, "the session has a connection")
        del self._pending[connection]
        self._active[connection] = session
        return self._outputs(connection, session, session.connect(now) + session.refuse(text, now))

    def settle(self, connection: Connection) -> None:
        """Note the state of a connection after calls of its session that did not come from here."""
        session = self._active.get(connection)
        if session is not None and session.state is SessionState.CLOSED:
            del self._active[connection]
        self.schedule(connection)

    def schedule(self, connection: Connection) -> None:
        """Note when a connection is due. Call it after a call of its session that did not come from here."""
        wake = self._wake_of(connection)
        if wake is None:
            self._scheduled.pop(connection, None)
        elif wake < self._scheduled.get(connection, wake + 1):
            self._scheduled[connection] = wake
            heappush(self._due, (wake, next(self._numbers), connection))

    @property
    def wake_ns(self) -> int | None:
        """Time of the next `step`."""
        while self._due and self._scheduled.get(self._due[0][2]) != self._due[0][0]:
            heappop(self._due)
        return self._due[0][0] if self._due else None

    def step(self, now: int) -> Outputs:
        """Perform what is due at a time."""
        outputs: Outputs = []
        due: list[Connection] = []
        while (wake := self.wake_ns) is not None and wake <= now:
            connection = heappop(self._due)[2]
            del self._scheduled[connection]
            due.append(connection)
        for connection in due:
            wake = self._wake_of(connection)
            session = self._active.get(connection)
            if wake is None or wake > now:
                self.schedule(connection)
            elif session is None:
                outputs += self._close(connection, "no Logon of the peer")
            else:
                outputs += self._outputs(connection, session, session.step(now))
        return outputs

    def _wake_of(self, connection: Connection) -> int | None:
        if (session := self._active.get(connection)) is not None:
            return session.wake_ns
        pending = self._pending.get(connection)
        return pending.since_ns + self._logon_timeout_ns if pending is not None else None

    def _first(self, connection: Connection, pending: _Pending, now: int) -> Outputs:
        """Handle the first message of a connection, if it is complete."""
        found = pending.framer.next()
        if found is None:
            return []
        if not isinstance(found, FixFrame):
            reason = found.reason if isinstance(found, Garbled) else "an oversized message"
            return self._close(connection, f"no Logon, but {reason}")
        message = self._reader.read(found)
        if found.begin != BEGIN_STRING or message.type != LOGON:
            return self._close(connection, "the first message is not a Logon of this version")
        session = self._sessions.get((message.get(SENDER), message.get(TARGET)))
        if session is None:
            return self._close(connection, "no session has these CompIDs")
        if session.state is not SessionState.CLOSED:
            return self._close(connection, "the session has a connection")
        pending.logon, pending.session = found, session
        if self._checks_passwords:
            return [Output(connection, session, _request(session, message))]
        return self.admit(connection, now)

    def _close(self, connection: Connection, reason: str) -> Outputs:
        self._pending.pop(connection, None)
        self._scheduled.pop(connection, None)
        return [Output(connection, None, Close(reason))]

    def _outputs(self, connection: Connection, session: FixSession, effects: Effects) -> Outputs:
        if session.state is SessionState.CLOSED:
            self._active.pop(connection, None)
        self.schedule(connection)
        return [Output(connection, session, effect) for effect in effects]


def _request(session: FixSession, message: Message) -> LogonRequested:
    return LogonRequested(session, message.get(USERNAME), message.get(PASSWORD))
