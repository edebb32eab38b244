"""A FIX 4.4 session without I/O: bytes and the time in, effects out.

    state            connection  enters it by                          leaves it by
    CLOSED           no          start, Close                          connect
    AWAITING_LOGON   yes         connect of an acceptor                Logon, any other message, logon timeout
    LOGON_SENT       yes         connect of an initiator               Logon, any other message, logon timeout
    ESTABLISHED      yes         Logon                                 Logout, logout(), fault, silence, end of period
    LOGOUT_SENT      yes         logout(), end of period               Logout, logout timeout
    FAILED           yes         Logout sent because of a fault        Logout, logout timeout

An established session handles a message by its MsgSeqNum:

    number           handled
    any              Logout (answered), ResendRequest (served), SequenceReset without GapFillFlag
    as expected      by its type; a message with a fault is answered by a Reject with tag and reason, and counts
    higher           kept; the missing numbers are requested once, and again after a time without progress
    lower            ignored if PossDupFlag is set; otherwise Logout with both numbers, and the connection is closed

A message of another version, with other CompIDs or with a SendingTime off by more than the tolerance is answered by a
Logout (after a Reject, if it is a message of this version). The session then is FAILED: it still serves resends and
awaits the peer's Logout, but accepts nothing. So what it did not accept is not lost: the peer sends it again after
its next logon.

Silence: a Heartbeat after one interval without sending, a TestRequest after 1.2 intervals without receiving, the end
of the connection after 2. A Logon that names other CompIDs, has a wrong time or is not the first message gets no
answer. One that is refused for another reason gets a Logout with the reason.

Durability (rule G2): `effects` and `journal` describe what must be on disk before what is sent. A session that is
built from its journal's image continues with the next numbers; peers repeat what was lost in between.

Deviations from the specification, all as the acceptance definitions of QuickFIX require:

- A Logout is answered and a ResendRequest served whatever its number is; a message with a wrong number is not
  answered first.
- User-defined tags (5000 and above) are invalid.
- A Logon with ResetSeqNumFlag is answered at any time of an established session, and both numbers start at 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum

from levelcast.market.fix.config import SessionConfig
from levelcast.market.fix.dictionary import LAYOUTS, SESSION_TYPES
from levelcast.market.fix.effects import (
    Close,
    DeliverMessage,
    Effects,
    GapFound,
    Ignored,
    LoggedOn,
    LoggedOut,
    PeerReject,
    PersistEntry,
    Refused,
)
from levelcast.market.fix.framing import FixFrame, Framer, Garbled
from levelcast.market.fix.gap import Gap
from levelcast.market.fix.journal import Entry, Expecting, HeadFields, Received, Reset, SessionImage
from levelcast.market.fix.outbox import POSS_DUP, Outbox
from levelcast.market.fix.reader import Message, Reader
from levelcast.market.fix.reasons import Rejection, SessionRejectReason
from levelcast.market.fix.replies import business_reject_body, reject_body, reject_head
from levelcast.market.fix.values import SECOND, time_ns

HEARTBEAT, TEST_REQUEST, RESEND_REQUEST, REJECT = b"0", b"1", b"2", b"3"
SEQUENCE_RESET, LOGOUT, LOGON, BUSINESS_REJECT = b"4", b"5", b"A", b"j"
BEGIN_STRING = b"FIX.4.4"

SENDER, TARGET, SENDING_TIME, ORIG_TIME = 49, 56, 52, 122
BEGIN_SEQ, END_SEQ, NEW_SEQ, GAP_FILL = 7, 16, 36, 123
ENCRYPT, HEARTBEAT_INTERVAL, RESET_FLAG, TEST_ID, TEXT = 98, 108, 141, 112, 58
UNSUPPORTED_TYPE = 3
"""BusinessRejectReason."""
TEST_REQUEST_ID = b"TEST"
_TESTED_AFTER, _LOST_AFTER = 12, 20
"""Tenths of the heartbeat interval without a message."""


class SessionState(Enum):
    CLOSED = "closed"
    AWAITING_LOGON = "awaiting logon"
    LOGON_SENT = "logon sent"
    ESTABLISHED = "established"
    LOGOUT_SENT = "logout sent"
    FAILED = "failed"


OPEN = frozenset({SessionState.ESTABLISHED, SessionState.LOGOUT_SENT})
"""States in which messages are accepted."""
LEAVING = frozenset({SessionState.LOGOUT_SENT, SessionState.FAILED})


class FixSession:
    """One session with one peer, over any number of connections, one at a time."""

    def __init__(self, config: SessionConfig, image: SessionImage | None = None) -> None:
        self.config = config
        self.image = image or SessionImage()
        self.state = SessionState.CLOSED
        self.outbox = Outbox(config, self.image)
        self.heartbeat_ns = config.heartbeat_s * SECOND
        self._framer = Framer(config.max_message)
        self._reader = Reader()
        self._gap = Gap(config.max_held, config.max_held_bytes)
        self._since_ns = 0
        """When the state began that has a timeout."""
        self._last_received_ns = 0
        self._tested = False
        self._period: int | None = None
        self._handlers: dict[bytes, Callable[[Message, int, Effects], None]] = {
            HEARTBEAT: self._on_heartbeat,
            TEST_REQUEST: self._on_test_request,
            REJECT: self._on_reject,
            SEQUENCE_RESET: self._on_gap_fill,
            LOGON: self._on_second_logon,
        }

    # The driver's calls.

    def connect(self, now: int, framer: Framer | None = None) -> Effects:
        """Begin a connection. An acceptor passes the framer with which it read the Logon."""
        effects: Effects = []
        self._framer = framer or Framer(self.config.max_message)
        self._since_ns = self._last_received_ns = now
        if not self.config.initiator:
            self.state = SessionState.AWAITING_LOGON
            return effects
        if not self._roll(now, effects):
            effects.append(Close("the schedule is closed"))
            return effects
        self.state = SessionState.LOGON_SENT
        if self.config.reset_on_logon:
            self.outbox.persist(Reset(now), effects)
        flag = b"141=Y\x01" if self.config.reset_on_logon else b""
        name = b"553=%b\x01554=%b\x01" % (self.config.username, self.config.password) if self.config.username else b""
        body = b"98=0\x01108=%d\x01%b%b" % (self.config.heartbeat_s, flag, name)
        self.outbox.session_message(LOGON, body, now, effects)
        return effects

    def receive(self, data: bytes, now: int) -> Effects:
        """Handle bytes of the connection."""
        effects: Effects = []
        framer = self._framer
        framer.feed(data)
        while self.connected and (found := framer.next()) is not None:
            if isinstance(found, FixFrame):
                self.receive_frame(found, now, effects)
            elif isinstance(found, Garbled):
                self._on_garbled(found, effects)
            else:
                text = b"message of %d bytes exceeds the limit of %d" % found
                self._give_up(text, now, effects, awaiting_logout=False)
        return effects

    def disconnected(self, now: int, reason: str = "connection lost") -> Effects:
        """Handle the loss of the connection."""
        effects: Effects = []
        if self.state is not SessionState.CLOSED:
            self._end(reason, effects)
            effects.pop()  # there is nothing left to close
        return effects

    def send(self, kind: bytes, body: bytes, now: int, *, cause: int = 0, head: HeadFields = ()) -> Effects:
        """Send an application message, or keep it until the peer is logged on and asks for it.

        `body` has the fields after the head, each with its delimiter (`writer.encode_fields`). `cause` is the
        application's own ascending number of the reported event, which the journal keeps.
        """
        effects: Effects = []
        if self.state is SessionState.CLOSED:
            self._roll(now, effects)
        connected = self.state is SessionState.ESTABLISHED
        self.outbox.message(kind, body, now, effects, cause=cause, head=head, connected=connected)
        return effects

    def send_many(self, messages: Iterable[tuple[bytes, bytes, int]], now: int) -> list[tuple[Entry, bytes | None]]:
        """Send messages, each a type, a body and a cause; return entries, each durable before its bytes are sent.

        It does the same as `send` for each, in less time.
        """
        found: list[tuple[Entry, bytes | None]] = []
        if self.state is SessionState.CLOSED:
            effects: Effects = []
            self._roll(now, effects)
            found += [(effect.entry, None) for effect in effects if isinstance(effect, PersistEntry)]
        return found + self.outbox.application_messages(messages, now, connected=self.state is SessionState.ESTABLISHED)

    def notify(self, kind: bytes, body: bytes, now: int) -> Effects:
        """Send an application message that a resend replaces by a gap fill; without a logon, do nothing."""
        effects: Effects = []
        if self.state is SessionState.ESTABLISHED:
            self.outbox.session_message(kind, body, now, effects)
        return effects

    def logout(self, now: int, text: bytes = b"") -> Effects:
        """Begin to end an established session; messages are accepted until the peer's Logout."""
        effects: Effects = []
        if self.state is SessionState.ESTABLISHED:
            self._send_logout(text, now, effects)
            self.state = SessionState.LOGOUT_SENT
        return effects

    def refuse(self, text: bytes, now: int) -> Effects:
        """End a connection that awaits a Logon with a reason, for example a wrong password."""
        effects: Effects = []
        if self.state is SessionState.AWAITING_LOGON:
            self._give_up(text, now, effects, awaiting_logout=False)
        return effects

    @property
    def connected(self) -> bool:
        return self.state is not SessionState.CLOSED

    @property
    def wake_ns(self) -> int | None:
        """Time of the next `step`; None without a connection."""
        if self.state is SessionState.CLOSED:
            return None
        if self.state in LEAVING:
            return self._since_ns if self.outbox.resending else self._since_ns + self.config.logout_timeout_ns
        if self.state is not SessionState.ESTABLISHED:
            return self._since_ns + self.config.logon_timeout_ns
        if self.outbox.resending:
            return self._last_received_ns
        times = [self._period_end()] if self._period is not None else []
        if self._gap.requested:
            times.append(self._gap.changed_ns + self.config.resend_timeout_ns)
        if self.heartbeat_ns:
            silence = _LOST_AFTER if self._tested else _TESTED_AFTER
            times.append(self.outbox.last_sent_ns + self.heartbeat_ns)
            times.append(self._last_received_ns + self.heartbeat_ns * silence // 10)
        return min(times, default=None)

    def step(self, now: int) -> Effects:
        """Perform what is due at a time."""
        effects: Effects = []
        if self.state is SessionState.CLOSED:
            return effects
        self.outbox.continue_resend(now, effects)
        if self.state in LEAVING:
            if now >= self._since_ns + self.config.logout_timeout_ns:
                self._end("no Logout of the peer", effects)
        elif self.state is not SessionState.ESTABLISHED:
            if now >= self._since_ns + self.config.logon_timeout_ns:
                self._end("no Logon of the peer", effects)
        elif self._period is not None and now >= self._period_end():
            self._send_logout(b"end of the session's period", now, effects)
            self.state = SessionState.LOGOUT_SENT
        else:
            self._repeat_request(now, effects)
            self._watch_silence(now, effects)
        return effects

    # Messages.

    def receive_frame(self, frame: FixFrame, now: int, effects: Effects) -> None:
        """Handle one message of the connection."""
        first = self.state in (SessionState.AWAITING_LOGON, SessionState.LOGON_SENT)
        if frame.begin != BEGIN_STRING:
            if first:
                self._end("the first message has another BeginString", effects)
            elif self.state is not SessionState.FAILED:
                self._give_up(b"Incorrect BeginString", now, effects)
            return
        message = self._reader.read(frame)
        self._last_received_ns = now
        self._tested = False
        if self._is_plain(message, now):
            image = self.image
            effects.append(PersistEntry(Received(image.next_in, message.raw)))
            effects.append(DeliverMessage(message))
            image.next_in += 1
            return
        if first:
            self._on_first(message, now, effects)
            return
        if self.state is SessionState.FAILED and (message.rejection or message.type not in (LOGOUT, RESEND_REQUEST)):
            effects.append(Ignored("after a fault only Logout and ResendRequest are handled"))
            return
        if message.seq is None:
            self._give_up(b"MsgSeqNum is missing or not a number", now, effects, awaiting_logout=False)
            return
        fault, fatal = self._identity_fault(message, now)
        if fault is not None:
            self._on_identity_fault(message, fault, fatal, now, effects)
            return
        self._by_number(message, message.seq, now, effects)

    def _is_plain(self, message: Message, now: int) -> bool:
        """Return whether a message is the expected one, for the application, and nothing else is to be done with it.

        It is the usual case, and `_in_turn` would do the same.
        """
        fields = message.fields
        return (
            message.seq == self.image.next_in
            and self.state is SessionState.ESTABLISHED
            and message.rejection is None
            and message.type not in SESSION_TYPES
            and message.type in LAYOUTS
            and POSS_DUP not in fields
            and self._gap.idle
            and self._comp_ids_match(message)
            and (sent := time_ns(message.get(SENDING_TIME))) is not None
            and self._time_is_near(sent, now)
        )

    def _by_number(self, message: Message, seq: int, now: int, effects: Effects) -> None:
        kind, expected = message.type, self.image.next_in
        if message.rejection is None:
            if kind == LOGOUT:
                return self._on_logout(message, now, effects)
            if kind == RESEND_REQUEST:
                return self._on_resend_request(message, seq, now, effects)
            if kind == SEQUENCE_RESET and message.get(GAP_FILL) != b"Y":
                return self._on_sequence_reset(message, now, effects)
            if kind == LOGON and message.get(RESET_FLAG) == b"Y" and seq == 1:
                return self._on_reset_logon(message, now, effects)
        if seq == expected:
            self._in_turn(message, seq, now, effects)
            self._drain(now, effects)
        elif seq > expected:
            self._hold(seq, message, now, effects)
        else:
            self._on_low_number(message, seq, now, effects)
        return None

    def _in_turn(self, message: Message, seq: int, now: int, effects: Effects) -> None:
        """Handle the message with the expected number."""
        if message.rejection is not None:
            self._reject(message, message.rejection, now, effects)
            self._expect(seq + 1, now, effects)
        elif (handler := self._handlers.get(message.type)) is not None:
            handler(message, now, effects)
        elif not message.has_layout:
            self._reject_type(message, now, effects)
            self._expect(seq + 1, now, effects)
        else:
            self.outbox.persist(Received(seq, message.raw), effects)
            self._gap.advance(seq + 1, now)
            effects.append(DeliverMessage(message))

    def _drain(self, now: int, effects: Effects) -> None:
        """Handle the kept messages whose turn it is."""
        while self.state in OPEN and self._gap.holds(seq := self.image.next_in):
            message = self._gap.take(seq)
            if message is None:
                self._expect(seq + 1, now, effects)
            else:
                self._in_turn(message, seq, now, effects)
        if self.state in OPEN and self._gap.seen >= self.image.next_in and not self._gap.requested:
            self._request_gap(self._gap.seen, now, effects)

    def _hold(self, seq: int, message: Message | None, now: int, effects: Effects) -> None:
        """Keep a message behind a gap, and request the gap if it is not requested."""
        self._gap.hold(seq, message)
        if not self._gap.requested:
            self._request_gap(seq, now, effects)

    def _request_gap(self, received: int, now: int, effects: Effects) -> None:
        """Request all messages from the expected one on, after one with a higher number was received."""
        effects.append(GapFound(self.image.next_in, received))
        self._gap.upto, self._gap.changed_ns = received - 1, now
        self.outbox.session_message(RESEND_REQUEST, b"7=%d\x0116=0\x01" % self.image.next_in, now, effects)

    def _expect(self, seq: int, now: int, effects: Effects) -> None:
        self.outbox.persist(Expecting(seq), effects)
        self._gap.advance(seq, now)

    # Faults.

    def _identity_fault(self, message: Message, now: int) -> tuple[Rejection | None, bool]:
        """Return a fault of CompIDs or times, and whether it ends the session."""
        fields = message.fields
        if not self._comp_ids_match(message):
            return Rejection(SessionRejectReason.COMP_ID), True
        sent = time_ns(message.get(SENDING_TIME))
        if sent is None:
            return None, False
        if not self._time_is_near(sent, now):
            return Rejection(SessionRejectReason.SENDING_TIME), True
        if POSS_DUP in fields and fields[POSS_DUP] == b"Y" and message.type != SEQUENCE_RESET:
            return self._duplicate_fault(message, sent)
        return None, False

    def _comp_ids_match(self, message: Message) -> bool:
        """Return whether the CompIDs are those of the session; a missing or empty one has a Reject of its own."""
        sender, target = message.get(SENDER), message.get(TARGET)
        return sender in (self.config.target, b"") and target in (self.config.sender, b"")

    def _time_is_near(self, sent: int, now: int) -> bool:
        return abs(now - sent) <= self.config.time_tolerance_ns

    def _duplicate_fault(self, message: Message, sent: int) -> tuple[Rejection | None, bool]:
        """Return the fault of a possible duplicate: it needs an OrigSendingTime at or before its SendingTime."""
        if ORIG_TIME not in message.fields:
            return Rejection(SessionRejectReason.REQUIRED_MISSING, b"%d" % ORIG_TIME), False
        first = time_ns(message.get(ORIG_TIME))
        if first is not None and first > sent:
            return Rejection(SessionRejectReason.SENDING_TIME), True
        return None, False

    def _on_identity_fault(self, message: Message, fault: Rejection, fatal: bool, now: int, effects: Effects) -> None:
        if self.state is SessionState.FAILED:
            return
        self._reject(message, fault, now, effects)
        if message.seq == self.image.next_in:
            self._expect(message.seq + 1, now, effects)
        if fatal:
            self._give_up(b"", now, effects)
        else:
            self._drain(now, effects)

    def _reject(self, message: Message, fault: Rejection, now: int, effects: Effects) -> None:
        """Answer a message by a Reject, which is resent like an application message."""
        body = reject_body(message, fault)
        head = reject_head(message)
        self.outbox.message(REJECT, body, now, effects, cause=0, head=head, connected=True)
        tag = f" (tag {fault.tag.decode()})" if fault.tag else ""
        effects.append(Refused(f"{fault.words.decode()}{tag}"))

    def _reject_type(self, message: Message, now: int, effects: Effects) -> None:
        body = business_reject_body(message, UNSUPPORTED_TYPE, b"Unsupported Message Type")
        head = reject_head(message)
        self.outbox.message(BUSINESS_REJECT, body, now, effects, cause=0, head=head, connected=True)
        effects.append(Refused("Unsupported Message Type"))

    def _on_garbled(self, garbled: Garbled, effects: Effects) -> None:
        if self.state in (SessionState.AWAITING_LOGON, SessionState.LOGON_SENT):
            self._end(f"no Logon, but {garbled.reason}", effects)
        else:
            effects.append(Ignored(garbled.reason))

    def _on_low_number(self, message: Message, seq: int, now: int, effects: Effects) -> None:
        if message.get(POSS_DUP) == b"Y":
            effects.append(Ignored(f"duplicate of message {seq}"))
            return
        text = b"MsgSeqNum too low, expecting %d but received %d" % (self.image.next_in, seq)
        self._give_up(text, now, effects, awaiting_logout=False)

    def _give_up(self, text: bytes, now: int, effects: Effects, *, awaiting_logout: bool = True) -> None:
        """End the session because of a fault: Logout, then close at once or after the peer's Logout."""
        effects.append(Refused(text.decode("ascii", "replace")))
        if self.state not in LEAVING:
            self._send_logout(text, now, effects)
        if awaiting_logout:
            self.state = SessionState.FAILED
        else:
            self._end(text.decode("ascii", "replace"), effects)

    def _send_logout(self, text: bytes, now: int, effects: Effects) -> None:
        self.outbox.session_message(LOGOUT, b"58=%b\x01" % text if text else b"", now, effects)
        self._since_ns = now

    def _end(self, reason: str, effects: Effects) -> None:
        """End the connection."""
        if self.state not in (SessionState.AWAITING_LOGON, SessionState.LOGON_SENT):
            effects.append(LoggedOut(reason))
        effects.append(Close(reason))
        self.state = SessionState.CLOSED
        self._gap.clear()
        self._tested = False
        self.outbox.stop_resend()

    # Logon.

    def _on_first(self, message: Message, now: int, effects: Effects) -> None:
        """Handle the first message of a connection."""
        if message.type == LOGOUT and self.state is SessionState.LOGON_SENT:
            if message.seq == self.image.next_in:
                self._expect(message.seq + 1, now, effects)
            self._end(f"the peer refuses the Logon: {message.get(TEXT).decode('ascii', 'replace')}", effects)
        elif message.type != LOGON or message.seq is None or self._identity_fault(message, now)[0] is not None:
            self._end("the first message is not a Logon of this session", effects)
        elif text := self._logon_fault(message):
            self._give_up(text, now, effects, awaiting_logout=False)
        else:
            self._on_logon(message, message.seq, now, effects)

    def _logon_fault(self, message: Message) -> bytes:
        """Return why a Logon is refused, empty if it is not."""
        if message.rejection is not None:
            tag = b" (tag %b)" % message.rejection.tag if message.rejection.tag else b""
            return message.rejection.words + tag
        if message.get(ENCRYPT) != b"0":
            return b"EncryptMethod is not supported, use 0"
        if not 0 <= int(message.get(HEARTBEAT_INTERVAL)) <= self.config.max_heartbeat_s:
            return b"HeartBtInt must be 0 to %d s" % self.config.max_heartbeat_s
        if message.get(RESET_FLAG) == b"Y" and message.seq != 1:
            return b"a Logon with ResetSeqNumFlag has MsgSeqNum 1"
        return b""

    def _on_logon(self, message: Message, seq: int, now: int, effects: Effects) -> None:
        if not self.config.initiator and not self._open_numbers(message, now, effects):
            self._give_up(b"the session is closed at this time", now, effects, awaiting_logout=False)
            return
        if seq < self.image.next_in:
            text = b"MsgSeqNum too low, expecting %d but received %d" % (self.image.next_in, seq)
            self._give_up(text, now, effects, awaiting_logout=False)
            return
        self.state = SessionState.ESTABLISHED
        self.heartbeat_ns = int(message.get(HEARTBEAT_INTERVAL)) * SECOND
        if seq == self.image.next_in:
            self._expect(seq + 1, now, effects)
        if not self.config.initiator:
            self._answer_logon(message, now, effects)
        effects.append(LoggedOn())
        self.outbox.send_kept(now, effects)
        if seq > self.image.next_in:
            self._hold(seq, None, now, effects)

    def _open_numbers(self, message: Message, now: int, effects: Effects) -> bool:
        """Reset the numbers if the period or the Logon requires it; return whether the session is open."""
        if not self._roll(now, effects):
            return False
        if message.get(RESET_FLAG) == b"Y" or self.config.reset_on_logon:
            self.outbox.persist(Reset(now), effects)
        return True

    def _answer_logon(self, message: Message, now: int, effects: Effects) -> None:
        flag = b"141=Y\x01" if message.get(RESET_FLAG) == b"Y" else b""
        body = b"98=0\x01108=%d\x01%b" % (self.heartbeat_ns // SECOND, flag)
        self.outbox.session_message(LOGON, body, now, effects)

    def _on_reset_logon(self, message: Message, now: int, effects: Effects) -> None:
        """Handle a Logon that resets the numbers of an established session."""
        if text := self._logon_fault(message):
            self._give_up(text, now, effects, awaiting_logout=False)
            return
        self._gap.clear()
        self.outbox.stop_resend()
        self.outbox.persist(Reset(now), effects)
        self._expect(2, now, effects)
        self.heartbeat_ns = int(message.get(HEARTBEAT_INTERVAL)) * SECOND
        self._answer_logon(message, now, effects)

    def _on_second_logon(self, message: Message, now: int, effects: Effects) -> None:
        fault = Rejection(SessionRejectReason.OTHER, b"", b"Logon of an established session")
        self._reject(message, fault, now, effects)
        self._expect(self.image.next_in + 1, now, effects)

    # Session messages in turn.

    def _on_heartbeat(self, message: Message, now: int, effects: Effects) -> None:
        self._expect(self.image.next_in + 1, now, effects)

    def _on_test_request(self, message: Message, now: int, effects: Effects) -> None:
        self._expect(self.image.next_in + 1, now, effects)
        self.outbox.session_message(HEARTBEAT, b"112=%b\x01" % message.get(TEST_ID), now, effects)

    def _on_reject(self, message: Message, now: int, effects: Effects) -> None:
        self._expect(self.image.next_in + 1, now, effects)
        effects.append(PeerReject(message))

    def _on_gap_fill(self, message: Message, now: int, effects: Effects) -> None:
        new = int(message.get(NEW_SEQ))
        if new <= self.image.next_in:
            self._reject(message, Rejection(SessionRejectReason.VALUE_INCORRECT), now, effects)
            new = self.image.next_in + 1
        self._expect(new, now, effects)

    # Session messages with any number.

    def _on_logout(self, message: Message, now: int, effects: Effects) -> None:
        if message.seq == self.image.next_in:
            self._expect(message.seq + 1, now, effects)
        if self.state not in LEAVING:
            self._send_logout(b"", now, effects)
        self._end("Logout", effects)

    def _on_resend_request(self, message: Message, seq: int, now: int, effects: Effects) -> None:
        first, last = int(message.get(BEGIN_SEQ)), int(message.get(END_SEQ))
        newest = self.image.next_out - 1
        if first < 1 or first > newest or 0 < last < first:
            tag = END_SEQ if 1 <= first <= newest else BEGIN_SEQ
            self._reject(message, Rejection(SessionRejectReason.VALUE_INCORRECT, b"%d" % tag), now, effects)
        else:
            self.outbox.resend(first, min(last, newest) if last else newest)
            self.outbox.continue_resend(now, effects)
        if self.state is SessionState.FAILED:
            return
        if seq == self.image.next_in:
            self._expect(seq + 1, now, effects)
            self._drain(now, effects)
        elif seq > self.image.next_in:
            self._hold(seq, None, now, effects)

    def _on_sequence_reset(self, message: Message, now: int, effects: Effects) -> None:
        new = int(message.get(NEW_SEQ))
        if new < self.image.next_in:
            self._reject(message, Rejection(SessionRejectReason.VALUE_INCORRECT), now, effects)
            return
        self._gap.clear()
        self._expect(new, now, effects)

    # Time.

    def _roll(self, now: int, effects: Effects) -> bool:
        """Reset the numbers at the first use in a period; return whether the session is open."""
        if self.config.schedule is None:
            return True
        self._period = self.config.schedule.period(now)
        if self._period is None:
            return False
        if self.image.since_ns < self._period:
            self.outbox.persist(Reset(self._period), effects)
        return True

    def _period_end(self) -> int:
        assert self.config.schedule is not None
        assert self._period is not None
        return self.config.schedule.end(self._period)

    def _repeat_request(self, now: int, effects: Effects) -> None:
        if self._gap.requested and now >= self._gap.changed_ns + self.config.resend_timeout_ns:
            self._request_gap(self._gap.seen, now, effects)

    def _watch_silence(self, now: int, effects: Effects) -> None:
        interval = self.heartbeat_ns
        if not interval:
            return
        silence = now - self._last_received_ns
        if silence * 10 >= interval * _LOST_AFTER:
            self._end(f"no message for {silence // SECOND} s", effects)
            return
        if not self._tested and silence * 10 >= interval * _TESTED_AFTER:
            self._tested = True
            self.outbox.session_message(TEST_REQUEST, b"112=%b\x01" % TEST_REQUEST_ID, now, effects)
        elif now >= self.outbox.last_sent_ns + interval:
            self.outbox.session_message(HEARTBEAT, b"", now, effects)
