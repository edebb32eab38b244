"""Parts of the FIX tests: messages by hand, an echoing application, a peer, and a runner of definitions.

The definitions are those that QuickFIX publishes for servers. A line is one step:

    I…            is sent to the server; BodyLength and CheckSum are added where they are missing
    E…            is expected from it: the same fields in the same order; times and CheckSum by their form, BodyLength
                  unless a time has another length than the expected one
    iCONNECT, iDISCONNECT, eDISCONNECT
    i2,  I2,  E2,  e2,   a step of the second connection
    <TIME>, <TIME-180>   the time, and the time 180 s ago
    #             a comment

The server is ISLD and the client TW44. Numbers start at 1 with every logon. Time is virtual: waiting costs nothing.
"""

from __future__ import annotations

import re
from pathlib import Path

from levelcast.market.fix.acceptor import Acceptor, Outputs
from levelcast.market.fix.config import SessionConfig
from levelcast.market.fix.dictionary import HEADER_LAYOUT, TRAILER_LAYOUT
from levelcast.market.fix.effects import Close, DeliverMessage, Effects, Event, PersistEntry, SendBytes
from levelcast.market.fix.journal import Entry, SessionImage
from levelcast.market.fix.reader import Message
from levelcast.market.fix.replies import business_reject_body
from levelcast.market.fix.session import FixSession
from levelcast.market.fix.values import time_text
from levelcast.market.fix.writer import encode_fields

S = 1_000_000_000
START = 1_767_614_400 * S
"""5 January 2026, 12:00:00 UTC."""
PATIENCE_NS = 300 * S
TIMES = ("42", "52", "60", "122")
TIME_FORM = re.compile(r"\d{8}-\d\d:\d\d:\d\d(\.\d{3})?")
POSS_RESEND, CL_ORD_ID = 97, 11


def sum_of(data: bytes) -> int:
    """Return the checksum as the specification describes it."""
    return sum(data) % 256


def whole(fields: str) -> bytes:
    """Return a message with BodyLength and CheckSum; `|` stands for the delimiter."""
    data = fields.replace("|", "\x01").encode("latin-1")
    names = [part.partition(b"=")[0] for part in data.split(b"\x01")]
    if b"9" not in names:
        head, _, body = data.partition(b"\x01")
        body = body.rpartition(b"10=")[0] if b"10" in names else body
        data = head + b"\x01" + b"9=%d\x01" % len(body) + data[len(head) + 1 :]
    if b"10" not in names:
        data += b"10=%03d\x01" % sum_of(data)
    return data


class EchoApplication:
    """Send orders and security definitions back; refuse other messages; ignore a resent order that it has seen."""

    def __init__(self) -> None:
        self.seen: set[bytes] = set()

    def on_message(self, session: FixSession, message: Message, now: int) -> list[object]:
        if message.type not in (b"D", b"d"):
            return list(session.send(b"j", business_reject_body(message, 3, b"Unsupported Message Type"), now))
        order = message.get(CL_ORD_ID)
        if message.get(POSS_RESEND) == b"Y" and order in self.seen:
            return []
        self.seen.add(order)
        outside = HEADER_LAYOUT.members.keys() | TRAILER_LAYOUT.members.keys()
        body = encode_fields(sorted((tag, value) for tag, value in message.fields.items() if tag not in outside))
        head = ((POSS_RESEND, b"Y"),) if message.get(POSS_RESEND) == b"Y" else ()
        return list(session.send(message.type, body, now, head=head))


class Failed(AssertionError):
    """A step of a definition that did not happen."""


class DefinitionRunner:
    """Run the steps of a definition against an acceptor with one session."""

    def __init__(self) -> None:
        config = SessionConfig(sender=b"ISLD", target=b"TW44", reset_on_logon=True)
        self.acceptor = Acceptor([FixSession(config)])
        self.application = EchoApplication()
        self.now = START
        self.received: dict[str, list[bytes]] = {}
        self.closed: set[str] = set()

    def run(self, path: Path) -> None:
        for number, line in enumerate(path.read_bytes().decode("latin-1").splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            try:
                self._step(line)
            except Failed as failed:
                raise Failed(f"{path.name}:{number}: {failed}") from None
        left = {name: messages for name, messages in self.received.items() if messages}
        if left:
            raise Failed(f"{path.name}: messages that were not expected: {left}")

    def _step(self, line: str) -> None:
        action, rest = line[0], line[1:]
        connection = "1"
        if re.match(r"\d,", rest):
            connection, rest = rest[0], rest[2:]
        if action == "I":
            text = re.sub(r"<TIME([+-]\d+)?>", lambda found: self._time(int(found[1] or 0)), rest)
            self._handle(self.acceptor.receive(connection, whole(text.replace("\x01", "|")), self.now))
        elif action == "E":
            self._compare(rest.split("\x01"), self._next(connection))
        elif line.startswith("i") and rest == "CONNECT":
            self.closed.discard(connection)
            self.acceptor.connect(connection, self.now)
        elif line.startswith("i") and rest == "DISCONNECT":
            self._handle(self.acceptor.disconnected(connection, self.now))
        elif line.startswith("e") and rest == "DISCONNECT":
            self._wait(connection, for_close=True)
        else:
            raise Failed(f"not a step: {line!r}")

    def _time(self, offset_s: int) -> str:
        return time_text(self.now + offset_s * S)[:17].decode()

    def _handle(self, outputs: Outputs) -> None:
        """Perform the effects, then give the messages to the application."""
        for connection, _, effect in outputs:
            name = str(connection)
            if isinstance(effect, SendBytes):
                self.received.setdefault(name, []).append(effect.data)
            elif isinstance(effect, Close):
                self.closed.add(name)
        for connection, session, effect in outputs:
            if isinstance(effect, DeliverMessage) and session is not None:
                replies = self.application.on_message(session, effect.message, self.now)
                sent = [reply.data for reply in replies if isinstance(reply, SendBytes)]
                self.received.setdefault(str(connection), []).extend(sent)

    def _wait(self, connection: str, for_close: bool) -> None:
        """Advance the time until a message or the end of the connection."""
        until = self.now + PATIENCE_NS
        while True:
            if self.received.get(connection):
                if for_close:
                    raise Failed(f"a message instead of the end: {self.received[connection]}")
                return
            if connection in self.closed:
                if not for_close:
                    raise Failed("the connection is closed")
                return
            wake = self.acceptor.wake_ns
            if wake is None or wake > until:
                raise Failed("nothing happens")
            self.now = max(self.now, wake)
            self._handle(self.acceptor.step(self.now))

    def _next(self, connection: str) -> list[str]:
        if not self.received.get(connection):
            self._wait(connection, for_close=False)
        data = self.received[connection].pop(0)
        head, _, tail = data.rpartition(b"10=")
        if int(tail[:3]) != sum_of(head):
            raise Failed(f"wrong CheckSum: {data!r}")
        body = head.split(b"\x01", 2)
        if int(body[1][2:]) != len(body[2]):
            raise Failed(f"wrong BodyLength: {data!r}")
        return data.decode("latin-1").split("\x01")

    def _compare(self, expected: list[str], received: list[str]) -> None:
        wanted = [field.split("=", 1) for field in expected if field]
        found = [field.split("=", 1) for field in received if field]
        lengths = {tag: len(value) for tag, value in found if tag in TIMES}
        same_times = all(lengths.get(tag) == len(value) for tag, value in wanted if tag in TIMES)
        length = next((value for tag, value in wanted if tag == "9"), None)
        if length is not None and same_times and ["9", length] not in found:
            raise Failed(f"expected BodyLength {length}: {received}")
        pairs = [[(tag, value) for tag, value in fields if tag not in ("9", "10")] for fields in (wanted, found)]
        for (tag, value), (other, other_value) in zip(*pairs, strict=False):
            right = TIME_FORM.fullmatch(other_value) if tag in TIMES else value == other_value
            if tag != other or not right:
                raise Failed(f"expected {tag}={value}, received {other}={other_value}: {received}")
        if len(pairs[0]) != len(pairs[1]):
            raise Failed(f"expected {expected}, received {received}")


class Peer:
    """The other side of a session, written by hand: it sends fields and shows what comes back."""

    def __init__(self, session: FixSession | None = None, *, now: int = START, logon: bool = True) -> None:
        self.session = session or FixSession(SessionConfig(sender=b"ISLD", target=b"TW44"))
        self.now = now
        self.seq = self.session.image.next_in
        self.journal: list[Entry] = []
        self.delivered: list[Message] = []
        self.events: list[Event] = []
        self.closed: str | None = None
        if logon:
            assert self.connect() == []
            assert self.say("A", "98=0|108=30") == [f"35=A|34={self.session.image.next_out - 1}|98=0|108=30"]

    def connect(self) -> list[str]:
        self.closed = None
        return self.perform(self.session.connect(self.now))

    def say(self, kind: str, body: str = "", seq: int | None = None, head: str = "", **fields: str) -> list[str]:
        """Send a message with the next number, or with another one; return what comes back."""
        if seq is None:
            seq, self.seq = self.seq, self.seq + 1
        return self.raw(whole(self.text(kind, body, seq, head, **fields)))

    def text(self, kind: str, body: str, seq: int, head: str = "", **fields: str) -> str:
        values = {"begin": "FIX.4.4", "sender": "TW44", "target": "ISLD", "time": time_text(self.now).decode()}
        values.update(fields)
        parts = [
            f"8={values['begin']}|35={kind}|34={seq}|49={values['sender']}|52={values['time']}|56={values['target']}",
            head,
            body,
        ]
        return "|".join(part for part in parts if part) + "|"

    def raw(self, data: bytes) -> list[str]:
        return self.perform(self.session.receive(data, self.now))

    def wait(self, seconds: float) -> list[str]:
        """Let time pass, with every step that is due in it."""
        until = self.now + int(seconds * S)
        shown: list[str] = []
        while (wake := self.session.wake_ns) is not None and wake <= until:
            self.now = max(self.now, wake)
            effects = self.session.step(self.now)
            assert effects or self.session.wake_ns != wake, "a step that is due does nothing"
            shown += self.perform(effects)
        self.now = until
        return shown

    def perform(self, effects: Effects) -> list[str]:
        shown = []
        for effect in effects:
            if isinstance(effect, SendBytes):
                shown.append(shown_message(effect.data))
            elif isinstance(effect, PersistEntry):
                self.journal.append(effect.entry)
            elif isinstance(effect, DeliverMessage):
                self.delivered.append(effect.message)
            elif isinstance(effect, Close):
                self.closed = effect.reason
            else:
                self.events.append(effect)
        return shown

    def restarted(self) -> Peer:
        """Return the peer of the session's process after a kill: its journal is all that is left."""
        peer = Peer(FixSession(self.session.config, SessionImage(self.journal)), now=self.now, logon=False)
        peer.journal = list(self.journal)
        peer.seq = self.seq
        return peer


def shown_message(data: bytes) -> str:
    """Return the fields of a message that a test names: all but those that each message has."""
    fields = data.decode("latin-1").split("\x01")[:-1]
    return "|".join(
        field for field in fields if field.partition("=")[0] not in ("8", "9", "10", "49", "52", "56", "122")
    )
